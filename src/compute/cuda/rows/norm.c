/* Norms on the GPU: which kernel takes which rows. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/blocks.h"
#include "compute/cuda/host/backend_priv.h"
#include "compute/cuda/rows/column_sum.h"

/* ---- of float32 models ------------------------------------------------------------------------------------------- */

#define NORM_TILE_BYTES ((size_t)72 << 10) /* of shared memory: three thread blocks fit */

/* Can rows come in tiles (norm_tile.cu)? Returns how many, each copied `copies` times; 0: they cannot. */
static unsigned tile_rows(const struct ash_norm_args *args, size_t copies)
{
    uintptr_t places = (uintptr_t)args->x | (uintptr_t)args->y | (uintptr_t)args->y_bf16 | (uintptr_t)args->dy |
                       (uintptr_t)args->dx | (uintptr_t)args->dx_bf16 | (uintptr_t)args->weight;
    size_t row_bytes = copies * (args->cols + ASH_CUDA_NORM_PAD) * sizeof(float);

    if (args->cols % ASH_LANES != 0 || args->x_stride % 4 != 0 || args->y_stride % 4 != 0 || places % 16 != 0) return 0;
    return (unsigned)ash_min(NORM_TILE_BYTES / row_bytes, ASH_CUDA_NORM_ROWS_MAX);
}

/* A thread block for each tile. */
static void run_tiles(struct ash_exec *exec, enum ash_cuda_kernel_id id, const struct ash_norm_args *args,
                      unsigned rows, size_t copies)
{
    struct ash_cuda_norm op = {.args = *args, .tile_rows = rows};

    ash_cuda_run(
        exec, id,
        (struct ash_cuda_grid){.x = ash_div_up(args->rows * args->groups, rows),
                               .y = 1,
                               .threads = 256,
                               .shared_bytes = rows * copies * (args->cols + ASH_CUDA_NORM_PAD) * sizeof(float)},
        &op);
}

/* ---- of bf16 models ---------------------------------------------------------------------------------------------- */

#define CHUNK_COLS 128 /* of a warp: norm_bf16.cu */

/* Are all rows at 16-byte borders (8 where they are bf16)? */
static bool is_wide(const struct ash_norm_args *args)
{
    uintptr_t floats = (uintptr_t)args->x | (uintptr_t)args->y | (uintptr_t)args->dy | (uintptr_t)args->dx |
                       (uintptr_t)args->weight | (uintptr_t)args->bias;
    uintptr_t rounded = (uintptr_t)args->y_bf16 | (uintptr_t)args->dy_bf16 | (uintptr_t)args->dx_bf16;

    return args->cols % 4 == 0 && args->x_stride % 4 == 0 && args->y_stride % 4 == 0 && floats % 16 == 0 &&
           rounded % 8 == 0;
}

static void forward_blocks(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    size_t units = args->rows * args->groups, warps = ASH_CUDA_NORM_FORWARD_THREADS / 32;
    size_t shared = ash_div_up(args->cols, CHUNK_COLS * ASH_CUDA_NORM_SHARED_CHUNKS);
    struct ash_cuda_norm op = {.args = *args, .layer = layer};
    struct ash_cuda_grid grid = {.x = ash_div_up(units, warps), .y = 1, .threads = ASH_CUDA_NORM_FORWARD_THREADS};

    if (units == 0) return;
    if (is_wide(args) && args->cols <= CHUNK_COLS * ASH_CUDA_NORM_ALONE_CHUNKS)
        ash_cuda_run(exec, layer ? ASH_KERNEL_layer_rows_alone : ASH_KERNEL_rms_rows_alone, grid, args);
    else if (is_wide(args) && shared <= 32)
        ash_cuda_run(exec, layer ? ASH_KERNEL_layer_rows_shared : ASH_KERNEL_rms_rows_shared,
                     (struct ash_cuda_grid){.x = units, .y = 1, .threads = (unsigned)shared * 32}, args);
    else
        ash_cuda_run(exec, ASH_KERNEL_norm_rows_any, grid, &op);
}

