/* detect - which of the vectorised backends this machine can run. */
#ifndef ASH_COMPUTE_CPU_DETECT_H
#define ASH_COMPUTE_CPU_DETECT_H

#include <stdbool.h>

#if defined(__aarch64__)
bool ash_cpu_has_bf16(void); /* FEAT_BF16 */
#elif defined(__x86_64__)
bool ash_cpu_has_avx2(void);   /* AVX2, FMA and F16C */
bool ash_cpu_has_avx512(void); /* AVX-512 F, BW, VL and DQ */
bool ash_cpu_has_amx(void);    /* tiles for bf16, and AVX-512 with BF16 */
#endif

#endif
