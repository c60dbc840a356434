#!/usr/bin/env bash
# All-reduce between 2 and 4 processes compared with Open MPI, MPICH (2 ranks only: its waits spin) and PyTorch's Gloo, the best of which counts at
# each size; and as a share of what a non-temporal copy by all ranks at once allows. All take turns, the median of the rounds counts.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
rounds=${BENCH_ROUNDS:-5}
dir=$BUILD/bench-collective
mkdir -p "$dir"
sizes=(8 1024 65536 1048576 16777216 268435456)
declare -A names=([8]=8B [1024]=1KiB [65536]=64KiB [1048576]=1MiB [16777216]=16MiB [268435456]=256MiB)
declare -A goals=([8]=1 [1024]=0 [65536]=0 [1048576]=2 [16777216]=2 [268435456]=2)
declare -A times # times[WHO RANKS BYTES]: microseconds, a list

# find_mpi NAME PACKAGE...: build the peer's program with its compiler.
find_mpi() {
    local name=$1
    shift
    command -v "mpicc.$name" > /dev/null && command -v "mpirun.$name" > /dev/null || apt_get "$@" || return 1
    "mpicc.$name" -O2 "$SOURCE/bench/peers/mpi_all_reduce.c" -o "$dir/$name" 2> "$dir/$name.log" || return 1
}

# keep WHO RANKS: lines "BYTES MICROSECONDS" from standard input.
keep() {
    local bytes us
    while read -r bytes us; do times["$1 $2 $bytes"]+=" $us"; done
}

# ours WHO RANKS FLAGS...
ours() {
    local who=$1 ranks=$2
    shift 2
    for bytes in "${sizes[@]}"; do
        "$ASHLAR" bench collective --procs "$ranks" --min "$bytes" --max "$bytes" --rounds 3 --json "$@"
    done | sed -n 's/.*"bytes":\([0-9]*\),.*"us":\([0-9.]*\),.*/\1 \2/p' > "$dir/out"
    keep "$who" "$ranks" < "$dir/out"
}

# peer WHO RANKS COMMAND...: its sizes are appended.
peer() {
    local who=$1 ranks=$2
    shift 2
    if timeout 120 "$@" "${sizes[@]}" > "$dir/out" 2> "$dir/err"; then keep "$who" "$ranks" < "$dir/out"; else note "$who failed: $(tail -n 1 "$dir/err")"; fi
}

one_round() { # ranks
    local ranks=$1
    ours private "$ranks"
    [ -z "$openmpi" ] || peer openmpi "$ranks" mpirun.openmpi --allow-run-as-root --oversubscribe -n "$ranks" "$dir/openmpi"
    ours window "$ranks" --window
    [ -z "$mpich" ] || [ "$ranks" -gt 2 ] || peer mpich "$ranks" mpirun.mpich -n "$ranks" "$dir/mpich"
    ours copy "$ranks" --bound
    [ -z "$python" ] || peer gloo "$ranks" "$python" "$SOURCE/bench/peers/gloo_all_reduce.py" "$ranks"
}

median() { printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

# best RANKS BYTES: the peer with the lowest median, in $who.
best() {
    local candidate value lowest=''
    who=''
    for candidate in openmpi mpich gloo; do
        [ -n "${times["$candidate $1 $2"]:-}" ] || continue
        value=$(median ${times["$candidate $1 $2"]})
        if [ -z "$lowest" ] || awk "BEGIN { exit !($value < $lowest) }"; then lowest=$value who=$candidate; fi
    done
}

add_rows() { # ranks
    local ranks=$1 bytes who
    for bytes in "${sizes[@]}"; do
        best "$ranks" "$bytes"
        "$BUILD/bench/row" "$BENCH_ROWS" "collective/all_reduce-${ranks}ranks-${names[$bytes]}" us "${labels[$who]:-}" "${goals[$bytes]}" lower \
            ${times["private $ranks $bytes"]} -- ${who:+${times["$who $ranks $bytes"]}}
    done
    bytes=268435456
    for path in private window; do
        "$BUILD/bench/row" "$BENCH_ROWS" "collective/all_reduce-${ranks}ranks-${names[$bytes]}-$path-of-bound" us 'non-temporal copy by all ranks' \
            0.8 lower ${times["$path $ranks $bytes"]} -- ${times["copy $ranks $bytes"]}
    done
}

# rows RANKS: the names of its rows.
rows() {
    local bytes
    for bytes in "${sizes[@]}"; do echo "collective/all_reduce-${1}ranks-${names[$bytes]}"; done
    printf '%s\n' "collective/all_reduce-${1}ranks-256MiB-"{private,window}-of-bound
}

wanted $(rows 2) $(rows 4) || exit 0
openmpi='' mpich='' python=''
find_mpi openmpi openmpi-bin libopenmpi-dev && openmpi=yes || note "no Open MPI (Debian: openmpi-bin libopenmpi-dev): rows without it"
find_mpi mpich mpich libmpich-dev && mpich=yes || note "no MPICH (Debian: mpich libmpich-dev): rows without it"
python=$(find_torch) || { apt_get python3-torch && python=$(find_torch); } || { note "no PyTorch: rows without Gloo"; python=''; }
declare -A labels=([openmpi]="Open MPI $(mpirun.openmpi --version 2> /dev/null | sed -n '1s/.* //p')"
    [mpich]="MPICH $(mpichversion 2> /dev/null | awk '/Version/ { print $NF; exit }')"
    [gloo]="Gloo of PyTorch $([ -z "$python" ] || "$python" -c 'import torch; print(torch.__version__)')")
for ranks in 2 4; do
    wanted $(rows "$ranks") || continue
    for ((round = 0; round < rounds; round++)); do one_round "$ranks"; done
    add_rows "$ranks"
done
