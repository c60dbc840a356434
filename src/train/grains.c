/* grains: a stack of partial sums. Two neighbours that are the halves of a subtree are added as soon as both exist. */
#include "train/grains.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "collective/host/window.h"

struct ash_span ash_grains_dealt(size_t grain_count, size_t rank, size_t size)
{
    size_t first = grain_count * rank / size;

    return (struct ash_span){first, grain_count * (rank + 1) / size - first};
}

double ash_grains_fold(const double *values, size_t grain_count)
{
    size_t half = 1;

    if (grain_count == 1) return values[0];
    while (2 * half < grain_count)
        half *= 2;
    return ash_grains_fold(values, half) + ash_grains_fold(values + half, grain_count - half);
}

/* Partial sums on the stack at once, for grains own of total. */
static size_t buffers_for(size_t total, struct ash_span own)
{
    struct ash_span spans[ASH_GRAINS_DEPTH_MAX + 1];
    size_t depth = 0, most = 0;

    for (size_t i = 0; i < own.count; i++) {
        spans[depth++] = (struct ash_span){own.first + i, 1};
        if (depth > most) most = depth;
        if (depth > ASH_GRAINS_DEPTH_MAX) return depth;
        for (; depth >= 2 && ash_tree_halves(total, spans[depth - 2], spans[depth - 1]); depth--)
            spans[depth - 2].count += spans[depth - 1].count;
    }
    return most;
}

size_t ash_grains_buffers(size_t total, size_t rank, size_t size)
{
    return buffers_for(total, ash_grains_dealt(total, rank, size));
}

static int plan_shares(struct ash_grains *grains, struct ash_err *err)
{
    size_t size = grains->group != NULL ? ash_group_size(grains->group) : 1,
           rank = grains->group != NULL ? ash_group_rank(grains->group) : 0;
    struct ash_span spans[ASH_TREE_PARTS_MAX];

    if (size > grains->total || size > ASH_SHARES_RANKS_MAX || grains->total > ASH_GRAINS_MAX)
        return ash_err_set(err, -EINVAL,
                           "%zu grains cannot be shared by %zu ranks: set train.grains to at least the number of ranks",
                           grains->total, size);
    grains->own = ash_grains_dealt(grains->total, rank, size);
    for (size_t r = 0; r < size; r++) {
        struct ash_span cover[ASH_TREE_COVER_MAX];
        size_t count = ash_tree_cover(grains->total, ash_grains_dealt(grains->total, r, size), cover);

        if (grains->shares.first[r] + count > ASH_TREE_PARTS_MAX)
            return ash_err_set(err, -EINVAL, "%zu grains over %zu ranks make too many partial sums", grains->total,
                               size);
        memcpy(spans + grains->shares.first[r], cover, count * sizeof(*cover));
        grains->shares.first[r + 1] = grains->shares.first[r] + (uint32_t)count;
    }
    return ash_tree_of_spans(&grains->shares.tree, spans, grains->shares.first[size], grains->total);
}

/* Memory of this process alone. */
static int open_buffers(struct ash_grains *grains, size_t count, struct ash_err *err)
{
    for (; grains->buffer_count < count; grains->buffer_count++) {
        struct ash_buffer *buffer = &grains->buffers[grains->buffer_count];
        int rc = ash_buffer_init(buffer, grains->exec->memory, grains->leaf_size * sizeof(float), "gradients", err);

        if (rc < 0) return rc;
        grains->sums[grains->buffer_count] = buffer->data;
    }
    return 0;
}

/* Memory in which the ranks can add up. All open as many as the one that needs most; pages that a rank does not touch
 * cost nothing. */
static int open_windows(struct ash_grains *grains, size_t count, struct ash_err *err)
{
    size_t size = ash_group_size(grains->group), most = count;

    for (size_t r = 0; r < size; r++)
        if (ash_grains_buffers(grains->total, r, size) > most) most = ash_grains_buffers(grains->total, r, size);
    for (size_t i = 0; i < most; i++) {
        int rc = ash_group_window_open(grains->group, grains->leaf_size * sizeof(float), &grains->windows[i], err);

        if (rc < 0) return rc;
        grains->sums[i] = ash_window_data(grains->windows[i]);
    }
    grains->buffer_count = count;
    return 0;
}

