/* kernel - what one kernel costs on one GPU: a roofline with the efficiency that its shape allows. */
#ifndef ASH_PLAN_KERNEL_H
#define ASH_PLAN_KERNEL_H

#include <stdbool.h>
#include "infra/catalog.h"
#include "plan/consts.h"

/* Seconds of `groups` products [m, k] x [k, n] in one launch, inputs in `precision`, output bf16. */
double ash_kernel_gemm(const struct ash_consts *consts, const struct ash_gpu *gpu, enum ash_gpu_precision precision,
                       double groups, double at_once, double m, double n, double k);
/* The FLOP/s of a product so large that no shape matters. */
double ash_kernel_gemm_rate(const struct ash_consts *consts, const struct ash_gpu *gpu,
                            enum ash_gpu_precision precision);
/* Seconds of flash attention forward that does `flops` over sequences of seq_tokens with heads of head_dim;
 * new_attention: kernels made for the GPU's generation. */
double ash_kernel_attention(const struct ash_consts *consts, const struct ash_gpu *gpu, bool new_attention,
                            double flops, double seq_tokens, double head_dim);
/* Seconds to move bytes through HBM by element-wise kernels. */
double ash_kernel_memory(const struct ash_consts *consts, const struct ash_gpu *gpu, double bytes);
/* Bytes of one element in a matrix product. */
double ash_gpu_precision_bytes(enum ash_gpu_precision precision);

#endif
