/* bfmmla_mapped - a small-M bf16 product with columns whose elements are adjacent, as weights lie in a mapped file: the
 * steps of decoding. Each weight is read once, in place; pairs of columns become operands in registers. */
#ifndef ASH_COMPUTE_BFMMLA_MAPPED_H
#define ASH_COMPUTE_BFMMLA_MAPPED_H

#include "base/math.h"
#include "compute/cpu/gemm/bfmmla_pack.h"
#include "compute/ops.h"

#define MAPPED_ROWS_MAX 8   /* rows of such a product */
#define MAPPED_K_BLOCK 4096 /* k whose left operand is packed at once */
#define MAPPED_COLS_MAX 16  /* columns of a unit */
#define MAPPED_ACC_MAX 16

/* The product over a block of k, the rows of which are packed. */
struct mapped_block {
    const struct ash_gemm_args *args;
    const uint16_t *left;
    size_t cols; /* of a unit */
    size_t k, k_count;
};

static bool mapped_gemm_fits(const struct ash_gemm_args *args)
{
    return args->M <= MAPPED_ROWS_MAX && args->b.row_stride == 1;
}

INLINE float32x4_t multiply(float32x4_t acc, uint16x8_t a, uint16x8_t b)
{
    return vbfmmlaq_f32(acc, vreinterpretq_bf16_u16(a), vreinterpretq_bf16_u16(b));
}

/* pairs_a pairs of rows times pairs_b pairs of columns, k by k. at[j] is where the block's k begin in column j. */
INLINE void mapped_chain(const struct mapped_block *block, enum ash_dtype dtype, size_t pairs_a, size_t pairs_b,
                         const size_t *at, float32x4_t *acc)
{
    const void *data = block->args->b.data;
    const uint16_t *a = block->left;
    size_t k = 0;

    for (; k + 2 * GROUP <= block->k_count; k += 2 * GROUP, a += 4 * pairs_a * GROUP)
        UNROLL for (size_t j = 0; j < pairs_b; j++)
        {
            uint64x2_t x = vreinterpretq_u64_u16(pack_load8(data, dtype, at[2 * j] + k));
            uint64x2_t y = vreinterpretq_u64_u16(pack_load8(data, dtype, at[2 * j + 1] + k));
            uint16x8_t first = vreinterpretq_u16_u64(vtrn1q_u64(x, y)), next = vreinterpretq_u16_u64(vtrn2q_u64(x, y));

            UNROLL for (size_t i = 0; i < pairs_a; i++) acc[i * pairs_b + j] =
                multiply(multiply(acc[i * pairs_b + j], vld1q_u16(a + 2 * i * GROUP), first),
                         vld1q_u16(a + 2 * (pairs_a + i) * GROUP), next);
        }
    for (; k < block->k_count; k += GROUP, a += 2 * pairs_a * GROUP)
        UNROLL for (size_t j = 0; j < pairs_b; j++)
        {
            uint16_t b[2 * GROUP] = {0};

            for (size_t i = 0; i < GROUP && k + i < block->k_count; i++) {
                b[i] = pack_load1(data, dtype, at[2 * j] + k + i);
                b[GROUP + i] = pack_load1(data, dtype, at[2 * j + 1] + k + i);
            }
            UNROLL for (size_t i = 0; i < pairs_a; i++) acc[i * pairs_b + j] =
                multiply(acc[i * pairs_b + j], vld1q_u16(a + 2 * i * GROUP), vld1q_u16(b));
        }
}

/* The columns from n on. Where there are fewer than a unit has, the last one is computed again and not stored. */
INLINE void mapped_unit(const struct mapped_block *block, enum ash_dtype dtype, size_t pairs_a, size_t pairs_b,
                        size_t n)
{
    const struct ash_gemm_args *args = block->args;
    size_t count = ash_min(args->N - n, 2 * pairs_b), at[MAPPED_COLS_MAX];
    float sums[MAPPED_ACC_MAX][4] = {{0}};
    float32x4_t acc[MAPPED_ACC_MAX];

    for (size_t j = 0; j < 2 * pairs_b; j++)
        at[j] = (n + (j < count ? j : count - 1)) * args->b.col_stride + block->k;
    for (size_t r = 0; r < args->M && (args->accumulate || block->k > 0); r++)
        for (size_t j = 0; j < count; j++)
            sums[r / 2 * pairs_b + j / 2][r % 2 * 2 + j % 2] = args->c[r * args->c_stride + n + j];
    UNROLL
    for (size_t i = 0; i < pairs_a * pairs_b; i++)
        acc[i] = vld1q_f32(sums[i]);
    mapped_chain(block, dtype, pairs_a, pairs_b, at, acc);
    UNROLL
    for (size_t i = 0; i < pairs_a * pairs_b; i++)
        vst1q_f32(sums[i], acc[i]);
    for (size_t r = 0; r < args->M; r++)
        for (size_t j = 0; j < count; j++) {
            float sum = sums[r / 2 * pairs_b + j / 2][r % 2 * 2 + j % 2];
            bool last = args->bias != NULL && block->k + block->k_count == args->K;

            args->c[r * args->c_stride + n + j] = last ? sum + args->bias[n + j] : sum;
        }
}

INLINE void mapped_as(const struct mapped_block *block, enum ash_dtype dtype, size_t begin, size_t end)
{
    const struct mapped_block local = *block;

    for (size_t unit = begin; unit < end; unit++)
        if (local.args->M <= 2)
            mapped_unit(&local, dtype, 1, 8, unit * local.cols);
        else
            mapped_unit(&local, dtype, 4, 4, unit * local.cols);
}

static void mapped_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct mapped_block *block = ctx;

    (void)worker;
    if (block->args->b.dtype == ASH_BF16)
        mapped_as(block, ASH_BF16, begin, end);
    else if (block->args->b.dtype == ASH_F16)
        mapped_as(block, ASH_F16, begin, end);
    else
        mapped_as(block, ASH_F32, begin, end);
}

static void mapped_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct mapped_block block = {.args = args, .cols = args->M <= 2 ? 16 : 8};
    size_t lines = args->M <= 2 ? 2 : 8;
    uint16_t *left =
        ash_exec_scratch(exec, 0, MAPPED_ROWS_MAX * MAPPED_K_BLOCK * sizeof(*left)); /* the units use none of theirs */

    block.left = left;
    do {
        struct pack rows = {.data = pack_at(args->a.data, args->a.dtype, block.k * args->a.col_stride),
                            .dtype = args->a.dtype,
                            .line_stride = args->a.row_stride,
                            .k_stride = args->a.col_stride,
                            .count = args->M};

        block.k_count = ash_min(args->K - block.k, MAPPED_K_BLOCK);
        rows.k_count = block.k_count;
        pack_block(&rows, left, lines);
        ash_workers_run(exec->workers, ash_div_up(args->N, block.cols), 1, mapped_units, &block);
        block.k += block.k_count;
    } while (block.k < args->K);
}

#endif
