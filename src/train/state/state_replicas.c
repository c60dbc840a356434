/* state: one copy of the state for all replicas on a node. Each updates its part, so that no work is done twice, and
 * nothing has to be sent. There are two buffers for the values, used alternately: a process that is lost in the middle
 * of an update leaves the last step's intact. The working copy (bf16) is converted from the weights and has one
 * buffer. */
#include "train/state/state_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/host/window.h"

#define PLACE_ALIGN ((size_t)4096) /* bytes: places, and the parts of replicas, start on pages */
#define PLACES 2

static size_t place_bytes(size_t elements, size_t width)
{
    return ash_round_up(elements * width, PLACE_ALIGN);
}

/* This process's part of the shard. */
static struct ash_range own_run(size_t total, size_t rank, size_t size)
{
    size_t unit = PLACE_ALIGN / sizeof(float), units = total / unit, first = units * rank / size * unit,
           end = rank + 1 == size ? total : units * (rank + 1) / size * unit;

    return (struct ash_range){first, end - first};
}

/* The next `bytes` of the memory. */
static void *take_place(char **memory, size_t bytes)
{
    void *place = *memory;

    *memory += bytes;
    return place;
}

static void take_values(const struct ash_state *state, char **memory, struct ash_state_values *values_out)
{
    size_t moments = place_bytes(state->shards->total, sizeof(float));

    values_out->weights = take_place(memory, place_bytes(ash_model_size(state->model), sizeof(float)));
    values_out->m = take_place(memory, moments);
    values_out->v = take_place(memory, moments);
}

/* What no update writes is the same in both places. */
static void copy_constants(const struct ash_state *state, const float *from, float *to)
{
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        struct ash_shard_part part = ash_shards_part_in(state->shards, param, state->own);
        size_t first = param->offset + part.first;

        if (!param->is_trained || param->is_tied_copy) memcpy(to + first, from + first, part.count * sizeof(float));
    }
}

int ash_state_open_replicas(struct ash_state *state, bool bf16, struct ash_err *err)
{
    struct ash_group *node_replicas = state->part.node_replicas;
    size_t size = ash_model_size(state->model), total = state->shards->total;
    size_t copy = bf16 ? place_bytes(size, sizeof(uint16_t)) : 0;
    struct ash_state_values now;
    const float *values = ash_model_values(state->model);
    char *memory;
    int rc = ash_group_window_open(
        node_replicas, PLACES * (place_bytes(size, sizeof(float)) + 2 * place_bytes(total, sizeof(float))) + copy,
        &state->window, err);

    if (rc < 0) return rc;
    if (ash_group_rank(node_replicas) == 0) ash_window_fill(state->window);
    memory = ash_window_data_of(state->window, 0);
    take_values(state, &memory, &now);
    take_values(state, &memory, &state->next);
    state->m = (struct ash_buffer){.data = now.m, .size_bytes = total * sizeof(float)};
    state->v = (struct ash_buffer){.data = now.v, .size_bytes = total * sizeof(float)};
    if (bf16) state->bf16 = (struct ash_buffer){.data = memory, .size_bytes = size * sizeof(uint16_t)};
    state->mates = ash_group_size(node_replicas);
    state->own = own_run(total, ash_group_rank(node_replicas), state->mates);
    memcpy(now.weights + state->own.first, values + state->own.first, state->own.count * sizeof(float));
    copy_constants(state, values, state->next.weights);
    rc = ash_state_barrier(state, err);
    if (rc < 0) return rc;
    ash_model_move(state->model, now.weights);
    return 0;
}

void ash_state_copy_constants(struct ash_state *state)
{
    copy_constants(state, ash_model_values(state->model), state->next.weights);
}

struct ash_range ash_state_mate_run(const struct ash_state *state, size_t mate)
{
    ash_assert(mate < state->mates);
    return own_run(state->shards->total, mate, state->mates);
}

bool ash_state_is_partitioned(const struct ash_state *state)
{
    return state->part.node_replicas != NULL && ash_group_size(state->part.node_replicas) == state->part.replicas;
}

void ash_state_swap_places(struct ash_state *state)
{
    struct ash_state_values now = {ash_model_values(state->model), state->m.data, state->v.data};

    ash_assert(state->mates > 0 && state->next.weights != NULL);
    ash_model_move(state->model, state->next.weights);
    state->m.data = state->next.m;
    state->v.data = state->next.v;
    state->next = now;
}

size_t ash_state_replica_bytes(const struct ash_state *state)
{
    size_t weights = ash_model_size(state->model), copy = state->bf16.data != NULL ? weights * sizeof(uint16_t) : 0,
           moments = state->m.size_bytes + state->v.size_bytes;

    return (PLACES * (weights * sizeof(float) + moments) + copy) / ash_group_size(state->part.node_replicas);
}
