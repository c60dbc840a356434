/* library - large bf16 products through cuBLASLt, at its speed and with our bits. At the first product of a shape every
 * algorithm that the library offers multiplies drawn operands of that shape. Its result is compared with that of our
 * own kernel, bit by bit; the fastest of those that agree is remembered. Where none agrees, or there is no library, our
 * own kernel stays. A file keeps what was found out for later processes, which compare a corner of one product. With
 * runtime.mode=fast nothing is compared or kept, and algorithms may split k: the fastest wins. */
#ifndef ASH_COMPUTE_CUDA_LIBRARY_H
#define ASH_COMPUTE_CUDA_LIBRARY_H

#include <stdbool.h>
#include "compute/cuda/host/backend_priv.h"

/* Open the library for a backend; without it nothing is wrong. */
void ash_cuda_library_open(struct ash_cuda_backend *backend);
/* Release it; never opened is fine. */
void ash_cuda_library_close(struct ash_cuda_backend *backend);
/* May the library compute a product like op? Its operands need not be there yet. */
bool ash_cuda_library_takes(const struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op);
/* Enqueue op through the library, where it is allowed to: returns false where our own kernel must do it. reference is
 * called at the first product of a shape, to multiply the drawn operands by our own kernel. */
bool ash_cuda_library_gemm(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op,
                           void (*reference)(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op));

#endif
