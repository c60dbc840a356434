#!/usr/bin/env bash
# Kernels compile for every documented GPU: here those whose instructions not every GPU has. All of them:
# scripts/cuda_targets.sh, half an hour on two cores.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$NVCC" ] || exit 77
export NVCC
out=$(bash "$SOURCE/scripts/cuda_targets.sh" "$SOURCE"/src/compute/cuda/{trial/trial,gemm/gemm_mma}.cu) || fail "$out"
[[ $out == "2 files compile for 80 89 90a 100 103 120" ]] || fail "$out"
echo '__global__ void broken() { asm("no instruction;"); }' > "$SCRATCH/broken.cu"
out=$(bash "$SOURCE/scripts/cuda_targets.sh" -t 80 "$SCRATCH/broken.cu") && fail "a file with a mistake compiles"
[[ $out == *"broken.cu for 80:"* ]] || fail "$out"
finish