/* A thread block for each block of rows, whose sums are added to the gradients after that. */
static void backward_blocks(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct ash_seq_rows rows = ash_norm_seq_rows(args);
    struct ash_cuda_norm op = {.args = *args, .layer = layer};
    size_t held = args->cols <= CHUNK_COLS / 32 * 2 * ASH_CUDA_NORM_BACK_THREADS ? 2 : 4, blocks;
    size_t warps = ash_div_up(args->cols, CHUNK_COLS * held);
    struct ash_cuda_grid grid = {.y = 1, .threads = ASH_CUDA_NORM_FORWARD_THREADS};
    enum ash_cuda_kernel_id id = ASH_KERNEL_norm_back_any;

    ash_assert(args->seq_first % ASH_K_GROUP == 0);
    if (args->rows * args->groups == 0) return;
    grid.x = blocks = ash_row_blocks(&rows);
    if (args->dweight != NULL || args->dbias != NULL)
        op.parts = ash_cuda_scratch(exec, (layer ? 2 : 1) * blocks * args->cols * sizeof(*op.parts));
    if (is_wide(args) && warps <= ASH_CUDA_NORM_BACK_THREADS / 32) {
        if (layer)
            id = held == 2 ? ASH_KERNEL_layer_back_2 : ASH_KERNEL_layer_back_4;
        else
            id = held == 2 ? ASH_KERNEL_rms_back_2 : ASH_KERNEL_rms_back_4;
        grid.threads = (unsigned)warps * 32;
        grid.shared_bytes = 4 * warps * held * (CHUNK_COLS / ASH_SUM_BLOCK) * sizeof(float);
    }
    ash_cuda_run(exec, id, grid, &op);
    if (op.parts != NULL)
        ash_cuda_run_add_blocks(
            exec,
            &(struct ash_cuda_add_blocks){
                .parts = op.parts, .count = blocks, .cols = args->cols, .first = args->dweight, .second = args->dbias});
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void rms_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    unsigned rows = tile_rows(args, 1);

    if (args->round_bf16) {
        forward_blocks(exec, args, false);
        return;
    }
    if (rows > 0) {
        run_tiles(exec, ASH_KERNEL_rms_forward_tile, args, rows, 1);
        return;
    }
    ash_cuda_run(exec, ASH_KERNEL_rms_forward, ash_cuda_grid_rows(args->rows * args->groups), args);
}

/* The weight's gradient comes first: dx may overwrite dy. */
static void rms_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    size_t copies = args->dx_add ? 3 : 2;
    unsigned rows = tile_rows(args, copies);

    if (args->round_bf16) {
        backward_blocks(exec, args, false);
        return;
    }
    if (args->dweight != NULL)
        ash_cuda_run(exec, ASH_KERNEL_rms_backward_weight, ash_cuda_grid_chains(args->cols), args);
    if (rows > 0) {
        run_tiles(exec, ASH_KERNEL_rms_backward_tile, args, rows, copies);
        return;
    }
    ash_cuda_run(exec, ASH_KERNEL_rms_backward, ash_cuda_grid_rows(args->rows * args->groups), args);
}

static void layer_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->round_bf16)
        forward_blocks(exec, args, true);
    else
        ash_cuda_run(exec, ASH_KERNEL_layer_forward, ash_cuda_grid_rows(args->rows * args->groups), args);
}

static void layer_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->round_bf16) {
        backward_blocks(exec, args, true);
        return;
    }
    if (args->dweight != NULL || args->dbias != NULL)
        ash_cuda_run(exec, ASH_KERNEL_layer_backward_weight, ash_cuda_grid_chains(args->cols), args);
    ash_cuda_run(exec, ASH_KERNEL_layer_backward, ash_cuda_grid_rows(args->rows * args->groups), args);
}

const struct ash_norm_ops ash_cuda_norm = {.rms_forward = rms_forward,
                                           .rms_backward = rms_backward,
                                           .layer_forward = layer_forward,
                                           .layer_backward = layer_backward};
