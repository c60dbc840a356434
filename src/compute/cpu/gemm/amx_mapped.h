/* amx_mapped - a small-M bf16 product with a right operand whose columns have adjacent elements, as weights lie in a
 * mapped file: the steps of decoding. Each weight is read once, in place: 16 columns are a tile of the left operand,
 * and the rows one of the right operand, so the sums come out transposed. */
#ifndef ASH_COMPUTE_AMX_MAPPED_H
#define ASH_COMPUTE_AMX_MAPPED_H

#include <string.h>
#include "base/math.h"
#include "compute/cpu/gemm/amx_pack.h"
#include "compute/cpu/gemm/gemm_small_m.h"
#include "compute/ops.h"

#define MAPPED_COLS (2 * TILE_SIDE) /* columns of a unit */
#define MAPPED_K_BLOCK 8192         /* k whose rows are packed at once */
#define MAPPED_AHEAD 256            /* elements of a column to fetch ahead */

/* M packed rows of x, for each TILE_K a tile with rows of M pairs, and the right operand from the same k on. */
struct mapped_job {
    size_t M, k_count;
    const uint16_t *left;
    const struct ash_mat *right; /* row_stride 1 */
    size_t k;                    /* of right */
};

/* The tiles for count columns. */
static void mapped_use(size_t M, size_t count)
{
    struct tile_config config = {.palette = 1};
    size_t first = ash_min(count, TILE_SIDE), second = count > TILE_SIDE ? count - TILE_SIDE : first;

    for (size_t tile = 0; tile < 2; tile++) {
        config.rows[tile] = config.rows[4 + tile] = (uint8_t)(tile == 0 ? first : second);
        config.row_bytes[tile] = (uint16_t)(M * sizeof(float));
        config.row_bytes[4 + tile] = TILE_K * sizeof(uint16_t);
    }
    config.rows[6] = TILE_SIDE;
    config.row_bytes[6] = (uint16_t)(M * sizeof(float));
    tile_use(&config);
}

/* Tiles 0 and 1 += columns at first and second by one tile of rows. */
INLINE void mapped_step(const uint16_t *left, size_t M, const uint16_t *first, const uint16_t *second, size_t stride)
{
    TILE_LOAD(6, left, M * sizeof(float));
    TILE_LOAD(4, first, stride * sizeof(*first));
    TILE_MULTIPLY(0, 4, 6);
    TILE_LOAD(5, second, stride * sizeof(*second));
    TILE_MULTIPLY(1, 5, 6);
}

/* Columns from col on, count of them, whose elements are no bf16 or end within a tile. */
static void mapped_convert(const struct mapped_job *rows, size_t col, size_t count, size_t k, uint16_t *tiles)
{
    const struct ash_mat *right = rows->right;
    struct pack lines = {.data = pack_at(right->data, right->dtype, col * right->col_stride + rows->k + k),
                         .dtype = right->dtype,
                         .line_stride = right->col_stride,
                         .k_stride = 1,
                         .count = count,
                         .k_count = ash_min(TILE_K, rows->k_count - k)};

    pack_block(&lines, tiles, PANEL_LINES);
}

/* sums[count, M] += the columns from col on by the rows. With no more than TILE_SIDE columns the second tile repeats
 * the first. */
static void mapped_multiply(const struct mapped_job *rows, size_t col, size_t count, float *sums)
{
    size_t M = rows->M, stride = rows->right->col_stride, second = count > TILE_SIDE ? TILE_SIDE : 0, k = 0;
    const uint16_t *left = rows->left, *right = rows->right->data;
    uint16_t tiles[2 * TILE_SIZE] __attribute__((aligned(64)));

    right += rows->right->dtype == ASH_BF16 ? col * stride + rows->k : 0;
    TILE_LOAD(0, sums, M * sizeof(*sums));
    TILE_LOAD(1, sums + second * M, M * sizeof(*sums));
    for (; rows->right->dtype == ASH_BF16 && k + TILE_K <= rows->k_count; k += TILE_K, left += TILE_K * M) {
        for (size_t n = 0; n < count; n++)
            __builtin_prefetch(right + n * stride + k + MAPPED_AHEAD);
        mapped_step(left, M, right + k, right + second * stride + k, stride);
    }
    for (; k < rows->k_count; k += TILE_K, left += TILE_K * M) {
        mapped_convert(rows, col, count, k, tiles);
        mapped_step(left, M, tiles, tiles + second * TILE_K, TILE_K);
    }
    TILE_STORE(1, sums + second * M, M * sizeof(*sums));
    TILE_STORE(0, sums, M * sizeof(*sums));
}

