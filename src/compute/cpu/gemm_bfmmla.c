/* Products of bf16 matrices with BFMMLA, to the bit as ref/bfmmla.c computes them. A unit is a block of c. It packs its
 * rows of the left operand and, some at a time (L2), its columns of the right one, and runs a register tile over them;
 * k is cut into blocks of whole groups between which the sums wait in c, so every chain stays in order. Compiled for
 * machines with the instruction. No bf16 vector here is a constant: gcc 12 builds those as half floats. */
#if defined(__aarch64__)

#include "compute/cpu/cpu_priv.h"

#include "base/assert.h"
#include "compute/cpu/bfmmla_pack.h"
#include "compute/cpu/bfmmla_rows.h"

#define TILE_ROWS 8
#define TILE_COLS 12
#define PAIRS_A (TILE_ROWS / 2)
#define PAIRS_B (TILE_COLS / 2)
#define K_BLOCK 1024    /* a multiple of GROUP */
#define BLOCK_ROWS 1024 /* at most; of a unit */
#define BLOCK_COLS 1152
#define PANEL_COLS 288 /* columns that are packed at once: they fill L2 */
#define STRIPS 2       /* tiles below each other that stay in L1 */
#define UNITS_PER_THREAD 3

/* c[TILE_ROWS, TILE_COLS] = a b, or += where add. An accumulator holds a 2 x 2 block of c. */
static void tile(size_t groups, const uint16_t *a, const uint16_t *b, bool add, float *c, size_t c_stride)
{
    float64x2_t acc[PAIRS_A][PAIRS_B];

    UNROLL
    for (size_t i = 0; i < PAIRS_A; i++)
        UNROLL for (size_t j = 0; j < PAIRS_B; j += 2)
        {
            const float *at = c + 2 * i * c_stride + 2 * j;
            float64x2_t top = vreinterpretq_f64_f32(add ? vld1q_f32(at) : vdupq_n_f32(0.0f));
            float64x2_t bottom = vreinterpretq_f64_f32(add ? vld1q_f32(at + c_stride) : vdupq_n_f32(0.0f));

            acc[i][j] = vtrn1q_f64(top, bottom);
            acc[i][j + 1] = vtrn2q_f64(top, bottom);
        }
    _Pragma("GCC unroll 4") for (size_t g = 0; g < groups; g++, a += TILE_ROWS * GROUP, b += TILE_COLS * GROUP)
    {
        uint16x8_t left[PAIRS_A];

        UNROLL
        for (size_t i = 0; i < PAIRS_A; i++)
            left[i] = vld1q_u16(a + 2 * i * GROUP);
        UNROLL
        for (size_t j = 0; j < PAIRS_B; j++) {
            uint16x8_t right = vld1q_u16(b + 2 * j * GROUP);

            UNROLL for (size_t i = 0; i < PAIRS_A; i++) acc[i][j] =
                vreinterpretq_f64_f32(multiply(vreinterpretq_f32_f64(acc[i][j]), left[i], right));
        }
    }
    UNROLL
    for (size_t i = 0; i < PAIRS_A; i++)
        UNROLL for (size_t j = 0; j < PAIRS_B; j += 2)
        {
            float *at = c + 2 * i * c_stride + 2 * j;

            vst1q_f32(at, vreinterpretq_f32_f64(vtrn1q_f64(acc[i][j], acc[i][j + 1])));
            vst1q_f32(at + c_stride, vreinterpretq_f32_f64(vtrn2q_f64(acc[i][j], acc[i][j + 1])));
        }
}

/* A product and how it is cut. */
struct gemm {
    struct ash_exec *exec;
    const struct ash_gemm_args *args;
    size_t block_rows, block_cols, block_k; /* of a unit */
    size_t grid_cols;                       /* units beside each other */
};

