/* Products of bf16 matrices with AMX, to the bit as ref/tdpbf16.c computes them. The tiles are so fast that packing
 * would take as long as multiplying if each thread did its own: so all threads first pack a chunk of both operands,
 * once, and then share it. In a unit, a block of c, one panel of the right operand stays in L1 while the left one's
 * pass by from L2; between blocks of k the sums wait in c, so every chain stays in order. */
#if defined(__x86_64__)

#include "compute/cpu/cpu_priv.h"

#include <string.h>
#include "base/assert.h"
#include "compute/cpu/amx_pack.h"
#include "compute/cpu/amx_rows.h"

#define CHUNK_LINES 2048 /* of c, both ways, whose operands are packed at once */
#define CHUNK_K 2048
#define BLOCK_K 512     /* k for which one panel fits L1 */
#define BLOCK_LINES 256 /* of a unit, both ways, at most */
#define UNITS_PER_THREAD 2

/* A product, the chunk of it that is being computed, and how that is cut. */
struct gemm {
    const struct ash_gemm_args *args;
    size_t row, rows, col, cols, k, k_count; /* the chunk */
    size_t steps;                            /* of TILE_K in it */
    size_t left_panels, right_panels;        /* to pack; the left ones may be there already */
    size_t block_rows, block_cols, grid_cols;
    uint16_t *left, *right; /* packed */
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* count cut into as few equal blocks as max allows, each a multiple of step. */
static size_t block_size(size_t count, size_t max, size_t step)
{
    return ceil_div(ceil_div(count, ceil_div(count, max)), step) * step;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static void pack_left(const struct gemm *op, size_t panel)
{
    const struct ash_mat *a = &op->args->a;
    struct pack rows = {.data = pack_at(a->data, a->dtype, op->row * a->row_stride + op->k * a->col_stride),
                        .dtype = a->dtype,
                        .line_stride = a->row_stride,
                        .k_stride = a->col_stride,
                        .count = op->rows,
                        .k_count = op->k_count};

    pack_panel(&rows, panel * PANEL_LINES, op->left + panel * PANEL_LINES * op->steps * TILE_K);
}

static void pack_right(const struct gemm *op, size_t panel)
{
    const struct ash_mat *b = &op->args->b;
    struct pack cols = {.data = pack_at(b->data, b->dtype, op->k * b->row_stride + op->col * b->col_stride),
                        .dtype = b->dtype,
                        .line_stride = b->col_stride,
                        .k_stride = b->row_stride,
                        .count = op->cols,
                        .k_count = op->k_count,
                        .pairs = true};

    pack_panel(&cols, panel * PANEL_LINES, op->right + panel * PANEL_LINES * op->steps * TILE_K);
}

static void pack_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gemm *op = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++)
        if (unit < op->left_panels)
            pack_left(op, unit);
        else
            pack_right(op, unit - op->left_panels);
}

/* ---- multiplying ------------------------------------------------------------------------------------------------- */

/* c[PANEL_LINES, PANEL_LINES] = a b, or += where add, over steps of k. */
static void multiply_panels(size_t steps, const uint16_t *a, const uint16_t *b, bool add, float *c, size_t c_stride)
{
    const size_t row_bytes = TILE_K * sizeof(*a), c_bytes = c_stride * sizeof(*c);
    float *below = c + TILE_SIDE * c_stride;

    for (size_t r = 0; r < PANEL_LINES; r++) { /* near when the sums are stored */
        __builtin_prefetch(c + r * c_stride, 1);
        __builtin_prefetch(c + r * c_stride + TILE_SIDE, 1);
    }
    if (add) {
        TILE_LOAD(0, c, c_bytes);
        TILE_LOAD(1, c + TILE_SIDE, c_bytes);
        TILE_LOAD(2, below, c_bytes);
        TILE_LOAD(3, below + TILE_SIDE, c_bytes);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (size_t s = 0; s < steps; s++, a += 2 * TILE_SIZE, b += 2 * TILE_SIZE) {
        TILE_LOAD(6, b, row_bytes);
        TILE_LOAD(4, a, row_bytes);
        TILE_MULTIPLY(0, 4, 6);
        TILE_LOAD(7, b + TILE_SIZE, row_bytes);
        TILE_MULTIPLY(1, 4, 7);
        TILE_LOAD(5, a + TILE_SIZE, row_bytes);
        TILE_MULTIPLY(2, 5, 6);
        TILE_MULTIPLY(3, 5, 7);
    }
    TILE_STORE(0, c, c_bytes);
    TILE_STORE(1, c + TILE_SIDE, c_bytes);
    TILE_STORE(2, below, c_bytes);
    TILE_STORE(3, below + TILE_SIDE, c_bytes);
}

/* Copy rows x cols floats between blocks of different strides. */
static void copy_block(const float *from, size_t from_stride, float *to, size_t to_stride, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, cols * sizeof(*to));
}

/* The same at the edge of c, where only rows x cols are there: the kernel works on a whole square elsewhere. */
static void multiply_edge(size_t steps, const uint16_t *a, const uint16_t *b, bool add, float *c, size_t c_stride,
                          size_t rows, size_t cols)
{
    float whole[PANEL_LINES * PANEL_LINES] __attribute__((aligned(64)));

    if (add) {
        memset(whole, 0, sizeof(whole));
        copy_block(c, c_stride, whole, PANEL_LINES, rows, cols);
    }
    multiply_panels(steps, a, b, add, whole, PANEL_LINES);
    copy_block(whole, PANEL_LINES, c, c_stride, rows, cols);
}

/* A block of the chunk: first row and column in it, and the steps of k that are being added. */
struct block {
    size_t row, rows, col, cols, step, steps;
};

