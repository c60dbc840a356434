/* cpu_priv - the tables of the vectorised backends, and whether this machine can run them. */
#ifndef ASH_COMPUTE_CPU_PRIV_H
#define ASH_COMPUTE_CPU_PRIV_H

#include <stdbool.h>
#include "compute/ops.h"

extern const struct ash_ops ash_ops_portable; /* runs everywhere */
#if defined(__aarch64__)
extern const struct ash_ops ash_ops_neon; /* every arm64 machine */
#elif defined(__x86_64__)
extern const struct ash_ops ash_ops_avx2;
extern const struct ash_ops ash_ops_avx512;
bool ash_cpu_has_avx2(void);   /* AVX2, FMA and F16C */
bool ash_cpu_has_avx512(void); /* AVX-512 F, BW, VL and DQ */
#endif

#endif
