/* state: weights and moments side by side at the same offsets, and a hash over them that any split of the work agrees
 * on. */
#include "train/state/state_priv.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "compute/backends/backends.h"
#include "base/assert.h"
#include "base/hash.h"
#include "collective/host/window.h"

#define CHUNK_WORDS ((size_t)1 << 14) /* one unit of the parallel loops */

/* Memory of this process alone. */
static int open_alone(struct ash_state *state, bool bf16, struct ash_err *err)
{
    const struct ash_memory_ops *memory = state->exec->memory;
    size_t moment_bytes = state->shards->total * sizeof(float), copy_bytes;
    int rc;

    copy_bytes = ash_model_size(state->model) * sizeof(uint16_t);
    rc = ash_buffer_init(&state->m, memory, moment_bytes, "first moments", err);
    if (rc < 0) return rc;
    rc = ash_buffer_init(&state->v, memory, moment_bytes, "second moments", err);
    if (rc < 0) return rc;
    state->own = (struct ash_range){0, state->shards->total};
    state->next = (struct ash_state_values){ash_model_values(state->model), state->m.data, state->v.data};
    if (state->part.node_shard_group != NULL) return ash_state_open_shared(state, bf16, err);
    if (state->part.tp_peers != NULL && !ash_model_slice(state->model)->shard_weights)
        return ash_state_open_tp_window(state, bf16, err);
    if (bf16) {
        rc = ash_buffer_init(&state->bf16, memory, copy_bytes, "bf16 weights", err);
        if (rc < 0) return rc;
    }
    if (ash_model_slice(state->model)->shard_weights) ash_buffer_sparse(&state->bf16);
    return 0;
}

/* Round elements `run` of the weights to the working copy: whole rows of a chunk each, then the rest. */
static void round_run(struct ash_state *state, struct ash_range run)
{
    struct ash_exec *exec = state->exec;
    size_t whole = run.count / CHUNK_WORDS * CHUNK_WORDS;
    struct ash_copy_args args = {.rows = run.count / CHUNK_WORDS,
                                 .blocks = 1,
                                 .cols = CHUNK_WORDS,
                                 .src = ash_model_values(state->model) + run.first,
                                 .src_row = CHUNK_WORDS,
                                 .dst = (uint16_t *)state->bf16.data + run.first,
                                 .dst_dtype = ASH_BF16,
                                 .dst_row = CHUNK_WORDS};

    if (args.rows > 0) exec->ops->row->copy(exec, &args);
    if (whole == run.count) return;
    args.rows = 1;
    args.cols = args.src_row = args.dst_row = run.count - whole;
    args.src += whole;
    args.dst = (uint16_t *)args.dst + whole;
    exec->ops->row->copy(exec, &args);
}

/* Round this process's weights. */
static void round_own(struct ash_state *state)
{
    if (ash_model_slice(state->model)->shard_weights || state->part.node_shard_group != NULL)
        for (size_t i = 0; i < state->shards->unit_count; i++)
            round_run(state, state->shards->units[i].own);
    else
        round_run(state, state->window != NULL ? state->own : (struct ash_range){0, ash_model_size(state->model)});
}

/* Make the working copies of this process's weights. is_blank: untouched pages stay untouched. */
static int make_copies(struct ash_state *state, bool is_blank, struct ash_err *err)
{
    int rc;

    if (state->bf16.data != NULL) {
        if (!is_blank && !state->is_taken) round_own(state);
        rc = ash_state_barrier(state, err);
        if (rc < 0) return rc;
        state->is_rounded = !is_blank;
        ash_model_use_bf16(state->model, state->bf16.data);
    }
    ash_model_refresh(state->model);
    return 0;
}

int ash_state_init(struct ash_state *state, struct ash_exec *exec, struct ash_model *model, bool bf16,
                   const struct ash_state_part *part, struct ash_err *err)
{
    struct ash_state fresh = {.exec = exec, .model = model, .shards = ash_model_shards(model)};
    int rc;

    ash_assert(part == NULL || part->replica < part->replicas);
    ash_assert(part == NULL || part->node_replicas == NULL || part->node_shard_group == NULL);
    fresh.part =
        part != NULL ? *part : (struct ash_state_part){.is_counted = true, .is_dense_counted = true, .replicas = 1};
    rc = ash_model_place(model, exec, err);
    if (rc < 0) return rc;
    rc = ash_buffer_init(&fresh.result, exec->memory, sizeof(struct ash_squares), "results", err);
    if (rc < 0) return rc;
    rc = fresh.part.node_replicas != NULL ? ash_state_open_replicas(&fresh, bf16, err) : open_alone(&fresh, bf16, err);
    if (rc == 0 && fresh.window != NULL && fresh.part.tp_peers != NULL)
        rc = ash_group_window_show(fresh.part.tp_peers, fresh.window, 0, &fresh.tp_window, err);
    if (rc == 0) rc = make_copies(&fresh, fresh.part.is_blank, err);
    if (rc < 0) {
        fresh.model = NULL; /* still the caller's */
        ash_state_fini(&fresh);
        return rc;
    }
    *state = fresh;
    return 0;
}

