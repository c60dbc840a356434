#!/usr/bin/env bash
# Makes a folder that a machine with a GPU can use as it is, without a compiler or packages: x86-64 programs with the kernels in
# them, the libraries they need, the conformance tests, benchmarks and scripts/gpu_check.sh. On another machine than x86-64
# it builds across (Debian: as root it installs the compiler and the libraries of that architecture).
# usage: scripts/gpu_bundle.sh [FOLDER]     (default: build-gpu/bundle)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build-gpu/bundle}
library_packages=(libjansson-dev libyaml-dev libpcre2-dev libxxhash-dev libmicrohttpd-dev libutf8proc-dev zlib1g-dev libssl-dev libseccomp-dev libcmocka-dev)
toolchain=() libraries=/usr/lib/x86_64-linux-gnu

if [ "$(uname -m)" != x86_64 ]; then
    if ! command -v x86_64-linux-gnu-gcc > /dev/null || ! [ -e $libraries/pkgconfig/cmocka.pc ] || ! [ -e $libraries/pkgconfig/libseccomp.pc ]; then
        echo "gpu_bundle: installing a compiler and libraries for x86-64 with apt"
        dpkg --add-architecture amd64
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends gcc-x86-64-linux-gnu libc6-dev-amd64-cross \
            "${library_packages[@]/%/:amd64}" > /dev/null
    fi
    export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:/usr/share/pkgconfig
    toolchain=(-DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/x86_64.cmake")
fi
tests=$(cd tests/conform && ls test_*.c | sed 's/\.c$//')
cmake -S . -B build-gpu -G Ninja "${toolchain[@]}" > /dev/null
cmake --build build-gpu --target ashlar gpu gpu_decode golden gpu_logits gpu_share $tests

rm -rf "$out"
mkdir -p "$out/tests" "$out/lib" "$out/peers" "$out/goldens"
strip=$(command -v x86_64-linux-gnu-strip || echo strip)
for test in $tests; do "$strip" -o "$out/tests/$test" "build-gpu/tests/$test"; done
"$strip" -o "$out/golden" build-gpu/tests/golden
"$strip" -o "$out/gpu_logits" build-gpu/tests/gpu_logits
"$strip" -o "$out/gpu_share" build-gpu/tests/gpu_share
for config in tests/golden/*/config.json; do cp -r "$(dirname "$config")" "$out/goldens/"; done
cp -r tests/golden/gguf "$out/gguf"
cp examples/quickstart.yaml "$out/"
"$strip" -o "$out/ashlar" build-gpu/ashlar
for name in gpu gpu_decode; do "$strip" -o "$out/$name" "build-gpu/bench/$name"; done
cp scripts/gpu_check.sh scripts/gpu_serve.sh scripts/gpu_measure.sh "$out/"
cp bench/peers/gpu_ops.py bench/peers/gpu_loss.py bench/peers/random_model.py "$out/peers/"
# The libraries that the programs name, but for those of the C library, and what these name in turn.
objdump=$(command -v x86_64-linux-gnu-objdump || echo objdump)
needed() { "$objdump" -p "$1" | awk '$1 == "NEEDED" { print $2 }'; }
queue=$(for file in "$out"/ashlar "$out"/golden "$out"/gpu_logits "$out"/gpu_share "$out"/gpu "$out"/gpu_decode "$out"/tests/*; do needed "$file"; done | sort -u)
while [ -n "$queue" ]; do
    more=
    for name in $queue; do
        case $name in libc.so* | libm.so* | libdl.so* | libpthread.so* | ld-linux* | librt.so*) continue ;; esac
        [ -e "$out/lib/$name" ] && continue
        [ -e "$libraries/$name" ] || { echo "gpu_bundle: no $libraries/$name" >&2; exit 1; }
        cp -L "$libraries/$name" "$out/lib/"
        more+=" $(needed "$out/lib/$name")"
    done
    queue=$(tr ' ' '\n' <<< "$more" | sort -u | sed '/^$/d')
done
du -sh "$out"
