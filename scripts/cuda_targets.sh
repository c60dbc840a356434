#!/usr/bin/env bash
# Do the kernels compile for every GPU that the documentation names? Each src/compute/cuda/*/*.cu for each target.
# usage: cuda_targets.sh [-t "80 90a ..."] [FILE.cu...]; all targets and all files without. NVCC names the compiler.
set -u
cd "$(dirname "$0")/.." || exit 1
targets="80 89 90a 100 103 120"
[ "${1:-}" != -t ] || { targets=$2 && shift 2; }
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "cuda_targets: there is no nvcc: set NVCC to its path"; exit 77; }
[ $# -gt 0 ] || set -- src/compute/cuda/*/*.cu
out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT

# compile TARGET FILE: an image, or the compiler's words
compile() {
    "$nvcc" -std=c++17 -O3 --fmad=false -cubin -arch="sm_$1" -Isrc -Iinclude "$2" -o "$out/$1.cubin" > "$out/$1.txt" 2>&1 ||
        { echo "$2 for $1:" && grep -m 3 error "$out/$1.txt"; }
}

for file in "$@"; do
    for target in $targets; do
        compile "$target" "$file"
    done
done > "$out/failures"
cat "$out/failures"
[ ! -s "$out/failures" ] || exit 1
echo "$# files compile for $targets"
