#!/usr/bin/env bash
# What the compiler says of the GPU's kernels: no kernel spills registers or keeps a stack frame, and none takes more registers
# than the threads of its block can have. attn_keys_tiled_128 may spill 32 bytes: its sums and weights take all 224 registers of
# a thread. Skipped where the build has no nvcc.
set -euo pipefail
shopt -s nullglob
reports=("$BUILD"/generated/*.ptxas)
[ ${#reports[@]} -gt 0 ] || exit 77
awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; kernels++ }
    /bytes stack frame/ && !/^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/ {
        if (kernel != "attn_keys_tiled_128" || $5 > 32) { print kernel ": " $0; bad++ }
    }
    /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); if (substr($0, RSTART + 5, RLENGTH - 5) + 0 > 255) { print kernel ": " $0; bad++ } }
    END { print kernels + 0 " kernels, " bad + 0 " complaints"; exit kernels == 0 || bad > 0 }' "${reports[@]}"
# Every kernel of the list is compiled.
for name in $(sed -n 's/^KERNEL([a-z0-9_]*, \([a-z0-9_]*\))$/\1/p' "$SOURCE/src/compute/cuda/host/kernels_list.h"); do
    grep -q "entry function '$name'" "${reports[@]}" || { echo "kernel $name is in no image"; exit 1; }
done
