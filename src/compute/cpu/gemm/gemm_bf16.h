/* gemm_bf16 - products with instructions made for bf16. */
#ifndef ASH_COMPUTE_CPU_GEMM_BF16_H
#define ASH_COMPUTE_CPU_GEMM_BF16_H

#include "compute/ops.h"

#if defined(__aarch64__)
/* The product of args with operands rounded to bf16 and sums as BFMMLA makes them, whatever round_bf16 says. */
void ash_gemm_bfmmla(struct ash_exec *exec, const struct ash_gemm_args *args);
#elif defined(__x86_64__)
/* The product of args with operands rounded to bf16 and sums as TDPBF16PS makes them, whatever round_bf16 says. */
void ash_gemm_amx(struct ash_exec *exec, const struct ash_gemm_args *args);
#endif

#endif