void ash_state_fini(struct ash_state *state)
{
    ash_model_close(state->model);
    ash_buffer_fini(&state->m);
    ash_buffer_fini(&state->v);
    ash_buffer_fini(&state->bf16);
    ash_buffer_fini(&state->result);
    ash_window_close(state->tp_window);
    ash_window_close(state->window);
    memset(state, 0, sizeof(*state));
}

uint16_t *ash_state_bf16_of(const struct ash_state *state, const float *weights)
{
    return state->bf16.data != NULL ? (uint16_t *)state->bf16.data + (weights - ash_model_values(state->model)) : NULL;
}

/* ---- with others ------------------------------------------------------------------------------------------------- */

void ash_state_advance(struct ash_state *state)
{
    if (state->mates > 0) ash_state_swap_places(state);
    state->updates++;
    ash_model_refresh(state->model);
}

int ash_state_renew(struct ash_state *state, struct ash_err *err)
{
    int rc = ash_state_barrier(state, err);

    if (rc < 0) return rc;
    if (state->mates > 0) ash_state_copy_constants(state);
    rc = make_copies(state, false, err);
    state->is_taken = false;
    return rc;
}

/* Is the working copy in memory that others see? */
static bool is_shared(const struct ash_state *state)
{
    return state->window != NULL || state->tp_window != NULL;
}

static void trade_working_copies(struct ash_state *state, struct ash_state *old)
{
    struct ash_buffer bf16 = state->bf16;

    old->is_taken = false;
    if (bf16.data == NULL || old->bf16.data == NULL || is_shared(state) || is_shared(old)) return;
    state->is_taken = old->is_rounded;
    state->is_rounded = old->is_rounded;
    old->is_rounded = false;
    state->bf16 = old->bf16;
    old->bf16 = bf16;
}

bool ash_state_take(struct ash_state *state, struct ash_state *old)
{
    struct ash_buffer m = state->m, v = state->v;

    if (state->mates > 0 || old->mates > 0 || m.size_bytes != old->m.size_bytes) return false;
    if (!ash_model_trade_values(state->model, old->model)) return false;
    state->m = old->m;
    state->v = old->v;
    old->m = m;
    old->v = v;
    trade_working_copies(state, old);
    state->next = (struct ash_state_values){ash_model_values(state->model), state->m.data, state->v.data};
    old->next = (struct ash_state_values){ash_model_values(old->model), m.data, v.data};
    state->step = old->step;
    state->updates = old->updates;
    state->guard = old->guard;
    return true;
}

void ash_state_detach(struct ash_state *state)
{
    state->part.node_replicas = state->part.node_shard_group = state->part.tp_peers = NULL;
}

size_t ash_state_bytes(const struct ash_state *state)
{
    size_t moments = state->m.size_bytes + state->v.size_bytes;
    size_t weights = ash_model_slice(state->model)->shard_weights ? state->shards->total : ash_model_size(state->model);
    size_t held = state->part.node_shard_group != NULL ? state->shards->total : weights; /* of the working copy */

    if (state->part.node_replicas != NULL) return ash_state_replica_bytes(state);
    if (state->bf16.data == NULL) return held * sizeof(float) + moments;
    return weights * sizeof(float) + held * sizeof(uint16_t) + moments;
}

/* ---- hash -------------------------------------------------------------------------------------------------------- */

struct hash_ctx {
    const float *values;
    size_t count, full; /* full: the first's place in the whole tensor */
    uint64_t seed;
    _Atomic uint64_t sum; /* addition commutes: threads may add in any order */
};

