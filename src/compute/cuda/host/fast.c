/* What runtime.mode=fast runs in the place of exact kernels. All that it changes is here, but for the library, which
 * may then split k (library.c). */
#include "compute/cuda/host/fast.h"

#include "base/assert.h"
#include "base/math.h"

/* Kernels with the arguments and the grid of the exact ones. */
static const struct {
    enum ash_cuda_kernel_id exact, fast;
} instead[] = {
    {ASH_KERNEL_attn_bf16_forward_64, ASH_KERNEL_attn_fast_forward_64},
    {ASH_KERNEL_attn_bf16_forward_128, ASH_KERNEL_attn_fast_forward_128},
    {ASH_KERNEL_attn_bf16_queries_64, ASH_KERNEL_attn_fast_queries_64},
    {ASH_KERNEL_attn_bf16_queries_128, ASH_KERNEL_attn_fast_queries_128},
    {ASH_KERNEL_attn_bf16_keys_64, ASH_KERNEL_attn_fast_keys_64},
    {ASH_KERNEL_attn_bf16_keys_128, ASH_KERNEL_attn_fast_keys_128},
    {ASH_KERNEL_cross_entropy_row, ASH_KERNEL_cross_entropy_fast},
};

enum ash_cuda_kernel_id ash_cuda_fast_kernel(enum ash_cuda_kernel_id exact)
{
    for (size_t i = 0; i < ASH_COUNT(instead); i++)
        if (instead[i].exact == exact) return instead[i].fast;
    return exact;
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

#define PART_BLOCKS 1056 /* thread blocks that keep the memory busy: eight for each multiprocessor */
#define PART_ROWS_MIN 64

/* Gradients of weight and bias, added to what is there: `id` sums up shares of the rows, and then these are joined. */
static void add_weights(struct ash_exec *exec, const struct ash_norm_args *args, enum ash_cuda_kernel_id id,
                        size_t planes)
{
    size_t wide = ash_div_up(args->cols, ASH_CUDA_NORM_PART_COLS), units = args->rows * args->groups;
    struct ash_cuda_norm_parts op = {.args = *args};

    if (units == 0) return;
    op.part_count = ash_min(ash_div_up(PART_BLOCKS, wide), ash_div_up(units, PART_ROWS_MIN));
    op.parts = ash_cuda_scratch(exec, planes * op.part_count * args->cols * sizeof(*op.parts));
    ash_cuda_run(exec, id, (struct ash_cuda_grid){.x = wide, .y = op.part_count, .threads = ASH_CUDA_NORM_PART_THREADS},
                 &op);
    ash_cuda_run(
        exec, ASH_KERNEL_norm_join_parts,
        (struct ash_cuda_grid){.x = ash_div_up(args->cols, 32), .y = planes, .threads = ASH_CUDA_NORM_PART_THREADS},
        &op);
}

/* The weight's gradient comes first: dx may overwrite dy. */
static void rms_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    struct ash_norm_args rest = *args;

    if (args->dweight != NULL) add_weights(exec, args, ASH_KERNEL_rms_weight_parts, 1);
    rest.dweight = NULL;
    ash_cuda_norm.rms_backward(exec, &rest);
}

static void layer_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    struct ash_norm_args rest = *args;

    if (args->dweight != NULL || args->dbias != NULL) add_weights(exec, args, ASH_KERNEL_layer_weight_parts, 2);
    rest.dweight = rest.dbias = NULL;
    ash_cuda_norm.layer_backward(exec, &rest);
}

static void rms_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    ash_cuda_norm.rms_forward(exec, args);
}

static void layer_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    ash_cuda_norm.layer_forward(exec, args);
}

static const struct ash_norm_ops norm_fast = {.rms_forward = rms_forward,
                                              .rms_backward = rms_backward,
                                              .layer_forward = layer_forward,
                                              .layer_backward = layer_backward};

const struct ash_ops ash_ops_cuda_fast = {
    .name = "cuda-fast",
    .reference = &ash_ops_cuda_fast, /* nothing else has its bits */
    .takes_bf16 = true,
    .matrix = &ash_cuda_matrix,
    .embed = &ash_cuda_embed,
    .norm = &norm_fast,
    .rope = &ash_cuda_rope,
    .attn = &ash_cuda_attn,
    .act = &ash_cuda_act,
    .row = &ash_cuda_row,
    .loss = &ash_cuda_loss,
    .route = &ash_cuda_route,
    .optim = &ash_cuda_optim,
    .sample = &ash_cuda_sample,
};