int ash_grains_init(struct ash_grains *grains, struct ash_exec *exec, struct ash_group *group, size_t leaf_size,
                    size_t sum_size, size_t grain_count, struct ash_err *err)
{
    size_t buffer_count;
    int rc;

    memset(grains, 0, sizeof(*grains));
    if (grain_count == 0 || sum_size > leaf_size)
        return ash_err_set(err, -EINVAL, "gradient sums over %zu grains of %zu values make no sense", grain_count,
                           leaf_size);
    grains->exec = exec;
    grains->group = group;
    grains->total = grain_count;
    grains->leaf_size = leaf_size;
    grains->sum_size = sum_size;
    if ((rc = plan_shares(grains, err)) < 0) return rc;
    buffer_count = ash_grains_buffers(grain_count, group != NULL ? ash_group_rank(group) : 0,
                                      group != NULL ? ash_group_size(group) : 1);
    if (buffer_count > ASH_GRAINS_DEPTH_MAX) return ash_err_set(err, -EINVAL, "%zu grains are too many", grain_count);
    rc = group != NULL ? open_windows(grains, buffer_count, err) : open_buffers(grains, buffer_count, err);
    if (rc < 0) ash_grains_fini(grains);
    return rc;
}

int ash_grains_init_part(struct ash_grains *grains, struct ash_exec *exec, struct ash_span own, size_t leaf_size,
                         size_t grain_count, struct ash_err *err)
{
    int rc;

    *grains = (struct ash_grains){
        .exec = exec, .total = grain_count, .own = own, .leaf_size = leaf_size, .sum_size = leaf_size};
    rc = open_buffers(grains, buffers_for(grain_count, own), err);
    if (rc < 0) ash_grains_fini(grains);
    return rc;
}

size_t ash_grains_parts(const struct ash_grains *grains, const void **parts_out)
{
    for (size_t i = 0; i < grains->depth; i++)
        parts_out[i] = grains->sums[i];
    return grains->depth;
}

void ash_grains_fini(struct ash_grains *grains)
{
    for (size_t i = 0; i < ASH_GRAINS_DEPTH_MAX; i++) {
        ash_buffer_fini(&grains->buffers[i]);
        ash_window_close(grains->windows[i]);
    }
    memset(grains, 0, sizeof(*grains));
}

size_t ash_grains_bytes(const struct ash_grains *grains)
{
    return grains->buffer_count * grains->leaf_size * sizeof(float);
}

struct ash_span ash_grains_own(const struct ash_grains *grains)
{
    return grains->own;
}

void ash_grains_reset(struct ash_grains *grains)
{
    grains->depth = 0;
}

float *ash_grains_begin(struct ash_grains *grains)
{
    ash_assert(grains->depth < grains->buffer_count);
    float *leaf = grains->sums[grains->depth];
    ash_exec_zero(grains->exec, leaf, grains->leaf_size * sizeof(float));
    return leaf;
}

/* Add the top of the stack to the sum below it. */
static void merge_top(struct ash_grains *grains)
{
    size_t right = grains->depth - 1, left = right - 1;
    float *sum = grains->sums[left];

    grains->exec->ops->row->add(grains->exec, sum, grains->sums[right], grains->sum_size, sum);
    grains->spans[left].count += grains->spans[right].count;
    grains->depth--;
}

void ash_grains_end(struct ash_grains *grains)
{
    size_t depth = grains->depth,
           first = depth > 0 ? grains->spans[depth - 1].first + grains->spans[depth - 1].count : grains->own.first;

    grains->spans[depth] = (struct ash_span){first, 1};
    grains->depth++;
    while (grains->depth >= 2 &&
           ash_tree_halves(grains->total, grains->spans[grains->depth - 2], grains->spans[grains->depth - 1]))
        merge_top(grains);
}

/* What is left on the stacks of all ranks becomes the root. */
int ash_grains_finish(struct ash_grains *grains, float **sum_out, struct ash_err *err)
{
    if (grains->group != NULL) {
        int rc = ash_group_window_all_reduce(grains->group, grains->windows, &grains->shares, grains->sum_size,
                                             ASH_COLL_F32, ASH_COLL_SUM, err);
        if (rc < 0) return rc;
    }
    ash_assert(grains->depth == 1 || grains->group != NULL);
    *sum_out = grains->sums[0];
    return 0;
}
