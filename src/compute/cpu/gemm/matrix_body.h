/* matrix_body - the matrix product of one instruction set: its kernels for gemm_blocks.h, and column sums. */
#ifndef ASH_COMPUTE_MATRIX_BODY_H
#define ASH_COMPUTE_MATRIX_BODY_H

#ifndef ASH_COMPUTE_GEMV_BODY_H
#error "include gemv_body.h first"
#endif

#include "base/math.h"
#include "base/assert.h"
#include "compute/cpu/gemm/gemm_fp8.h"
#include "compute/gemm_parts.h"

#if VF_WIDTH == 16 /* tiles run at full speed out of L2: what counts is how often sums wait in c */
#define GEMM_K_BLOCK 768
#else
#define GEMM_K_BLOCK 384
#endif

#if VF_WIDTH == 8 /* 16 registers */
#define TILE_ROWS 4
#define TILE_VECS 3
#define FLAT_VECS 8
#else /* 32 registers */
#define TILE_ROWS 8
#define TILE_VECS 3
#define FLAT_VECS 12
#endif

#define LINE_BYTES 64 /* of a cache */

#ifndef VEC_TILE /* the instruction set has no tile of its own */
#define VEC_TILE tile_square

#define VEC_TILE_PART tile_part

/* One k. */
INLINE void tile_step(vf acc[TILE_ROWS][TILE_VECS], const float *a, const float *b, size_t vecs)
{
    vf row[TILE_VECS];
    vm m = vm_load(a);

    UNROLL
    for (size_t v = 0; v < vecs; v++)
        row[v] = vf_load(b + v * VF_WIDTH);
    UNROLL
    for (size_t i = 0; i < TILE_ROWS; i++) {
        if (i > 0 && i % VM_WIDTH == 0) m = vm_load(a + i);
        UNROLL for (size_t v = 0; v < vecs; v++) acc[i][v] = vm_fma(acc[i][v], row[v], m, (int)(i % VM_WIDTH));
    }
}

/* c[TILE_ROWS, vecs * VF_WIDTH] = left right, or += where add. left is [k_count, TILE_ROWS], right is [k_count,
 * TILE_VECS * VF_WIDTH], both packed. One line of what is ahead is prefetched into L2 with each k. vecs is known to the
 * compiler. */
INLINE void tile_vecs(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride,
                      size_t vecs, const struct gemm_ahead *ahead)
{
    const size_t lines = ash_min(ahead->size_bytes / LINE_BYTES, k_count);
    const float *a = left, *b = right;
    vf acc[TILE_ROWS][TILE_VECS];
    size_t k = 0;

    UNROLL
    for (size_t i = 0; i < TILE_ROWS; i++)
        UNROLL for (size_t v = 0; v < vecs; v++) acc[i][v] =
            add ? vf_load(c + i * c_stride + v * VF_WIDTH) : vf_set(0.0f);
    for (; k < lines; k++, a += TILE_ROWS, b += TILE_VECS * VF_WIDTH) {
        __builtin_prefetch(ahead->from + k * LINE_BYTES, 0, 2);
        tile_step(acc, a, b, vecs);
    }
    for (; k < k_count; k++, a += TILE_ROWS, b += TILE_VECS * VF_WIDTH)
        tile_step(acc, a, b, vecs);
    UNROLL
    for (size_t i = 0; i < TILE_ROWS; i++)
        UNROLL for (size_t v = 0; v < vecs; v++) vf_store(c + i * c_stride + v * VF_WIDTH, acc[i][v]);
}

static void tile_square(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride)
{
    tile_vecs(k_count, left, right, add, c, c_stride, TILE_VECS, &(struct gemm_ahead){0});
}

#if VF_WIDTH == 16
#define VEC_TILE_AHEAD tile_ahead

static void tile_ahead(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride,
                       const struct gemm_ahead *ahead)
{
    tile_vecs(k_count, left, right, add, c, c_stride, TILE_VECS, ahead);
}
#endif

/* The first cols columns: fewer than all vectors. */
static void tile_part(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride,
                      size_t cols)
{
    if (cols == VF_WIDTH)
        tile_vecs(k_count, left, right, add, c, c_stride, 1, &(struct gemm_ahead){0});
    else
        tile_vecs(k_count, left, right, add, c, c_stride, 2, &(struct gemm_ahead){0});
}
#else
#define VEC_TILE_PART NULL
#endif
#ifndef VEC_TILE_AHEAD
#define VEC_TILE_AHEAD NULL
#endif

