/* state: weights and moments side by side at the same offsets, and a hash over them that any split of the work agrees
 * on. */
#include "train/state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "base/hash.h"

#define CHUNK_WORDS ((size_t)1 << 14) /* one unit of the parallel loops */

int ash_state_init(struct ash_state *state, struct ash_exec *exec, struct ash_model *model, bool bf16,
                   struct ash_err *err)
{
    struct ash_state fresh = {.exec = exec};
    size_t size = ash_model_size(model);
    int rc;

    if ((rc = ash_buffer_init(&fresh.m, exec->memory, size * sizeof(float), "first moments", err)) < 0 ||
        (rc = ash_buffer_init(&fresh.v, exec->memory, size * sizeof(float), "second moments", err)) < 0 ||
        (bf16 && (rc = ash_buffer_init(&fresh.bf16, exec->memory, size * sizeof(uint16_t), "bf16 weights", err)) < 0)) {
        ash_state_fini(&fresh);
        return rc;
    }
    *state = fresh;
    state->model = model;
    ash_state_refresh(state);
    return 0;
}

void ash_state_fini(struct ash_state *state)
{
    ash_model_close(state->model);
    ash_buffer_fini(&state->m);
    ash_buffer_fini(&state->v);
    ash_buffer_fini(&state->bf16);
    memset(state, 0, sizeof(*state));
}

struct convert_ctx {
    const float *from;
    uint16_t *to;
    size_t count;
};

static void convert_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct convert_ctx *convert = ctx;
    size_t last = end * CHUNK_WORDS < convert->count ? end * CHUNK_WORDS : convert->count;

    (void)worker;
    for (size_t i = begin * CHUNK_WORDS; i < last; i++)
        convert->to[i] = ash_f32_to_bf16(convert->from[i]);
}

void ash_state_refresh(struct ash_state *state)
{
    if (state->bf16.data != NULL) {
        struct convert_ctx ctx = {ash_model_values(state->model), state->bf16.data, ash_model_size(state->model)};
        ash_workers_run(state->exec->workers, (ctx.count + CHUNK_WORDS - 1) / CHUNK_WORDS, 1, convert_range, &ctx);
        ash_model_use_bf16(state->model, state->bf16.data);
    }
    ash_model_refresh(state->model);
}

struct hash_ctx {
    const float *values;
    size_t count;
    uint64_t seed;
    _Atomic uint64_t sum; /* addition commutes: whoever comes first */
};

static void hash_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct hash_ctx *hash = ctx;
    size_t first = begin * CHUNK_WORDS;
    size_t last = end * CHUNK_WORDS < hash->count ? end * CHUNK_WORDS : hash->count;
    uint64_t part =
        ash_hash_words((const uint32_t *)(const void *)(hash->values + first), last - first, first, hash->seed);

    (void)worker;
    atomic_fetch_add_explicit(&hash->sum, part, memory_order_relaxed);
}

static uint64_t hash_tensor(struct ash_exec *exec, const char *kind, const struct ash_param *param, const float *values)
{
    char name[sizeof(param->name) + 16];

    snprintf(name, sizeof(name), "%s/%s", kind, param->name);
    struct hash_ctx ctx = {.values = values + param->offset, .count = param->count, .seed = ash_hash_str(name)};
    ash_workers_run(exec->workers, (param->count + CHUNK_WORDS - 1) / CHUNK_WORDS, 1, hash_range, &ctx);
    return atomic_load(&ctx.sum);
}

uint64_t ash_state_hash(const struct ash_state *state)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        sum += hash_tensor(state->exec, "weights", param, ash_model_values(state->model));
        if (!param->trained) continue;
        sum += hash_tensor(state->exec, "m", param, state->m.data);
        sum += hash_tensor(state->exec, "v", param, state->v.data);
    }
    return ash_hash_mix(sum ^ ash_hash_mix(state->step ^ ash_hash_mix(state->updates)));
}
