/* gemm_small_m_body - small-M products of one instruction set, as chains of fused multiply-adds; see gemm_small_m.h.
 * Elements of a row of w are adjacent, so four rows are transposed in registers, 4 x 4 at a time, and serve all rows of
 * x. */
#ifndef ASH_COMPUTE_GEMM_SMALL_M_BODY_H
#define ASH_COMPUTE_GEMM_SMALL_M_BODY_H

#ifndef ASH_COMPUTE_PACK_BODY_H
#error "include pack_body.h first"
#endif

#include "compute/cpu/gemm/gemm_small_m.h"

#define SMALL_M_VECS 4                           /* vectors of 4 rows of w at once, for one or two rows of x */
#define SMALL_M_VECS_MIN (VF_WIDTH == 8 ? 1 : 2) /* for more rows: they need the registers */

/* Rows of x that a kernel is compiled for. */
static size_t small_m_rows(size_t M)
{
    return M <= 2 ? M : M <= 4 ? 4 : ASH_SMALL_M_ROWS;
}

static size_t small_m_left_bytes(size_t M, size_t K)
{
    return small_m_rows(M) * K * sizeof(float);
}

static void small_m_prepare(const float *x, size_t M, size_t K, bool round_bf16, void *left)
{
    float *out = left;
    size_t i = 0;

    for (; i + 4 <= M * K; i += 4)
        f32x4_store(out + i, pack_f32x4(x, ASH_F32, round_bf16, i));
    for (; i < M * K; i++)
        out[i] = pack_read(x, ASH_F32, round_bf16, i);
    memset(out + M * K, 0, (small_m_rows(M) - M) * K * sizeof(*out));
}

/* The chains of some rows of w from k on, one element at a time. */
static void small_m_tail(const struct ash_small_m *job, size_t k, const size_t *at, size_t count, size_t row)
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

/* 4 * vecs rows of w from row on, for rows rows of x. Where there are fewer, the last is repeated and not used. */
INLINE void small_m_vecs(const struct ash_small_m *job, enum ash_dtype dtype, bool round, size_t rows, size_t vecs,
                         size_t row)
{
    const struct ash_mat *mat = &job->w->mat;
    static const float zeros[4];
    const float *x = job->left;
    size_t at[4 * SMALL_M_VECS], k = 0;
    f32x4 acc[ASH_SMALL_M_ROWS][SMALL_M_VECS];

    for (size_t i = 0; i < 4 * vecs; i++)
        at[i] = (job->first + (row + i < job->count ? row + i : job->count - 1)) * mat->col_stride;
    UNROLL
    for (size_t m = 0; m < rows; m++)
        UNROLL for (size_t q = 0; q < vecs; q++) acc[m][q] = f32x4_load(zeros);
    for (; k + 4 <= job->K; k += 4)
        UNROLL for (size_t q = 0; q < vecs; q++)
        {
            f32x4 block[4];

            UNROLL for (size_t i = 0; i < 4; i++) block[i] = pack_f32x4(mat->data, dtype, round, at[4 * q + i] + k);
            f32x4_transpose(block);
            UNROLL
            for (size_t m = 0; m < rows; m++) {
                f32x4 left = f32x4_load(x + m * job->K + k);

                UNROLL for (size_t i = 0; i < 4; i++) acc[m][q] = f32x4_fma_lane(acc[m][q], block[i], left, (int)i);
            }
        }
    UNROLL
    for (size_t m = 0; m < rows; m++)
        UNROLL for (size_t q = 0; q < vecs; q++) if (m < job->M)
            f32x4_store(job->sums + m * job->sums_stride + row + 4 * q, acc[m][q]);
    if (k < job->K) small_m_tail(job, k, at, 4 * vecs, row);
}

INLINE void small_m_as(const struct ash_small_m *job, enum ash_dtype dtype, bool round)
{
    const struct ash_small_m local = *job; /* sums may alias it as far as the compiler knows */
    size_t rows = small_m_rows(job->M), vecs = rows <= 2 ? SMALL_M_VECS : SMALL_M_VECS_MIN;

    for (size_t row = 0; row < job->count; row += 4 * vecs)
        if (rows == 1)
            small_m_vecs(&local, dtype, round, 1, SMALL_M_VECS, row);
        else if (rows == 2)
            small_m_vecs(&local, dtype, round, 2, SMALL_M_VECS, row);
        else if (rows == 4)
            small_m_vecs(&local, dtype, round, 4, SMALL_M_VECS_MIN, row);
        else
            small_m_vecs(&local, dtype, round, ASH_SMALL_M_ROWS, SMALL_M_VECS_MIN, row);
}

static void small_m_sums(const struct ash_small_m *job)
{
    bool round = job->round_bf16;

    ash_assert(!job->w->packed && job->M <= ASH_SMALL_M_ROWS);
    if (job->w->mat.dtype == ASH_BF16)
        small_m_as(job, ASH_BF16, false);
    else if (job->w->mat.dtype == ASH_F16)
        small_m_as(job, ASH_F16, round);
    else if (round)
        small_m_as(job, ASH_F32, true);
    else
        small_m_as(job, ASH_F32, false);
}

static const struct ash_small_m_kernel small_m_kernel = {.group_rows = ASH_SMALL_M_ROWS,
                                                         .packed_rows = ASH_SMALL_M_ROWS,
                                                         .groups_max = 1,
                                                         .left_bytes = small_m_left_bytes,
                                                         .prepare = small_m_prepare,
                                                         .sums = small_m_sums};

#endif
