/* gemm_small_m - the kernel of products with few rows of x (small M): a step of decoding. It is bound by reading
 * weights, so it reads each once, from where it lies. The driver (project_body.h) norms x, splits the weights over
 * threads and runs the epilogue. */
#ifndef ASH_COMPUTE_GEMM_SMALL_M_H
#define ASH_COMPUTE_GEMM_SMALL_M_H

#include "compute/ops.h"

#define ASH_SMALL_M_ROWS 8  /* rows of x that share a pass over the weights, where a kernel wants no more */
#define ASH_SMALL_M_COLS 16 /* rows of w that a kernel may take at once */

/* Rows of a weight and where their sums go: sums[m * sums_stride + i] for row first + i of w, i < count. The stride has
 * room for count rounded up to a multiple of ASH_SMALL_M_COLS: the padding is written, and not read. */
struct ash_small_m {
    const struct ash_weight *w; /* its k are adjacent, or it is packed */
    size_t M, K;
    const void *left; /* written by prepare */
    bool round_bf16;
    size_t first, count; /* first is a multiple of ASH_PACK_ROWS */
    float *sums;
    size_t sums_stride;
};

struct ash_small_m_kernel {
    size_t group_rows;  /* of x, which share a pass over the weights */
    size_t packed_rows; /* the same where all of those are packed */
    size_t groups_max;  /* of rows, at most: up to here it is faster than the product for large M */
    /* Bytes of M rows of x as prepare() writes them; grows with M. M is at most group_rows or packed_rows. */
    size_t (*left_bytes)(size_t M, size_t K);
    /* Lay x [M, K], rows adjacent, out as sums() reads it. */
    void (*prepare)(const float *x, size_t M, size_t K, bool round_bf16, void *left);
    /* The products of a job. */
    void (*sums)(const struct ash_small_m *job);
    /* Any number of rows times rows first ... first + args->N - 1 of a packed weight (args->b.data). first is a
     * multiple of ASH_PACK_ROWS. NULL: this kernel reads nothing packed. */
    void (*packed_gemm)(struct ash_exec *exec, const struct ash_gemm_args *args, size_t first);
    /* As those of ash_matrix_ops, for weights that are floats. NULL: likewise. */
    size_t (*packed_bytes)(size_t N, size_t K);
    void (*pack)(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count, void *packed);
};

/* A weight packed for BFMMLA: panels of rows one after the other, the last padded with zeros; in a panel, the rows'
 * first four k side by side, then their next. */
#define ASH_BFMMLA_PANEL 4

#if defined(__x86_64__)
extern const struct ash_small_m_kernel ash_small_m_amx; /* for round_bf16 alone */
#elif defined(__aarch64__)
extern const struct ash_small_m_kernel ash_small_m_bfmmla; /* for round_bf16 alone */
/* ash_small_m_kernel.packed_gemm of it. */
void ash_gemm_bfmmla_packed(struct ash_exec *exec, const struct ash_gemm_args *args, size_t first);
#endif

#endif
