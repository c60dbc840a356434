/* quant_priv - products with a quantised matrix that is not packed: what the driver (quant.c) gives to a kernel. A
 * kernel is a file of its own, compiled for its instructions and chosen at run time. */
#ifndef ASH_COMPUTE_QUANT_PRIV_H
#define ASH_COMPUTE_QUANT_PRIV_H

#include "base/math.h"
#include "compute/ops.h"

#define ASH_QUANT_MC 64 /* rows of x that are quantised together: they stay in L2 */
#define ASH_QUANT_NR 4  /* rows of w that a kernel takes together: neighbours in a vector of sums */

/* Quantised rows of x, from row `first` on.
 * Plain layout: q is [rows, blocks, 32], scale [rows, groups], sum (of a sub-block's q) [rows, blocks, 2].
 * i8mm layout, for instructions that multiply 2 x 8 by 8 x 2: q is [rows / 2, blocks, 4, 2, 8], scale is
 * [rows / 2, groups, 4], each row's twice, with a row of zeros after an odd last one; no sum. */
struct ash_quant_rows {
    size_t first, rows, blocks, groups;
    size_t group_blocks; /* a row's last group may have fewer */
    const int8_t *q;
    const float *scale;
    const int32_t *sum;
};

/* Blocks of this group. */
static inline size_t ash_quant_rows_blocks(const struct ash_quant_rows *x, size_t group)
{
    size_t left = x->blocks - group * x->group_blocks;

    return ash_min(left, x->group_blocks);
}

/* y for all rows of x and rows [begin, end) of w; begin is a multiple of ASH_QUANT_NR. */
typedef void (*ash_quant_kernel_fn)(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin,
                                    size_t end);

/* Where the rows of w from n on begin, ASH_QUANT_NR of them; where there are fewer, the last is repeated. */
static inline void ash_quant_w_rows(const struct ash_quant_args *args, size_t n, size_t count, const uint8_t **rows_out)
{
    size_t row_bytes = ash_dtype_size(args->dtype, args->K);

    for (size_t i = 0; i < ASH_QUANT_NR; i++)
        rows_out[i] = (const uint8_t *)args->w + (n + (i < count ? i : count - 1)) * row_bytes;
}

/* Is it one of the types whose sub-blocks and minimums quant_open.h reads? */
static inline bool ash_quant_is_open(enum ash_dtype dtype)
{
    return dtype != ASH_Q8_0 && dtype != ASH_Q8_W && dtype != ASH_Q4_0;
}

/* function(type, ...) for dtype, one of these types: it is compiled for each. */
#define ASH_QUANT_OPEN_CASE(type, function, ...)                                                                       \
    case type:                                                                                                         \
        function(type, __VA_ARGS__);                                                                                   \
        break;
#define ASH_QUANT_OPEN_CALL(dtype, function, ...)                                                                      \
    switch (dtype) {                                                                                                   \
        ASH_QUANT_OPEN_CASE(ASH_Q4_1, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q5_0, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q5_1, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q2_K, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q3_K, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q4_K, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q5_K, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_Q6_K, function, __VA_ARGS__)                                                           \
        ASH_QUANT_OPEN_CASE(ASH_IQ4_NL, function, __VA_ARGS__)                                                         \
        ASH_QUANT_OPEN_CASE(ASH_IQ4_XS, function, __VA_ARGS__)                                                         \
        ASH_QUANT_OPEN_CASE(ASH_MXFP4, function, __VA_ARGS__)                                                          \
    default:                                                                                                           \
        break;                                                                                                         \
    }

/* Where the chains of row m of x and count rows of w from n on start: 0, or y. */
static inline void ash_quant_load_sums(const struct ash_quant_args *args, size_t m, size_t n, size_t count, float *sums)
{
    for (size_t i = 0; i < ASH_QUANT_NR; i++)
        sums[i] = args->accumulate && i < count ? args->y[m * args->y_stride + n + i] : 0.0f;
}

/* Store their ends to y, with bias. */
static inline void ash_quant_store_sums(const struct ash_quant_args *args, size_t m, size_t n, size_t count,
                                        const float *sums)
{
    float *y = args->y + m * args->y_stride + n;

    for (size_t i = 0; i < count; i++)
        y[i] = args->bias != NULL ? sums[i] + args->bias[n + i] : sums[i];
}

/* The kernels of packed weights of a type that the backend of ops uses here (quant_panels.h), or NULL: then weights are
 * not packed. Kernels of one backend file have one layout; ops NULL: any of them. */
struct ash_quant_panels;
static inline const struct ash_quant_panels *ash_quant_panels_none(const struct ash_ops *ops, enum ash_dtype dtype)
{
    (void)ops;
    (void)dtype;
    return NULL;
}

/* ash_matrix_ops.quant_gemm in plain C: what every other one equals bit for bit. */
void ash_quant_gemm_plain(struct ash_exec *exec, const struct ash_quant_args *args);
#if defined(__aarch64__)
/* The kernels of packed weights that the arm64 backend of ops uses (see ash_quant_panels_none). */
const struct ash_quant_panels *ash_quant_panels_neon(const struct ash_ops *ops, enum ash_dtype dtype);
/* ash_matrix_ops.quant_gemm with the best of SMMLA, SDOT and plain C that this processor has. */
void ash_quant_gemm_neon(struct ash_exec *exec, const struct ash_quant_args *args);
/* ash_quant_kernel_fn with SDOT. */
void ash_quant_kernel_dot(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end);
/* The same for the types of quant_open.h, with SDOT. */
void ash_quant_kernel_open_dot(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin,
                               size_t end);
/* ash_quant_kernel_fn with SMMLA; rows of x are interleaved by two. */
void ash_quant_kernel_i8mm(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end);
#elif defined(__x86_64__)
/* The kernels of packed weights that the AVX-512 backend of ops uses (see ash_quant_panels_none). */
const struct ash_quant_panels *ash_quant_panels_avx512(const struct ash_ops *ops, enum ash_dtype dtype);
/* ash_matrix_ops.quant_gemm with AVX2. */
void ash_quant_gemm_avx2(struct ash_exec *exec, const struct ash_quant_args *args);
/* ash_quant_kernel_fn with AVX2. */
void ash_quant_kernel_avx2(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end);
#endif

#endif
