/* grains: the tree as a binary counter. Two neighbours with equally many leaves are added as soon as both exist; what
 * is left at the end is added from the right. That is the tree that splits at the largest power of two below n. */
#include "train/grains.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

size_t ash_grains_buffers(size_t grain_count)
{
    size_t count = 1;

    while (grain_count >> count != 0)
        count++;
    return count;
}

int ash_grains_init(struct ash_grains *grains, struct ash_exec *exec, size_t leaf_size, size_t sum_size,
                    size_t grain_count, struct ash_err *err)
{
    size_t buffer_count = ash_grains_buffers(grain_count);

    memset(grains, 0, sizeof(*grains));
    if (grain_count == 0 || sum_size > leaf_size)
        return ash_err_set(err, -EINVAL, "gradient sums over %zu grains of %zu values make no sense", grain_count,
                           leaf_size);
    if (buffer_count > ASH_GRAINS_DEPTH_MAX) return ash_err_set(err, -EINVAL, "%zu grains are too many", grain_count);
    for (size_t i = 0; i < buffer_count; i++) {
        int rc = ash_buffer_init(&grains->buffers[i], exec->memory, leaf_size * sizeof(float), "gradients", err);
        if (rc < 0) {
            ash_grains_fini(grains);
            return rc;
        }
        grains->buffer_count = i + 1;
    }
    grains->exec = exec;
    grains->leaf_size = leaf_size;
    grains->sum_size = sum_size;
    return 0;
}

void ash_grains_fini(struct ash_grains *grains)
{
    for (size_t i = 0; i < grains->buffer_count; i++)
        ash_buffer_fini(&grains->buffers[i]);
    memset(grains, 0, sizeof(*grains));
}

void ash_grains_reset(struct ash_grains *grains)
{
    grains->depth = 0;
}

float *ash_grains_begin(struct ash_grains *grains)
{
    ash_assert(grains->depth < grains->buffer_count);
    float *leaf = grains->buffers[grains->depth].data;
    grains->exec->memory->zero(leaf, grains->leaf_size * sizeof(float));
    return leaf;
}

/* Add the top of the stack to the sum below it. */
static void merge_top(struct ash_grains *grains)
{
    size_t right = grains->depth - 1, left = right - 1;
    float *sum = grains->buffers[left].data;

    grains->exec->ops->row->add(grains->exec, sum, grains->buffers[right].data, grains->sum_size, sum);
    grains->losses[left] += grains->losses[right];
    grains->leaves[left] += grains->leaves[right];
    grains->depth--;
}

void ash_grains_end(struct ash_grains *grains, double loss)
{
    grains->leaves[grains->depth] = 1;
    grains->losses[grains->depth] = loss;
    grains->depth++;
    while (grains->depth >= 2 && grains->leaves[grains->depth - 1] == grains->leaves[grains->depth - 2])
        merge_top(grains);
}

float *ash_grains_finish(struct ash_grains *grains, double *loss_out)
{
    ash_assert(grains->depth > 0);
    while (grains->depth >= 2)
        merge_top(grains);
    *loss_out = grains->losses[0];
    return grains->buffers[0].data;
}
