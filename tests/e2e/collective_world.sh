#!/usr/bin/env bash
# Every collective compared with Open MPI's, in the same processes on the same operands: equal to the byte, for 1 to 9 ranks.
# Skips where Open MPI is not to be had.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
has_mpi() { # the wrapper may be there without the header that it compiles against
    command -v mpirun.openmpi && mpicc.openmpi -fsyntax-only -x c - <<< '#include <mpi.h>'
} > "$SCRATCH/mpi" 2>&1
if ! has_mpi; then
    { [ "$(id -u)" -eq 0 ] && apt-get install -y -qq --no-install-recommends openmpi-bin libopenmpi-dev; } > "$SCRATCH/apt" 2>&1 ||
        { echo "skipped: needs Open MPI (Debian: openmpi-bin libopenmpi-dev)"; exit 77; }
    has_mpi || { echo "skipped: Open MPI does not compile: $(tail -n 1 "$SCRATCH/mpi")"; exit 77; }
fi
mpicc.openmpi -std=gnu17 -O2 -Wall -Wextra -Werror -I"$SOURCE/src" -I"$SOURCE/include" "$SOURCE/tests/e2e/lib/mpi_world.c" \
    "$BUILD/libashlar.a" $(pkg-config --libs jansson yaml-0.1 libpcre2-8 libxxhash libmicrohttpd libutf8proc zlib libcrypto libseccomp $(pkg-config --exists libzstd && echo libzstd) \
        $(pkg-config --exists liburing && echo liburing)) \
    -lm -ldl -lpthread \
    -o "$SCRATCH/mpi_world" || { fail "mpi_world.c does not compile"; finish; }

# run RANKS LARGEST_BYTES [NODES WAY]. Open MPI's vector code for x86-64 (its component op/avx) makes sums of bytes end at 255 instead of starting
# anew at 0, as its plain code does and the type says.
run() {
    try timeout 400 mpirun.openmpi --mca op ^avx --allow-run-as-root --oversubscribe --bind-to none -n "$1" "$SCRATCH/mpi_world" "${@:2}"
    expect 0 "$1 ranks ${*:3}"
    cat "$SCRATCH/out"
}
mib=$((1024 * 1024))
for ranks in 1 2 3 4; do run $ranks $((mib + 4)); done
for ranks in 5 6 7 8 9; do run $ranks 70000; done
run 2 $((64 * mib)) # and one element more
run 3 $((64 * mib))
# and over several nodes, even and uneven ones
if "$ASHLAR" version | grep -q 'libfabric [0-9]'; then
    run 4 70000 2 hierarchical
    run 4 70000 2 flat
    run 5 70000 3 hierarchical
    run 9 4096 2 hierarchical
fi
finish
