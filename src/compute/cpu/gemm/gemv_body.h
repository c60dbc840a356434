/* gemv_body - a product with one row on the left (GEMV), the step of a decoder that writes token by token. It reads
 * each weight once, so it does not pack them first: where elements of a column are adjacent, columns are transposed in
 * registers, 4 x 4 at a time. */
#ifndef ASH_COMPUTE_GEMV_BODY_H
#define ASH_COMPUTE_GEMV_BODY_H

#ifndef ASH_COMPUTE_PACK_BODY_H
#error "include pack_body.h first"
#endif

#define GEMV_VECS 4               /* vectors of 4 columns at once: as many chains in flight */
#define GEMV_COLS (4 * GEMV_VECS) /* columns of a unit */

/* Can gemv() do it? */
static bool gemv_fits(const struct ash_gemm_args *args)
{
    return args->M == 1 && args->a.col_stride == 1 && args->b.row_stride == 1;
}

/* One column from k on, one element at a time. */
static float gemv_tail(const struct ash_gemm_args *args, size_t n, size_t k, float sum)
{
    for (; k < args->K; k++)
        sum = fmaf(pack_read(args->a.data, args->a.dtype, args->round_bf16, k),
                   pack_read(args->b.data, args->b.dtype, args->round_bf16, n * args->b.col_stride + k), sum);
    return sum;
}

/* 4 * vecs columns from n on. */
INLINE void gemv_vecs(const struct ash_gemm_args *args, enum ash_dtype dtype, bool round, size_t vecs, size_t n,
                      float *sums)
{
    const void *data = pack_at(args->b.data, dtype, n * args->b.col_stride);
    size_t k = 0, stride = args->b.col_stride;
    f32x4 acc[GEMV_VECS];

    UNROLL
    for (size_t q = 0; q < vecs; q++)
        acc[q] = f32x4_load(sums + 4 * q);
    for (; k + 4 <= args->K; k += 4) {
        f32x4 left = pack_f32x4(args->a.data, args->a.dtype, round, k);

        UNROLL
        for (size_t q = 0; q < vecs; q++) {
            f32x4 block[4];

            UNROLL
            for (size_t i = 0; i < 4; i++)
                block[i] = pack_f32x4(data, dtype, round, (4 * q + i) * stride + k);
            f32x4_transpose(block);
            UNROLL
            for (size_t i = 0; i < 4; i++)
                acc[q] = f32x4_fma_lane(acc[q], block[i], left, (int)i);
        }
    }
    UNROLL
    for (size_t q = 0; q < vecs; q++)
        f32x4_store(sums + 4 * q, acc[q]);
    for (size_t i = 0; i < 4 * vecs; i++)
        sums[i] = gemv_tail(args, n + i, k, sums[i]);
}

INLINE void gemv_cols(const struct ash_gemm_args *args, enum ash_dtype dtype, bool round, size_t n, size_t count,
                      float *sums)
{
    size_t i = 0;

    if (count == GEMV_COLS) {
        gemv_vecs(args, dtype, round, GEMV_VECS, n, sums);
        return;
    }
    for (; i + 4 <= count; i += 4)
        gemv_vecs(args, dtype, round, 1, n + i, sums + i);
    for (; i < count; i++)
        sums[i] = gemv_tail(args, n + i, 0, sums[i]);
}

static void gemv_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_gemm_args args = *(const struct ash_gemm_args *)ctx;

    (void)worker;
    for (size_t n = begin * GEMV_COLS; n < end * GEMV_COLS && n < args.N; n += GEMV_COLS) {
        size_t count = ash_min(args.N - n, GEMV_COLS);
        float sums[GEMV_COLS] = {0};

        if (args.accumulate) memcpy(sums, args.c + n, count * sizeof(*sums));
        if (args.b.dtype == ASH_BF16)
            gemv_cols(&args, ASH_BF16, args.round_bf16, n, count, sums);
        else if (args.b.dtype == ASH_F16)
            gemv_cols(&args, ASH_F16, args.round_bf16, n, count, sums);
        else
            gemv_cols(&args, ASH_F32, args.round_bf16, n, count, sums);
        if (args.bias != NULL) add_row(sums, args.bias + n, count, sums);
        memcpy(args.c + n, sums, count * sizeof(*sums));
    }
}

static void gemv(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_workers_run(exec->workers, ash_div_up(args->N, GEMV_COLS), 1, gemv_units, (void *)args);
}

#endif
