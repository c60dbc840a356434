/* matrix_body - the matrix product of one instruction set. Include after gemv_body.h.
 * A unit is a block of c. It copies the right operand's block (L2) and one strip of the left operand (L1) into kernel
 * order and runs a register tile over them; k is cut into blocks between which the sums wait in c, so every chain stays
 * in order. */
#ifndef ASH_COMPUTE_MATRIX_BODY_H
#define ASH_COMPUTE_MATRIX_BODY_H

#include "base/assert.h"

#define GEMM_K_BLOCK 256
#define GEMM_ROWS_MAX 256
#define GEMM_COLS_MAX 384
#define GEMM_STRIPS 8 /* strips of the left operand that are packed together */
#define GEMM_UNITS_PER_THREAD 4

#if VF_WIDTH == 8 /* 16 registers */
#define TILE_ROWS 4
#define TILE_VECS 3
#define FLAT_VECS 8
#else /* 32 registers */
#define TILE_ROWS 8
#define TILE_VECS 3
#define FLAT_VECS 12
#endif
#define TILE_COLS_MAX (FLAT_VECS * VF_WIDTH)

/* c[rows, vecs * VF_WIDTH] = a b, or += where add. a is [k_count, rows], b is [k_count, vecs * VF_WIDTH], both packed.
 */
typedef void (*tile_fn)(size_t k_count, const float *a, const float *b, bool add, float *c, size_t c_stride);

#define DEFINE_TILE(NAME, ROWS, VECS)                                                                                  \
    static void NAME(size_t k_count, const float *a, const float *b, bool add, float *c, size_t c_stride)              \
    {                                                                                                                  \
        vf acc[ROWS][VECS];                                                                                            \
                                                                                                                       \
        UNROLL for (size_t i = 0; i < (ROWS); i++) UNROLL for (size_t v = 0; v < (VECS); v++) acc[i][v] =              \
            add ? vf_load(c + i * c_stride + v * VF_WIDTH) : vf_set(0.0f);                                             \
        for (size_t k = 0; k < k_count; k++) {                                                                         \
            vf row[VECS];                                                                                              \
            vm left = vm_load(a);                                                                                      \
                                                                                                                       \
            UNROLL for (size_t v = 0; v < (VECS); v++) row[v] = vf_load(b + v * VF_WIDTH);                             \
            UNROLL for (size_t i = 0; i < (ROWS); i++)                                                                 \
            {                                                                                                          \
                if (i > 0 && i % VM_WIDTH == 0) left = vm_load(a + i);                                                 \
                UNROLL for (size_t v = 0; v < (VECS); v++) acc[i][v] =                                                 \
                    vm_fma(acc[i][v], row[v], left, (int)(i % VM_WIDTH));                                              \
            }                                                                                                          \
            a += (ROWS);                                                                                               \
            b += (VECS)*VF_WIDTH;                                                                                      \
        }                                                                                                              \
        UNROLL for (size_t i = 0; i < (ROWS); i++) UNROLL for (size_t v = 0; v < (VECS); v++)                          \
            vf_store(c + i * c_stride + v * VF_WIDTH, acc[i][v]);                                                      \
    }

DEFINE_TILE(tile_square, TILE_ROWS, TILE_VECS)

/* One row, which has only one multiplier per k. */
static void tile_flat(size_t k_count, const float *a, const float *b, bool add, float *c, size_t c_stride)
{
    vf acc[FLAT_VECS];

    (void)c_stride;
    UNROLL
    for (size_t v = 0; v < FLAT_VECS; v++)
        acc[v] = add ? vf_load(c + v * VF_WIDTH) : vf_set(0.0f);
    for (size_t k = 0; k < k_count; k++) {
        vf left = vf_set(a[k]);

        UNROLL
        for (size_t v = 0; v < FLAT_VECS; v++)
            acc[v] = vf_fma(left, vf_load(b + (k * FLAT_VECS + v) * VF_WIDTH), acc[v]);
    }
    UNROLL
    for (size_t v = 0; v < FLAT_VECS; v++)
        vf_store(c + v * VF_WIDTH, acc[v]);
}