static void hash_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct hash_ctx *hash = ctx;
    size_t first = begin * CHUNK_WORDS;
    size_t last = ash_min(end * CHUNK_WORDS, hash->count);
    uint64_t part = ash_hash_words((const uint32_t *)(const void *)(hash->values + first), last - first,
                                   hash->full + first, hash->seed);

    (void)worker;
    atomic_fetch_add_explicit(&hash->sum, part, memory_order_relaxed);
}

#define STAGED_WORDS ((size_t)4 << 20)

static uint64_t hash_piece(struct ash_exec *exec, const float *values, size_t count, size_t full, uint64_t seed);

/* The same of values that the host cannot read: through a buffer, some at a time. */
static uint64_t hash_staged(struct ash_exec *exec, const float *values, size_t count, size_t full, uint64_t seed)
{
    size_t most = ash_min(count, STAGED_WORDS);
    float *host = malloc(most * sizeof(*host));
    uint64_t sum = 0;

    ash_assert(host != NULL);
    for (size_t first = 0, some; first < count; first += some) {
        some = ash_min(count - first, most);
        ash_backend_read(exec, host, values + first, some * sizeof(*host));
        sum += hash_piece(NULL, host, some, full + first, seed);
    }
    free(host);
    return sum;
}

/* Elements [0, count) at values are full ... of the tensor. exec NULL: in host memory, by this thread. */
static uint64_t hash_piece(struct ash_exec *exec, const float *values, size_t count, size_t full, uint64_t seed)
{
    struct hash_ctx ctx = {.values = values, .count = count, .full = full, .seed = seed};

    if (exec != NULL && !exec->memory->host_visible) return hash_staged(exec, values, count, full, seed);
    if (exec == NULL) return ash_hash_words((const uint32_t *)(const void *)values, count, full, seed);
    if (count < CHUNK_WORDS) return ash_hash_words((const uint32_t *)(const void *)values, count, full, seed);
    ash_workers_run(exec->workers, ash_div_up(count, CHUNK_WORDS), 1, hash_range, &ctx);
    return atomic_load(&ctx.sum);
}

/* What of a parameter is in the shard, piece by piece. own points at its first element there. */
static uint64_t hash_tensor(struct ash_exec *exec, const char *kind, const struct ash_param *param,
                            const struct ash_shard_part *part, const float *own)
{
    char name[sizeof(param->name) + 16];
    size_t last = part->first + part->count;
    uint64_t seed, sum = 0;

    snprintf(name, sizeof(name), "%s/%s", kind, param->name);
    seed = ash_hash_str(name);
    for (size_t p = 0; p < ash_param_piece_count(param); p++) {
        struct ash_piece piece = ash_param_piece(param, p);
        size_t begin = ash_max(piece.local, part->first), end = ash_min(piece.local + piece.count, last);
        if (begin < end)
            sum += hash_piece(exec, own + (begin - part->first), end - begin, piece.full + (begin - piece.local), seed);
    }
    return sum;
}

static uint64_t hash_own(const struct ash_state *state)
{
    const float *values = ash_model_values(state->model), *m = state->m.data, *v = state->v.data;
    uint64_t sum = 0;

    for (size_t i = 0; state->part.is_counted && i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        struct ash_shard_part part = ash_shards_part(state->shards, param);

        if (!param->is_counted || !(param->is_expert || state->part.is_dense_counted) || part.count == 0) continue;
        sum += hash_tensor(state->exec, "weights", param, &part, values + param->offset + part.first);
        if (!param->is_trained) continue;
        sum += hash_tensor(state->exec, "m", param, &part, m + part.at);
        sum += hash_tensor(state->exec, "v", param, &part, v + part.at);
    }
    return sum;
}

static uint64_t finish_hash(const struct ash_state *state, uint64_t sum)
{
    return ash_hash_mix(sum ^ ash_hash_mix(state->step ^ ash_hash_mix(state->updates)));
}

uint64_t ash_state_hash(const struct ash_state *state)
{
    return finish_hash(state, hash_own(state));
}

int ash_state_hash_all(const struct ash_state *const *states, size_t count, struct ash_group *group, uint64_t *hash_out,
                       struct ash_err *err)
{
    uint64_t sum = 0;
    int rc;

    ash_assert(count > 0);
    for (size_t i = 0; i < count; i++)
        sum += hash_own(states[i]);
    rc = ash_group_all_reduce(group, &sum, &sum, 1, ASH_COLL_I64, ASH_COLL_SUM, err);
    if (rc < 0) return rc;
    *hash_out = finish_hash(states[0], sum);
    return 0;
}