/* The rows as tiles of M pairs. */
static void mapped_pack(const struct pack *rows, uint16_t *out)
{
    uint16_t panel[2 * TILE_SIZE];

    for (size_t k = 0; k < rows->k_count; k += TILE_K, out += TILE_K * rows->count) {
        struct pack step = *rows;

        step.data = pack_at(rows->data, rows->dtype, k * rows->k_stride);
        step.k_count = ash_min(TILE_K, rows->k_count - k);
        pack_block(&step, panel, PANEL_LINES);
        for (size_t pair = 0; pair < TILE_SIDE; pair++)
            memcpy(out + pair * 2 * rows->count, panel + pair * TILE_K, 2 * rows->count * sizeof(*out));
    }
}

/* ---- as a product ------------------------------------------------------------------------------------------------ */

struct mapped_gemm_op {
    const struct ash_gemm_args *args;
    struct mapped_job rows;
};

static bool mapped_gemm_fits(const struct ash_gemm_args *args)
{
    return args->K > 0 && args->M <= TILE_SIDE && args->b.row_stride == 1;
}

static void mapped_unit(const struct mapped_gemm_op *op, size_t col)
{
    const struct ash_gemm_args *args = op->args;
    size_t M = args->M, count = ash_min(MAPPED_COLS, args->N - col);
    bool add = args->accumulate || op->rows.k > 0, last = op->rows.k + op->rows.k_count == args->K;
    float sums[MAPPED_COLS * TILE_SIDE] = {0};

    if (count < MAPPED_COLS) mapped_use(M, count);
    for (size_t n = 0; n < count && add; n++)
        for (size_t m = 0; m < M; m++)
            sums[n * M + m] = args->c[m * args->c_stride + col + n];
    mapped_multiply(&op->rows, col, count, sums);
    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < count; n++)
            args->c[m * args->c_stride + col + n] =
                args->bias != NULL && last ? sums[n * M + m] + args->bias[col + n] : sums[n * M + m];
}

static void mapped_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct mapped_gemm_op *op = ctx;

    (void)worker;
    mapped_use(op->args->M, MAPPED_COLS);
    for (size_t unit = begin; unit < end; unit++)
        mapped_unit(op, unit * MAPPED_COLS);
    tile_release();
}

static void mapped_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    size_t k_max = ash_min(MAPPED_K_BLOCK, ash_round_up(args->K, TILE_K));
    uint16_t *left = ash_exec_scratch(exec, 0, args->M * k_max * sizeof(*left)); /* the units use none of theirs */
    struct mapped_gemm_op op = {.args = args, .rows = {.M = args->M, .left = left, .right = &args->b}};

    for (; op.rows.k < args->K; op.rows.k += op.rows.k_count) {
        struct pack lines = {.data = pack_at(args->a.data, args->a.dtype, op.rows.k * args->a.col_stride),
                             .dtype = args->a.dtype,
                             .line_stride = args->a.row_stride,
                             .k_stride = args->a.col_stride,
                             .count = args->M,
                             .k_count = ash_min(k_max, args->K - op.rows.k),
                             .right = true};

        op.rows.k_count = lines.k_count;
        mapped_pack(&lines, left);
        ash_workers_run(exec->workers, ash_div_up(args->N, MAPPED_COLS), 1, mapped_units, &op);
    }
}

/* ---- as the kernel of gemm_small_m.h ----------------------------------------------------------------------------- */

static void mapped_sums(const struct ash_small_m *job)
{
    struct mapped_job rows = {.M = job->M, .k_count = job->K, .left = job->left, .right = &job->w->mat};

    mapped_use(job->M, MAPPED_COLS);
    for (size_t col = 0; col < job->count; col += MAPPED_COLS) {
        size_t count = ash_min(MAPPED_COLS, job->count - col);
        float sums[MAPPED_COLS * TILE_SIDE] = {0};

        if (count < MAPPED_COLS) mapped_use(job->M, count);
        mapped_multiply(&rows, job->first + col, count, sums);
        for (size_t m = 0; m < job->M; m++)
            for (size_t n = 0; n < count; n++)
                job->sums[m * job->sums_stride + col + n] = sums[n * job->M + m];
    }
    tile_release();
}

#endif