/* A product and how it is cut. */
struct gemm {
    struct ash_exec *exec;
    const struct ash_gemm_args *args;
    tile_fn tile;
    size_t tile_rows, tile_cols;
    size_t block_rows, block_cols; /* of a unit; multiples of the tile's */
    size_t grid_cols;              /* units beside each other */
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* count cut into as few equal blocks as max allows, each a multiple of step. */
static size_t block_size(size_t count, size_t max, size_t step)
{
    size_t blocks = (count + max - 1) / max, size = (count + blocks - 1) / blocks;

    return (size + step - 1) / step * step;
}

static size_t unit_count(const struct gemm *op)
{
    return (op->args->M + op->block_rows - 1) / op->block_rows * ((op->args->N + op->block_cols - 1) / op->block_cols);
}

/* Blocks as large as the cache allows, but enough of them for every thread. */
static void plan_gemm(struct gemm *op)
{
    const struct ash_gemm_args *args = op->args;
    size_t threads = (size_t)ash_workers_count(op->exec->workers),
           wanted = threads > 1 ? GEMM_UNITS_PER_THREAD * threads : 1;
    bool flat = args->M == 1;

    op->tile = flat ? tile_flat : tile_square;
    op->tile_rows = flat ? 1 : TILE_ROWS;
    op->tile_cols = (flat ? FLAT_VECS : TILE_VECS) * VF_WIDTH;
    op->block_rows = block_size(args->M, GEMM_ROWS_MAX, op->tile_rows);
    op->block_cols = block_size(args->N, GEMM_COLS_MAX, op->tile_cols);
    while (unit_count(op) < wanted) {
        if (op->block_rows >= 8 * TILE_ROWS && op->block_rows >= op->block_cols / 2)
            op->block_rows = block_size(op->block_rows, op->block_rows / 2, op->tile_rows);
        else if (op->block_cols >= 2 * op->tile_cols)
            op->block_cols = block_size(op->block_cols, op->block_cols / 2, op->tile_cols);
        else
            break;
    }
    op->grid_cols = (args->N + op->block_cols - 1) / op->block_cols;
}

/* Copy rows x cols floats between blocks of different strides. */
static void copy_block(const float *from, size_t from_stride, float *to, size_t to_stride, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, cols * sizeof(*to));
}

/* One tile at the edge of c: the kernel works on a whole one elsewhere. */
static void edge_tile(const struct gemm *op, size_t k_count, const float *a, const float *b, bool add, float *c,
                      size_t rows, size_t cols)
{
    float whole[TILE_ROWS * TILE_COLS_MAX];

    if (add) copy_block(c, op->args->c_stride, whole, op->tile_cols, rows, cols);
    op->tile(k_count, a, b, add, whole, op->tile_cols);
    copy_block(whole, op->tile_cols, c, op->args->c_stride, rows, cols);
}

/* A block of c and the k that are being added to it. */
struct gemm_block {
    size_t row, rows, col, cols, k, k_count;
};

/* One strip of up to tile_rows rows from row on, against the packed right operand. */
static void gemm_strip(const struct gemm *op, const struct gemm_block *block, size_t row, size_t rows,
                       const float *left, const float *right)
{
    const struct ash_gemm_args *args = op->args;
    bool add = args->accumulate || block->k > 0;

    for (size_t n = 0; n < block->cols; n += op->tile_cols) {
        float *c = args->c + row * args->c_stride + block->col + n;
        size_t cols = min_size(op->tile_cols, block->cols - n);

        if (rows == op->tile_rows && cols == op->tile_cols)
            op->tile(block->k_count, left, right + n * block->k_count, add, c, args->c_stride);
        else
            edge_tile(op, block->k_count, left, right + n * block->k_count, add, c, rows, cols);
    }
}

