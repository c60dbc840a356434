/* Losses on the GPU: which kernel takes which rows. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"

/* ---- relative to the target's logit ------------------------------------------------------------------------------ */

#define ROW_OWN_BYTES 2048 /* of shared memory, next to a row of cross_entropy_row */
#define CLUSTER_MAX 8
#define SHARED_BYTES_MAX ((size_t)220 << 10)
#define UNIT_BLOCKS 16 /* of a warp */

/* Thread blocks that share a row of so many blocks: as few as leave room for two rows on a multiprocessor, or 8. */
static size_t cluster_of(size_t blocks)
{
    size_t cluster = 1;

    while (cluster < CLUSTER_MAX &&
           ash_div_up(blocks, cluster) * ASH_CUDA_LOSS_PITCH * sizeof(float) + (blocks + 256) * sizeof(float) >
               ASH_CUDA_LOSS_HALF_BYTES)
        cluster *= 2;
    return cluster;
}

static void relative(struct ash_exec *exec, const struct ash_loss_part *part)
{
    static const enum ash_cuda_kernel_id kernels[] = {ASH_KERNEL_loss_relative_1, ASH_KERNEL_loss_relative_2,
                                                      ASH_KERNEL_loss_relative_4, ASH_KERNEL_loss_relative_8};
    size_t blocks = ash_div_up(part->cols, ASH_LOSS_BLOCK), cluster = cluster_of(blocks), which = 0;
    struct ash_cuda_loss_relative op = {*part, (unsigned)ash_div_up(blocks, cluster)};
    size_t units = ash_div_up(op.part_blocks, UNIT_BLOCKS);
    size_t bytes = (op.part_blocks * ASH_CUDA_LOSS_PITCH + blocks) * sizeof(float);

    ash_assert(!ash_loss_has_gradient(part) || part->factors != NULL);
    ash_assert(part->grad_bf16 == NULL || (part->grad_stride % 8 == 0 && (uintptr_t)part->grad_bf16 % 16 == 0));
    if (!exec->cuda->has_wgmma || part->cols % 8 != 0 || (uintptr_t)part->logits % 16 != 0 ||
        bytes > SHARED_BYTES_MAX || units > ASH_CUDA_LOSS_UNITS_MAX) {
        ash_cuda_run(exec, ASH_KERNEL_loss_relative_any,
                     (struct ash_cuda_grid){.x = part->rows, .y = 1, .threads = 256}, &op);
        return;
    }
    while ((size_t)1 << which < cluster)
        which++;
    ash_cuda_run(exec, kernels[which],
                 (struct ash_cuda_grid){.x = part->rows * cluster,
                                        .y = 1,
                                        .threads = ash_min(units * 32, ASH_CUDA_LOSS_THREADS),
                                        .shared_bytes = bytes},
                 &op);
}

/* ---- of any model ------------------------------------------------------------------------------------------------ */

/* A block per row; where a row fits into shared memory, from there. */
static void cross_entropy(struct ash_exec *exec, const struct ash_loss_part *part)
{
    if (part->rows == 0) return;
    if (ash_loss_is_relative(part)) {
        relative(exec, part);
        return;
    }
    if (part->entropy == NULL && part->entropy_scales == NULL && part->cols <= ASH_CUDA_LOSS_ROW_MAX &&
        part->cols * sizeof(float) + ROW_OWN_BYTES <= ash_cuda_get_facts(exec->cuda->cuda)->shared_bytes) {
        ash_cuda_run(exec, ASH_KERNEL_cross_entropy_row,
                     (struct ash_cuda_grid){.x = part->rows,
                                            .y = 1,
                                            .threads = ASH_CUDA_LOSS_ROW_THREADS,
                                            .shared_bytes = part->cols * sizeof(float)},
                     part);
        return;
    }
    ash_cuda_run(exec, ASH_KERNEL_cross_entropy, (struct ash_cuda_grid){.x = part->rows, .y = 1, .threads = 256}, part);
}

static void part_top(struct ash_exec *exec, const struct ash_loss_part *part)
{
    ash_cuda_run(exec, ASH_KERNEL_loss_part_top, ash_cuda_grid_rows(part->rows), part);
}

static void part_sum(struct ash_exec *exec, const struct ash_loss_part *part)
{
    ash_cuda_run(exec, ASH_KERNEL_loss_part_sum, ash_cuda_grid_rows(part->rows), part);
}

static void part_end(struct ash_exec *exec, const struct ash_loss_part *part)
{
    ash_cuda_run(exec, ASH_KERNEL_loss_part_end, ash_cuda_grid_rows(part->rows), part);
}

/* ---- of a teacher ------------------------------------------------------------------------------------------------ */

static void distill(struct ash_exec *exec, const struct ash_distill_args *args)
{
    ash_assert(args->cols > 0 && args->beta >= 0.0f && args->beta <= 1.0f);
    if (args->rows == 0) return;
    ash_cuda_run(exec, ASH_KERNEL_distill,
                 (struct ash_cuda_grid){.x = args->rows, .y = 1, .threads = ASH_CUDA_DISTILL_THREADS}, args);
}

const struct ash_loss_ops ash_cuda_loss = {.cross_entropy = cross_entropy,
                                           .part_top = part_top,
                                           .part_sum = part_sum,
                                           .part_end = part_end,
                                           .distill = distill};
