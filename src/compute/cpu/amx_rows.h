/* amx_rows - a bf16 product with few rows on the left and a right operand of bf16 whose columns have adjacent elements:
 * the steps of decoding. Each weight is read once, from where it lies: 16 columns are a tile of the left operand, and
 * the rows one of the right operand, so the sums come out turned over. Include after amx_pack.h. */
#ifndef ASH_COMPUTE_AMX_ROWS_H
#define ASH_COMPUTE_AMX_ROWS_H

#include <string.h>
#include "compute/ops.h"

#define ROWS_COLS (2 * TILE_SIDE) /* columns of a unit */
#define ROWS_K_BLOCK 8192         /* k whose left operand is packed at once */
#define ROWS_AHEAD 256            /* elements of a column to fetch ahead */

/* The product over a block of k, the rows of which are packed: for each TILE_K a tile with rows of M pairs. */
struct rows_block {
    const struct ash_gemm_args *args;
    const uint16_t *rows;
    size_t k, k_count;
};

static bool rows_fit(const struct ash_gemm_args *args)
{
    return args->K > 0 && args->M <= TILE_SIDE && args->b.dtype == ASH_BF16 && args->b.row_stride == 1;
}

/* The tiles of a unit with count columns. */
static void rows_use(size_t M, size_t count)
{
    struct tile_config config = {.palette = 1};
    size_t first = count < TILE_SIDE ? count : TILE_SIDE, second = count > TILE_SIDE ? count - TILE_SIDE : first;

    for (size_t tile = 0; tile < 2; tile++) {
        config.rows[tile] = config.rows[4 + tile] = (uint8_t)(tile == 0 ? first : second);
        config.row_bytes[tile] = (uint16_t)(M * sizeof(float));
        config.row_bytes[4 + tile] = TILE_K * sizeof(uint16_t);
    }
    config.rows[6] = TILE_SIDE;
    config.row_bytes[6] = (uint16_t)(M * sizeof(float));
    tile_use(&config);
}

/* The last k of some columns, filled up with zeros. */
static void rows_tail(const uint16_t *from, size_t stride, size_t count, size_t k_count, uint16_t *to)
{
    memset(to, 0, ROWS_COLS * TILE_K * sizeof(*to));
    for (size_t n = 0; n < count; n++)
        memcpy(to + n * TILE_K, from + n * stride, k_count * sizeof(*to));
}

/* sums[ROWS_COLS, M] += count columns from first on by the rows; with fewer than TILE_SIDE + 1 the second tile repeats
 * the first. */
static void rows_multiply(const struct rows_block *block, const uint16_t *first, size_t count, float *sums)
{
    size_t M = block->args->M, stride = block->args->b.col_stride, k = 0;
    size_t second = count > TILE_SIDE ? TILE_SIDE : 0, row_bytes = M * sizeof(float);
    const uint16_t *rows = block->rows;
    uint16_t tail[ROWS_COLS * TILE_K];

    TILE_LOAD(0, sums, row_bytes);
    TILE_LOAD(1, sums + second * M, row_bytes);
    for (; k + TILE_K <= block->k_count; k += TILE_K, rows += TILE_K * M) {
        for (size_t n = 0; n < count; n++)
            __builtin_prefetch(first + n * stride + k + ROWS_AHEAD);
        TILE_LOAD(6, rows, row_bytes);
        TILE_LOAD(4, first + k, stride * sizeof(*first));
        TILE_MULTIPLY(0, 4, 6);
        TILE_LOAD(5, first + second * stride + k, stride * sizeof(*first));
        TILE_MULTIPLY(1, 5, 6);
    }
    if (k < block->k_count) {
        rows_tail(first + k, stride, count, block->k_count - k, tail);
        TILE_LOAD(6, rows, row_bytes);
        TILE_LOAD(4, tail, TILE_K * sizeof(*tail));
        TILE_MULTIPLY(0, 4, 6);
        TILE_LOAD(5, tail + second * TILE_K, TILE_K * sizeof(*tail));
        TILE_MULTIPLY(1, 5, 6);
    }
    TILE_STORE(1, sums + second * M, row_bytes);
    TILE_STORE(0, sums, row_bytes);
}

static void rows_unit(const struct rows_block *block, size_t col)
{
    const struct ash_gemm_args *args = block->args;
    size_t count = args->N - col < ROWS_COLS ? args->N - col : ROWS_COLS;
    bool add = args->accumulate || block->k > 0, last = block->k + block->k_count == args->K;
    float sums[ROWS_COLS * TILE_SIDE] = {0};

    if (count < ROWS_COLS) rows_use(args->M, count);
    for (size_t n = 0; n < count && add; n++)
        for (size_t m = 0; m < args->M; m++)
            sums[n * args->M + m] = args->c[m * args->c_stride + col + n];
    rows_multiply(block, (const uint16_t *)args->b.data + col * args->b.col_stride + block->k, count, sums);
    for (size_t m = 0; m < args->M; m++)
        for (size_t n = 0; n < count; n++)
            args->c[m * args->c_stride + col + n] =
                args->bias != NULL && last ? sums[n * args->M + m] + args->bias[col + n] : sums[n * args->M + m];
}

static void rows_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rows_block *block = ctx;

    (void)worker;
    rows_use(block->args->M, ROWS_COLS);
    for (size_t unit = begin; unit < end; unit++)
        rows_unit(block, unit * ROWS_COLS);
    tile_release();
}

/* The rows as tiles of M columns. */
static void rows_pack(const struct pack *rows, uint16_t *out)
{
    uint16_t panel[2 * TILE_SIZE];

    for (size_t k = 0; k < rows->k_count; k += TILE_K, out += TILE_K * rows->count) {
        struct pack step = *rows;

        step.data = pack_at(rows->data, rows->dtype, k * rows->k_stride);
        step.k_count = rows->k_count - k < TILE_K ? rows->k_count - k : TILE_K;
        pack_block(&step, panel, PANEL_LINES);
        for (size_t pair = 0; pair < TILE_SIDE; pair++)
            memcpy(out + pair * 2 * rows->count, panel + pair * TILE_K, 2 * rows->count * sizeof(*out));
    }
}

static void rows_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct rows_block block = {.args = args};
    size_t k_max = args->K < ROWS_K_BLOCK ? (args->K + TILE_K - 1) / TILE_K * TILE_K : ROWS_K_BLOCK;
    uint16_t *rows = ash_exec_scratch(exec, 0, args->M * k_max * sizeof(*rows)); /* the units use none of theirs */

    block.rows = rows;
    for (; block.k < args->K; block.k += block.k_count) {
        struct pack left = {.data = pack_at(args->a.data, args->a.dtype, block.k * args->a.col_stride),
                            .dtype = args->a.dtype,
                            .line_stride = args->a.row_stride,
                            .k_stride = args->a.col_stride,
                            .count = args->M,
                            .right = true};

        block.k_count = args->K - block.k < k_max ? args->K - block.k : k_max;
        left.k_count = block.k_count;
        rows_pack(&left, rows);
        ash_workers_run(exec->workers, (args->N + ROWS_COLS - 1) / ROWS_COLS, 1, rows_units, &block);
    }
}

#endif