static void multiply_block(const struct gemm *op, const struct block *block)
{
    const struct ash_gemm_args *args = op->args;
    bool add = args->accumulate || op->k > 0 || block->step > 0;

    for (size_t n = block->col; n < block->col + block->cols; n += PANEL_LINES)
        for (size_t m = block->row; m < block->row + block->rows; m += PANEL_LINES) {
            const uint16_t *a = op->left + (m * op->steps + block->step * PANEL_LINES) * TILE_K;
            const uint16_t *b = op->right + (n * op->steps + block->step * PANEL_LINES) * TILE_K;
            float *c = args->c + (op->row + m) * args->c_stride + op->col + n;
            size_t rows = min_size(PANEL_LINES, op->rows - m), cols = min_size(PANEL_LINES, op->cols - n);

            if (rows == PANEL_LINES && cols == PANEL_LINES)
                multiply_panels(block->steps, a, b, add, c, args->c_stride);
            else
                multiply_edge(block->steps, a, b, add, c, args->c_stride, rows, cols);
        }
}

static void add_bias(const struct gemm *op, const struct block *block)
{
    const float *bias = op->args->bias + op->col + block->col;

    for (size_t r = 0; r < block->rows; r++) {
        float *c = op->args->c + (op->row + block->row + r) * op->args->c_stride + op->col + block->col;

        for (size_t n = 0; n < block->cols; n++)
            c[n] = c[n] + bias[n];
    }
}

static void multiply_units(void *ctx, size_t begin, size_t end, int worker)
{
    static const struct tile_config whole = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    const struct gemm *op = ctx;
    size_t steps = block_size(op->steps, BLOCK_K / TILE_K, 1);
    bool last = op->k + op->k_count == op->args->K;

    (void)worker;
    tile_use(&whole);
    for (size_t unit = begin; unit < end; unit++) {
        struct block block = {.row = unit / op->grid_cols * op->block_rows,
                              .col = unit % op->grid_cols * op->block_cols};

        block.rows = min_size(op->block_rows, op->rows - block.row);
        block.cols = min_size(op->block_cols, op->cols - block.col);
        for (; block.step < op->steps; block.step += block.steps) {
            block.steps = min_size(steps, op->steps - block.step);
            multiply_block(op, &block);
        }
        if (last && op->args->bias != NULL) add_bias(op, &block);
    }
    tile_release();
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

/* Blocks as large as the caches allow, but enough of them for every thread. Returns how many. */
static size_t plan_units(struct gemm *op, size_t threads)
{
    size_t wanted = threads > 1 ? UNITS_PER_THREAD * threads : 1, grid_rows;

    op->block_rows = block_size(op->rows, BLOCK_LINES, PANEL_LINES);
    op->block_cols = block_size(op->cols, BLOCK_LINES, PANEL_LINES);
    for (;;) {
        op->grid_cols = ceil_div(op->cols, op->block_cols);
        grid_rows = ceil_div(op->rows, op->block_rows);
        if (grid_rows * op->grid_cols >= wanted) break;
        if (op->block_rows > PANEL_LINES && op->block_rows >= op->block_cols)
            op->block_rows = block_size(op->block_rows, op->block_rows / 2, PANEL_LINES);
        else if (op->block_cols > PANEL_LINES)
            op->block_cols = block_size(op->block_cols, op->block_cols / 2, PANEL_LINES);
        else
            break;
    }
    return grid_rows * op->grid_cols;
}

static void run_chunk(struct ash_exec *exec, struct gemm *op, bool left_packed, bool right_packed)
{
    size_t units = plan_units(op, (size_t)ash_workers_count(exec->workers));

    op->steps = ceil_div(op->k_count, TILE_K);
    op->left_panels = left_packed ? 0 : ceil_div(op->rows, PANEL_LINES);
    op->right_panels = right_packed ? 0 : ceil_div(op->cols, PANEL_LINES);
    ash_workers_run(exec->workers, op->left_panels + op->right_panels, 1, pack_units, op);
    ash_workers_run(exec->workers, units, 1, multiply_units, op);
}

/* No k at all: what an empty sum is. */
static void empty_product(const struct ash_gemm_args *args)
{
    for (size_t m = 0; m < args->M && !args->accumulate; m++)
        for (size_t n = 0; n < args->N; n++)
            args->c[m * args->c_stride + n] = args->bias != NULL ? 0.0f + args->bias[n] : 0.0f;
}

void ash_gemm_amx(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct gemm op = {.args = args};
    size_t rows, cols, k_count;

    ash_assert(args->bias == NULL || !args->accumulate);
    if (args->M == 0 || args->N == 0) return;
    if (args->K == 0) {
        empty_product(args);
        return;
    }
    if (rows_fit(args)) {
        rows_gemm(exec, args);
        return;
    }
    rows = block_size(args->M, CHUNK_LINES, PANEL_LINES);
    cols = block_size(args->N, CHUNK_LINES, PANEL_LINES);
    k_count = block_size(args->K, CHUNK_K, TILE_K);
    op.left = ash_exec_scratch(exec, 0, (rows + cols) * k_count * sizeof(*op.left)); /* the units use none of theirs */
    op.right = op.left + rows * k_count;
    for (op.col = 0; op.col < args->N; op.col += cols)
        for (op.k = 0; op.k < args->K; op.k += k_count)
            for (op.row = 0; op.row < args->M; op.row += rows) {
                op.rows = min_size(rows, args->M - op.row);
                op.cols = min_size(cols, args->N - op.col);
                op.k_count = min_size(k_count, args->K - op.k);
                run_chunk(exec, &op, op.col > 0 && rows >= args->M && k_count >= args->K, op.row > 0);
            }
}

#endif
