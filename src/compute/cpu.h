/* cpu - the tables of the vectorised backends, and whether this machine can run them. */
#ifndef ASH_COMPUTE_CPU_H
#define ASH_COMPUTE_CPU_H

#include <stdbool.h>
#include "compute/ops.h"

extern const struct ash_ops ash_ops_portable;      /* runs everywhere */
extern const struct ash_sample_ops ash_cpu_sample; /* sample.c: of every table here */
#if defined(__aarch64__)
extern const struct ash_ops ash_ops_neon; /* every arm64 machine */
extern const struct ash_ops ash_ops_neon_bf16;
bool ash_cpu_has_bf16(void); /* FEAT_BF16 */
/* The product of args with operands rounded to bf16 and sums as BFMMLA makes them, whatever round_bf16 says. */
void ash_gemm_bfmmla(struct ash_exec *exec, const struct ash_gemm_args *args);
#elif defined(__x86_64__)
extern const struct ash_ops ash_ops_avx2;
extern const struct ash_ops ash_ops_avx512;
bool ash_cpu_has_avx2(void); /* AVX2, FMA and F16C */
extern const struct ash_ops ash_ops_amx;
bool ash_cpu_has_avx512(void); /* AVX-512 F, BW, VL and DQ */
bool ash_cpu_has_amx(void);    /* tiles for bf16, and AVX-512 with BF16 */
/* The product of args with operands rounded to bf16 and sums as TDPBF16PS makes them, whatever round_bf16 says. */
void ash_gemm_amx(struct ash_exec *exec, const struct ash_gemm_args *args);
#endif

#endif
