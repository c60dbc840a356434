/* cublaslt - the vendor's matrix products, opened at run time where the library is found; the declarations are our own.
 * Products without split k keep one chain of steps (compute/ref/wgmma.h), or not: which of the offered algorithms do is
 * the caller's to check. */
#ifndef ASH_INFRA_DEVICE_CUBLASLT_H
#define ASH_INFRA_DEVICE_CUBLASLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_LT_ALGOS_MAX 8
#define ASH_LT_WORKSPACE_BYTES ((size_t)32 << 20)

/* How a product is computed, as the library says it. */
struct ash_lt_algo {
    uint64_t data[8];
};

/* c[M, N] = a[M, K] b[N, K]^T (+ add[M, N], once, after the last k): a and b are bf16 lines of k with strides in
 * elements, add is float32, c float32 or bf16 (not with add). An operand may also lie as columns: k lines, of a[K, M]
 * or b[K, N], with the stride from k to k. */
struct ash_lt_shape {
    size_t M, N, K, a_stride, b_stride, c_stride;
    size_t a_columns, b_columns, c_is_bf16; /* 0 or 1 */
    size_t add_stride;                      /* 0: nothing is added */
};

/* Where they are on the GPU, and ASH_LT_WORKSPACE_BYTES to work in. Borrowed. */
struct ash_lt_operands {
    const void *a, *b;
    const float *add; /* or NULL */
    void *c;
    void *workspace;
};

struct ash_lt;

/* Open the library. It offers no algorithm that adds up parts of k in the end. Returns 0, or -ENOENT saying where
 * it was looked for. The caller owns *lt_out. */
int ash_lt_open(struct ash_lt **lt_out, struct ash_err *err);
/* The library's version, as it numbers itself. */
uint64_t ash_lt_version(const struct ash_lt *lt);
/* Close it; NULL is a no-op. */
void ash_lt_close(struct ash_lt *lt);
/* Algorithms for a shape, the likely best first. Returns how many, at most ASH_LT_ALGOS_MAX. */
size_t ash_lt_find(struct ash_lt *lt, const struct ash_lt_shape *shape, struct ash_lt_algo *algos_out);
/* Enqueue a product on a queue (a CUDA stream). Returns 0 or -EIO. */
int ash_lt_multiply(struct ash_lt *lt, const struct ash_lt_shape *shape, const struct ash_lt_algo *algo,
                    const struct ash_lt_operands *operands, void *stream);

#endif
