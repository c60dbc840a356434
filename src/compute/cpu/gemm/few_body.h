/* few_body - products of few rows of one instruction set, as chains of fused multiply-adds; see few.h. Include after
 * pack_body.h. Elements of a row of w are adjacent, so four rows are turned over in registers, 4 x 4 at a time, and
 * serve all rows of x. */
#ifndef ASH_COMPUTE_FEW_BODY_H
#define ASH_COMPUTE_FEW_BODY_H

#include "compute/cpu/gemm/few.h"

#define FEW_QUADS 4                            /* quads of rows of w side by side, for one or two rows of x */
#define FEW_QUADS_MANY (VF_WIDTH == 8 ? 1 : 2) /* for more: they need the registers */

/* Rows of x that a kernel is compiled for. */
static size_t few_rows(size_t M)
{
    return M <= 2 ? M : M <= 4 ? 4 : ASH_FEW_ROWS;
}

static size_t few_left_bytes(size_t M, size_t K)
{
    return few_rows(M) * K * sizeof(float);
}

static void few_prepare(const float *x, size_t M, size_t K, bool round_bf16, void *left)
{
    float *out = left;
    size_t i = 0;

    for (; i + 4 <= M * K; i += 4)
        quad_store(out + i, pack_quad(x, ASH_F32, round_bf16, i));
    for (; i < M * K; i++)
        out[i] = pack_read(x, ASH_F32, round_bf16, i);
    memset(out + M * K, 0, (few_rows(M) - M) * K * sizeof(*out));
}

/* The chains of some rows of w from k on, one element at a time. */
static void few_tail(const struct ash_few *job, size_t k, const size_t *at, size_t count, size_t row)
{
    const struct ash_mat *mat = &job->w->mat;
    const float *x = job->left;

    for (size_t m = 0; m < job->M; m++)
        for (size_t i = 0; i < count; i++) {
            float *sum = &job->sums[m * job->sums_stride + row + i];

            for (size_t j = k; j < job->K; j++)
                *sum = fmaf(x[m * job->K + j], pack_read(mat->data, mat->dtype, job->round_bf16, at[i] + j), *sum);
        }
}

/* 4 * quads rows of w from row on, for rows rows of x. Where there are fewer, the last is computed again, for nobody.
 */
INLINE void few_quads(const struct ash_few *job, enum ash_dtype dtype, bool round, size_t rows, size_t quads,
                      size_t row)
{
    const struct ash_mat *mat = &job->w->mat;
    static const float zeros[4];
    const float *x = job->left;
    size_t at[4 * FEW_QUADS], k = 0;
    quad acc[ASH_FEW_ROWS][FEW_QUADS];

    for (size_t i = 0; i < 4 * quads; i++)
        at[i] = (job->first + (row + i < job->count ? row + i : job->count - 1)) * mat->col_stride;
    UNROLL
    for (size_t m = 0; m < rows; m++)
        UNROLL for (size_t q = 0; q < quads; q++) acc[m][q] = quad_load(zeros);
    for (; k + 4 <= job->K; k += 4)
        UNROLL for (size_t q = 0; q < quads; q++)
        {
            quad block[4];

            UNROLL for (size_t i = 0; i < 4; i++) block[i] = pack_quad(mat->data, dtype, round, at[4 * q + i] + k);
            quad_transpose(block);
            UNROLL
            for (size_t m = 0; m < rows; m++) {
                quad left = quad_load(x + m * job->K + k);

                UNROLL for (size_t i = 0; i < 4; i++) acc[m][q] = quad_fma_lane(acc[m][q], block[i], left, (int)i);
            }
        }
    UNROLL
    for (size_t m = 0; m < rows; m++)
        UNROLL for (size_t q = 0; q < quads; q++) if (m < job->M)
            quad_store(job->sums + m * job->sums_stride + row + 4 * q, acc[m][q]);
    if (k < job->K) few_tail(job, k, at, 4 * quads, row);
}

INLINE void few_as(const struct ash_few *job, enum ash_dtype dtype, bool round)
{
    const struct ash_few local = *job; /* sums may alias it as far as the compiler knows */
    size_t rows = few_rows(job->M), quads = rows <= 2 ? FEW_QUADS : FEW_QUADS_MANY;

    for (size_t row = 0; row < job->count; row += 4 * quads)
        if (rows == 1)
            few_quads(&local, dtype, round, 1, FEW_QUADS, row);
        else if (rows == 2)
            few_quads(&local, dtype, round, 2, FEW_QUADS, row);
        else if (rows == 4)
            few_quads(&local, dtype, round, 4, FEW_QUADS_MANY, row);
        else
            few_quads(&local, dtype, round, ASH_FEW_ROWS, FEW_QUADS_MANY, row);
}

static void few_sums(const struct ash_few *job)
{
    bool round = job->round_bf16;

    ash_assert(!job->w->packed);
    if (job->w->mat.dtype == ASH_BF16)
        few_as(job, ASH_BF16, false);
    else if (job->w->mat.dtype == ASH_F16)
        few_as(job, ASH_F16, round);
    else if (round)
        few_as(job, ASH_F32, true);
    else
        few_as(job, ASH_F32, false);
}

static const struct ash_few_kernel few_kernel = {.group_rows = ASH_FEW_ROWS,
                                                 .packed_rows = ASH_FEW_ROWS,
                                                 .groups_max = 1,
                                                 .left_bytes = few_left_bytes,
                                                 .prepare = few_prepare,
                                                 .sums = few_sums};

#endif