/* One row, which has only one multiplier per k. */
static void tile_flat(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride)
{
    const float *a = left, *b = right;
    vf acc[FLAT_VECS];

    (void)c_stride;
    UNROLL
    for (size_t v = 0; v < FLAT_VECS; v++)
        acc[v] = add ? vf_load(c + v * VF_WIDTH) : vf_set(0.0f);
    for (size_t k = 0; k < k_count; k++) {
        vf m = vf_set(a[k]);

        UNROLL
        for (size_t v = 0; v < FLAT_VECS; v++)
            acc[v] = vf_fma(m, vf_load(b + (k * FLAT_VECS + v) * VF_WIDTH), acc[v]);
    }
    UNROLL
    for (size_t v = 0; v < FLAT_VECS; v++)
        vf_store(c + v * VF_WIDTH, acc[v]);
}

static const struct gemm_kernel square_kernel = {.tile_rows = TILE_ROWS,
                                                 .tile_cols = TILE_VECS * VF_WIDTH,
                                                 .k_step = 1,
                                                 .element_bytes = sizeof(float),
                                                 .block_k = GEMM_K_BLOCK,
                                                 .pack = pack_block,
                                                 .tile = VEC_TILE,
                                                 .tile_part = VEC_TILE_PART,
                                                 .part_cols = VF_WIDTH,
                                                 .tile_ahead = VEC_TILE_AHEAD, /* of columns: rows make small panels */
                                                 .l1_k = GEMM_K_BLOCK};
static const struct gemm_kernel flat_kernel = {.tile_rows = 1,
                                               .tile_cols = FLAT_VECS * VF_WIDTH,
                                               .k_step = 1,
                                               .element_bytes = sizeof(float),
                                               .block_k = GEMM_K_BLOCK,
                                               .pack = pack_block,
                                               .tile = tile_flat};

static void vec_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_gemm_check(args);
    if (args->M == 0 || args->N == 0) return;
    if (args->fp8 != ASH_FP8_OFF)
        ash_cpu_gemm_fp8(exec, args);
    else if (ash_gemm_has_epilogue(args))
        ash_gemm_parts(exec, args, vec_gemm);
    else if (gemv_fits(args))
        gemv(exec, args);
    else
        ash_gemm_blocks(exec, args, args->M == 1 ? &flat_kernel : &square_kernel);
}

/* ---- column sums ------------------------------------------------------------------------------------------------- */

#define SUM_COLS 64 /* columns of a unit */
#define SUM_ROWS 4  /* rows that are added in one go */

/* Units of a range of a loop over units of columns: as few ranges as threads, because wide pieces of rows are read
 * fastest. */
static size_t column_units(const struct ash_exec *exec, size_t units)
{
    size_t threads = (size_t)ash_workers_count(exec->workers);

    return ash_div_up(units, threads);
}

/* sum + row + row + ..., SUM_ROWS rows in turn. */
static void column_sum_rows(const float *x, size_t stride, size_t cols, float *sum)
{
    size_t c = 0;

    for (; c + ASH_LANES <= cols; c += ASH_LANES) {
        struct wide acc = wide_load(sum + c);

        UNROLL
        for (size_t r = 0; r < SUM_ROWS; r++)
            acc = wide_add(acc, wide_load(x + r * stride + c));
        wide_store(sum + c, acc);
    }
    for (; c < cols; c++)
        for (size_t r = 0; r < SUM_ROWS; r++)
            sum[c] = sum[c] + x[r * stride + c];
}

/* Rows are the outer loop, so that memory is read in order; the sums of a unit's columns stay in L1. */
static void column_sum_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_column_sum_args *op = ctx;
    size_t first = begin * SUM_COLS, last = ash_min(end * SUM_COLS, op->cols), r = 0;

    (void)worker;
    for (; r + SUM_ROWS <= op->rows; r += SUM_ROWS)
        column_sum_rows(op->x + r * op->stride + first, op->stride, last - first, op->sum + first);
    for (; r < op->rows; r++)
        add_row(op->sum + first, op->x + r * op->stride + first, last - first, op->sum + first);
}

static void column_sum(struct ash_exec *exec, const struct ash_column_sum_args *args)
{
    size_t units = ash_div_up(args->cols, SUM_COLS);

    ash_workers_run(exec->workers, units, column_units(exec, units), column_sum_units, (void *)args);
}

#endif
