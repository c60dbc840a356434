/* library - large bf16 products through cuBLASLt, at its speed and with our bits. At the first product of a shape every
 * algorithm that the library offers multiplies drawn operands: all k, and as many lines as TRIAL_BYTES hold. Its result
 * is compared with that of our own kernel, bit by bit; the fastest of those that agree is remembered. Where none
 * agrees, or there is no library, our own kernel stays. A file keeps what was found out for later processes, which
 * compare a corner of one product. */
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
/* Our own kernel for a product. */
typedef void (*ash_cuda_own_gemm)(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op);
/* Does the library compute a product like op, with our bits and faster? Its operands need not be there yet. At the
 * first product of a shape this tries it, and writes op's c: own multiplies the drawn operands. */
bool ash_cuda_library_knows(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op, ash_cuda_own_gemm own);
/* Enqueue a product that it knows. On false the library could not, and knows it no longer. */
bool ash_cuda_library_gemm(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op);
/* How many of an operand's count lines are drawn; each has k values. */
size_t ash_cuda_library_tried(size_t count, size_t k);

#endif