/* Add the products over the block's k to its part of c. */
static void gemm_k_block(const struct gemm *op, const struct gemm_block *block, float *left, float *right)
{
    const struct ash_gemm_args *args = op->args;
    const struct ash_mat *a = &args->a, *b = &args->b;
    struct pack cols = {.data = pack_at(b->data, b->dtype, block->k * b->row_stride + block->col * b->col_stride),
                        .dtype = b->dtype,
                        .round_bf16 = args->round_bf16,
                        .line_stride = b->col_stride,
                        .k_stride = b->row_stride,
                        .count = block->cols,
                        .k_count = block->k_count};

    pack_block(&cols, right, op->tile_cols);
    for (size_t r = 0; r < block->rows; r += GEMM_STRIPS * op->tile_rows) {
        size_t row = block->row + r, count = min_size(GEMM_STRIPS * op->tile_rows, block->rows - r);
        struct pack rows = {.data = pack_at(a->data, a->dtype, row * a->row_stride + block->k * a->col_stride),
                            .dtype = a->dtype,
                            .round_bf16 = args->round_bf16,
                            .line_stride = a->row_stride,
                            .k_stride = a->col_stride,
                            .count = count,
                            .k_count = block->k_count};

        pack_block(&rows, left, op->tile_rows);
        for (size_t i = 0; i < count; i += op->tile_rows)
            gemm_strip(op, block, row + i, min_size(op->tile_rows, count - i), left + i * block->k_count, right);
    }
}

static void add_bias(const struct ash_gemm_args *args, const struct gemm_block *block)
{
    for (size_t r = 0; r < block->rows; r++) {
        float *c = args->c + (block->row + r) * args->c_stride + block->col;

        add_row(c, args->bias + block->col, block->cols, c);
    }
}

static void gemm_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gemm *op = ctx;
    const struct ash_gemm_args *args = op->args;
    size_t k_block = block_size(args->K > 0 ? args->K : 1, GEMM_K_BLOCK, 4);
    float *right =
        ash_exec_scratch(op->exec, worker, (op->block_cols + GEMM_STRIPS * op->tile_rows) * k_block * sizeof(*right));
    float *left = right + op->block_cols * k_block;

    for (size_t unit = begin; unit < end; unit++) {
        struct gemm_block block = {.row = unit / op->grid_cols * op->block_rows,
                                   .col = unit % op->grid_cols * op->block_cols};

        block.rows = min_size(op->block_rows, args->M - block.row);
        block.cols = min_size(op->block_cols, args->N - block.col);
        do {
            block.k_count = min_size(k_block, args->K - block.k);
            gemm_k_block(op, &block, left, right);
            block.k += block.k_count;
        } while (block.k < args->K);
        if (args->bias != NULL) add_bias(args, &block);
    }
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct gemm op = {.exec = exec, .args = args};

    ash_assert(args->bias == NULL || !args->accumulate);
    if (args->M == 0 || args->N == 0) return;
    if (gemv_fits(args)) {
        gemv(exec, args);
        return;
    }
    plan_gemm(&op);
    ash_workers_run(exec->workers, unit_count(&op), 1, gemm_units, &op);
}

/* ---- column sums ------------------------------------------------------------------------------------------------- */

#define SUM_COLS 64 /* columns of a unit */

struct column_sum {
    const float *x;
    size_t stride, rows, cols;
    float *sum;
};

/* Rows are the outer loop, so that memory is read in order; the sums of a unit's columns stay in the nearest cache. */
static void column_sum_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct column_sum *op = ctx;
    size_t first = begin * SUM_COLS, last = min_size(end * SUM_COLS, op->cols);

    (void)worker;
    for (size_t r = 0; r < op->rows; r++)
        add_row(op->sum + first, op->x + r * op->stride + first, last - first, op->sum + first);
}

static void column_sum(struct ash_exec *exec, const float *x, size_t stride, size_t rows, size_t cols, float *sum)
{
    struct column_sum op = {.x = x, .stride = stride, .rows = rows, .cols = cols, .sum = sum};

    ash_workers_run(exec->workers, (cols + SUM_COLS - 1) / SUM_COLS, 1, column_sum_units, &op);
}

#endif
