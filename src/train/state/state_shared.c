/* state: one working copy of the weights for the ranks of a node over which a slice is sharded. Each writes its parts
 * where all read, so that nothing has to be gathered. An update waits for all ranks' gradients, so no rank reads the
 * values any more while it writes. */
#include "train/state/state_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/host/window.h"
#include "infra/memory.h"

/* Parts of at least this many huge pages use them: a rank's mappings grow by whole ones. */
#define HUGE_PARTS 2

/* The largest part of a unit. */
static size_t largest_part(const struct ash_shards *shards)
{
    size_t most = 0;

    for (size_t i = 0; i < shards->unit_count; i++)
        most = ash_max(most, shards->units[i].part);
    return most;
}

int ash_state_barrier(const struct ash_state *state, struct ash_err *err)
{
    struct ash_group *group =
        state->part.node_replicas != NULL ? state->part.node_replicas : state->part.node_shard_group;

    return ash_group_barrier(group, err);
}

int ash_state_open_shared(struct ash_state *state, bool bf16, struct ash_err *err)
{
    struct ash_group *node_shard_group = state->part.node_shard_group;
    const struct ash_shards *shards = state->shards;
    const float *values = ash_model_values(state->model);
    size_t size = ash_model_size(state->model), width = bf16 ? sizeof(uint16_t) : sizeof(float);
    int rc = ash_group_window_open(node_shard_group, size * width, &state->window, err);
    float *weights;

    if (rc < 0) return rc;
    if (ash_group_rank(node_shard_group) == 0 && largest_part(shards) * width >= HUGE_PARTS * ASH_MEMORY_HUGE)
        ash_window_fill(state->window);
    if (bf16) {
        state->bf16 =
            (struct ash_buffer){.data = ash_window_data_of(state->window, 0), .size_bytes = size * sizeof(uint16_t)};
        return 0;
    }
    weights = ash_window_data_of(state->window, 0);
    for (size_t i = 0; i < shards->unit_count; i++) {
        struct ash_range own = shards->units[i].own;
        memcpy(weights + own.first, values + own.first, own.count * sizeof(float));
    }
    rc = ash_state_barrier(state, err);
    if (rc < 0) return rc;
    ash_model_move(state->model, weights);
    state->next.weights = weights;
    return 0;
}

/* No rank reads before the first barrier of a pass, and none updates before all gradients are reduced. */
int ash_state_open_tp_window(struct ash_state *state, bool bf16, struct ash_err *err)
{
    size_t size = ash_model_size(state->model);
    int64_t bytes = (int64_t)(size * (bf16 ? sizeof(uint16_t) : sizeof(float)));
    int rc =
        ash_group_all_reduce(state->part.tp_peers, &bytes, &bytes, 1, ASH_COLL_I64, ASH_COLL_MAX, err); /* may differ */
    float *weights;

    if (rc < 0) return rc;
    rc = ash_group_window_open(state->part.tp_peers, (size_t)bytes, &state->tp_window, err);
    if (rc < 0) return rc;
    ash_window_fill(state->tp_window);
    weights = ash_window_data(state->tp_window);
    if (bf16) {
        state->bf16 = (struct ash_buffer){.data = weights, .size_bytes = size * sizeof(uint16_t)};
        return 0;
    }
    memcpy(weights, ash_model_values(state->model), size * sizeof(float));
    ash_model_move(state->model, weights);
    state->next.weights = weights;
    return 0;
}

void ash_state_unmap(const struct ash_state *state, struct ash_range range)
{
    size_t width = state->bf16.data != NULL ? sizeof(uint16_t) : sizeof(float);

    ash_assert(state->window != NULL && ash_range_end(range) <= ash_model_size(state->model));
    ash_window_unmap_pages(state->window, 0, range.first * width, range.count * width);
    for (size_t r = 0; state->tp_window != NULL && r < ash_group_size(state->part.tp_peers); r++)
        if (r != ash_group_rank(state->part.tp_peers)) ash_window_unmap_pages(state->tp_window, r, 0, SIZE_MAX);
}