/* A block of c and the k that are being added to it. */
struct gemm_block {
    size_t row, rows, col, cols, k, k_count, groups;
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

/* Blocks as large as the caches allow, but enough of them for every thread. */
static void plan_gemm(struct gemm *op)
{
    const struct ash_gemm_args *args = op->args;
    size_t threads = (size_t)ash_workers_count(op->exec->workers),
           wanted = threads > 1 ? UNITS_PER_THREAD * threads : 1;

    op->block_rows = block_size(args->M, BLOCK_ROWS, TILE_ROWS);
    op->block_cols = block_size(args->N, BLOCK_COLS, TILE_COLS);
    op->block_k = block_size(args->K > 0 ? args->K : 1, K_BLOCK, GROUP);
    while (unit_count(op) < wanted) {
        if (op->block_rows >= 2 * STRIPS * TILE_ROWS && op->block_rows >= op->block_cols)
            op->block_rows = block_size(op->block_rows, op->block_rows / 2, TILE_ROWS);
        else if (op->block_cols >= 4 * TILE_COLS)
            op->block_cols = block_size(op->block_cols, op->block_cols / 2, TILE_COLS);
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
static void edge_tile(size_t groups, const uint16_t *a, const uint16_t *b, bool add, float *c, size_t c_stride,
                      size_t rows, size_t cols)
{
    float whole[TILE_ROWS * TILE_COLS] = {0};

    if (add) copy_block(c, c_stride, whole, TILE_COLS, rows, cols);
    tile(groups, a, b, add, whole, TILE_COLS);
    copy_block(whole, TILE_COLS, c, c_stride, rows, cols);
}

/* Have a tile of c near when its turn comes: c is larger than the caches, and a chain cannot begin without its value.
 */
static void fetch_tile(const float *c, size_t c_stride)
{
    for (size_t r = 0; r < TILE_ROWS; r++) {
        __builtin_prefetch(c + r * c_stride, 1);
        __builtin_prefetch(c + r * c_stride + TILE_COLS - 1, 1);
    }
}

/* Packed rows against the packed columns from col on. Some strips stay in L1 while the panels pass by. */
static void gemm_panels(const struct gemm *op, const struct gemm_block *block, size_t col, size_t cols,
                        const uint16_t *left, const uint16_t *right)
{
    const struct ash_gemm_args *args = op->args;
    size_t stride = args->c_stride, k_padded = block->groups * GROUP;
    bool add = args->accumulate || block->k > 0;

    for (size_t first = 0; first < block->rows; first += STRIPS * TILE_ROWS) {
        size_t last = min_size(first + STRIPS * TILE_ROWS, block->rows);

        for (size_t n = 0; n < cols; n += TILE_COLS)
            for (size_t r = first; r < last; r += TILE_ROWS) {
                const uint16_t *a = left + r * k_padded, *b = right + n * k_padded;
                float *c = args->c + (block->row + r) * stride + col + n;

                if (r + 2 * TILE_ROWS <= last)
                    fetch_tile(c + TILE_ROWS * stride, stride);
                else if (n + 2 * TILE_COLS <= cols && first + TILE_ROWS <= last)
                    fetch_tile(c + TILE_COLS - (r - first) * stride, stride);
                if (r + TILE_ROWS <= last && n + TILE_COLS <= cols)
                    tile(block->groups, a, b, add, c, stride);
                else
                    edge_tile(block->groups, a, b, add, c, stride, min_size(TILE_ROWS, last - r),
                              min_size(TILE_COLS, cols - n));
            }
    }
}

/* Add the products over the block's k to its part of c. */
static void gemm_k_block(const struct gemm *op, const struct gemm_block *block, uint16_t *left, uint16_t *right)
{
    const struct ash_mat *a = &op->args->a, *b = &op->args->b;
    struct pack rows = {.data = pack_at(a->data, a->dtype, block->row * a->row_stride + block->k * a->col_stride),
                        .dtype = a->dtype,
                        .line_stride = a->row_stride,
                        .k_stride = a->col_stride,
                        .count = block->rows,
                        .k_count = block->k_count};

    pack_block(&rows, left, TILE_ROWS);
    for (size_t n = 0; n < block->cols; n += PANEL_COLS) {
        size_t col = block->col + n;
        struct pack cols = {.data = pack_at(b->data, b->dtype, block->k * b->row_stride + col * b->col_stride),
                            .dtype = b->dtype,
                            .line_stride = b->col_stride,
                            .k_stride = b->row_stride,
                            .count = min_size(PANEL_COLS, block->cols - n),
                            .k_count = block->k_count};

        pack_block(&cols, right, TILE_COLS);
        gemm_panels(op, block, col, cols.count, left, right);
    }
}

static void add_bias(const struct ash_gemm_args *args, const struct gemm_block *block)
{
    for (size_t r = 0; r < block->rows; r++) {
        float *c = args->c + (block->row + r) * args->c_stride + block->col;

        for (size_t n = 0; n < block->cols; n++)
            c[n] = c[n] + args->bias[block->col + n];
    }
}

static void gemm_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gemm *op = ctx;
    const struct ash_gemm_args *args = op->args;
    size_t panel_cols = min_size(op->block_cols, PANEL_COLS);
    uint16_t *right = ash_exec_scratch(op->exec, worker, (op->block_rows + panel_cols) * op->block_k * sizeof(*right));
    uint16_t *left = right + panel_cols * op->block_k;

    for (size_t unit = begin; unit < end; unit++) {
        struct gemm_block block = {.row = unit / op->grid_cols * op->block_rows,
                                   .col = unit % op->grid_cols * op->block_cols};

        block.rows = min_size(op->block_rows, args->M - block.row);
        block.cols = min_size(op->block_cols, args->N - block.col);
        do {
            block.k_count = min_size(op->block_k, args->K - block.k);
            block.groups = (block.k_count + GROUP - 1) / GROUP;
            gemm_k_block(op, &block, left, right);
            block.k += block.k_count;
        } while (block.k < args->K);
        if (args->bias != NULL) add_bias(args, &block);
    }
}

void ash_gemm_bfmmla(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct gemm op = {.exec = exec, .args = args};

    ash_assert(args->bias == NULL || !args->accumulate);
    if (args->M == 0 || args->N == 0) return;
    if (rows_fit(args)) {
        rows_gemm(exec, args);
        return;
    }
    plan_gemm(&op);
    ash_workers_run(exec->workers, unit_count(&op), 1, gemm_units, &op);
}

#endif
