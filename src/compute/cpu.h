/* cpu - the tables of the vectorised backends. */
#ifndef ASH_COMPUTE_CPU_H
#define ASH_COMPUTE_CPU_H

#include "compute/ops.h"

extern const struct ash_ops ash_ops_portable;      /* runs everywhere */
extern const struct ash_sample_ops ash_cpu_sample; /* sample.c: of every table here */
#if defined(__aarch64__)
extern const struct ash_ops ash_ops_neon; /* every arm64 machine */
extern const struct ash_ops ash_ops_neon_bf16;
#elif defined(__x86_64__)
extern const struct ash_ops ash_ops_avx2;
extern const struct ash_ops ash_ops_avx512;
extern const struct ash_ops ash_ops_amx;
#endif

#endif
