/* gemm_fp8 - products of e4m3 on CPUs, which have no instruction for them. */
#ifndef ASH_COMPUTE_CPU_GEMM_FP8_H
#define ASH_COMPUTE_CPU_GEMM_FP8_H

#include "compute/ops.h"

/* ash_matrix_ops.gemm of a product of e4m3: the bits of ref/gemm_fp8.c. */
void ash_cpu_gemm_fp8(struct ash_exec *exec, const struct ash_gemm_args *args);

#endif
