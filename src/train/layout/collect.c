/* collect: every rank copies the pieces that it counts for into a tensor of zeros, and the bits of all are added as
 * integers: that changes no bit, since only one rank has each element. */
#include "train/layout/collect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/assert.h"
#include "compute/backends/backends.h"

#define COLLECT_COUNT ((size_t)1 << 24) /* values of one call */

struct ash_collect {
    struct ash_stages *stages;
    struct ash_group *group; /* NULL: the state is whole */
    struct ash_model *outline;
    bool moments;
    size_t next;   /* the first tensor of the order that was not requested yet */
    size_t total;  /* tensors in the order */
    size_t staged; /* 1 + the one that is in `tensor` from a device; 0: none */
    size_t *order; /* [total]: 3 * parameter + kind */
    float *tensor; /* room for the largest; NULL: the state is whole, and where the host can read it */
};

/* What computes the state, and whose memory it is in. */
static const struct ash_exec *exec_of(const struct ash_collect *collect)
{
    return collect->stages->chunks[0].state.exec;
}

static int list_order(struct ash_collect *collect, struct ash_err *err)
{
    size_t count = ash_model_param_count(collect->outline), most = 0;

    collect->order = calloc(3 * count + 1, sizeof(*collect->order));
    if (collect->order == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a list of tensors");
    for (size_t i = 0; i < count; i++) {
        size_t full = ash_param_full_count(ash_model_param(collect->outline, i));
        collect->order[collect->total++] = 3 * i + ASH_COLLECT_WEIGHTS;
        most = ash_max(most, full);
    }
    for (size_t i = 0; collect->moments && i < count; i++) {
        if (!ash_model_param(collect->outline, i)->is_trained) continue;
        collect->order[collect->total++] = 3 * i + ASH_COLLECT_M;
        collect->order[collect->total++] = 3 * i + ASH_COLLECT_V;
    }
    ash_assert(collect->total <= 3 * count);
    if (collect->group == NULL && exec_of(collect)->memory->host_visible) return 0;
    collect->tensor = malloc(most * sizeof(float));
    return collect->tensor != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for a tensor of %zu values", most);
}

int ash_collect_open(struct ash_stages *stages, bool moments, struct ash_collect **collect_out, struct ash_err *err)
{
    struct ash_collect *collect = calloc(1, sizeof(*collect));
    int rc;

    if (collect == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    collect->stages = stages;
    collect->group = ash_mesh_is_whole(stages->mesh) ? NULL : stages->mesh->world;
    collect->moments = moments;
    rc = ash_model_outline(ash_model_get_config(stages->chunks[0].state.model), &collect->outline, err);
    if (rc == 0) rc = list_order(collect, err);
    if (rc < 0) {
        ash_model_close(collect->outline);
        free(collect->order);
        free(collect);
        return rc;
    }
    *collect_out = collect;
    return 0;
}

/* The values of a kind that this rank keeps of a parameter. */
static const float *own_values(const struct ash_state *state, const struct ash_param *param,
                               const struct ash_shard_part *part, enum ash_collect_kind kind)
{
    if (kind == ASH_COLLECT_WEIGHTS) return ash_model_values(state->model) + param->offset + part->first;
    return (const float *)(kind == ASH_COLLECT_M ? state->m.data : state->v.data) + part->at;
}

/* Copy the parts that this chunk is counted for into the whole tensor. */
static void put_parts(const struct ash_state *state, const char *name, enum ash_collect_kind kind, float *tensor)
{
    const struct ash_param *param = ash_model_find(state->model, name);
    struct ash_shard_part part;
    const float *own;

    if (param == NULL || !param->is_counted || !state->part.is_counted ||
        !(param->is_expert || state->part.is_dense_counted))
        return;
    part = ash_shards_part(state->shards, param);
    own = own_values(state, param, &part, kind);
    for (size_t p = 0; p < ash_param_piece_count(param); p++) {
        struct ash_piece piece = ash_param_piece(param, p);
        size_t last = part.first + part.count, begin = ash_max(piece.local, part.first),
               end = ash_min(piece.local + piece.count, last);
        if (begin < end)
            ash_backend_read(state->exec, tensor + piece.full + (begin - piece.local), own + (begin - part.first),
                             (end - begin) * sizeof(float));
    }
}

/* The next tensor of the order, on all ranks. */
static int gather_next(struct ash_collect *collect, struct ash_err *err)
{
    size_t entry = collect->order[collect->next++];
    const struct ash_param *param = ash_model_param(collect->outline, entry / 3);
    size_t count = ash_param_full_count(param);

    ash_assert(entry < 3 * ash_model_param_count(collect->outline));
    if (collect->group == NULL) return 0;
    memset(collect->tensor, 0, count * sizeof(float));
    for (size_t i = 0; i < collect->stages->chunk_count; i++)
        put_parts(&collect->stages->chunks[i].state, param->name, (enum ash_collect_kind)(entry % 3), collect->tensor);
    return ash_group_all_reduce(collect->group, collect->tensor, collect->tensor, count, ASH_COLL_I32, ASH_COLL_SUM,
                                err);
}

/* Copy a whole tensor out of memory that the host cannot read, once however often parts of it are requested. */
static int stage(struct ash_collect *collect, size_t wanted, const struct ash_param *param, const float **values,
                 size_t count, struct ash_err *err)
{
    const struct ash_memory_ops *memory = exec_of(collect)->memory;
    int rc = collect->staged == wanted + 1 ? 0 : memory->copy(collect->tensor, *values, count * sizeof(float));

    if (rc < 0) return ash_err_set(err, rc, "cannot read %s from the memory of '%s'", param->name, memory->name);
    collect->staged = wanted + 1;
    *values = collect->tensor;
    return 0;
}

int ash_collect_tensor(struct ash_collect *collect, enum ash_collect_kind kind, size_t index, const float **values_out,
                       struct ash_err *err)
{
    size_t wanted = 3 * index + kind;
    int rc;

    ash_assert(kind < 3 && index < ash_model_param_count(collect->outline));
    while (collect->next == 0 || collect->order[collect->next - 1] != wanted) {
        ash_assert(collect->next < collect->total);
        rc = gather_next(collect, err);
        if (rc < 0) return rc;
    }
    if (collect->group != NULL) {
        *values_out = collect->tensor;
        return 0;
    }
    const struct ash_state *state = &collect->stages->chunks[0].state;
    const struct ash_param *param = ash_model_param(state->model, index);
    struct ash_shard_part part = ash_shards_part(state->shards, param);
    *values_out = own_values(state, param, &part, kind);
    return collect->tensor != NULL ? stage(collect, wanted, param, values_out, part.count, err) : 0;
}

int ash_collect_close(struct ash_collect *collect, int rc, int *rc_out, struct ash_err *err)
{
    int32_t result = rc;
    int lost = 0;

    while (lost == 0 && collect->group != NULL && collect->next < collect->total)
        lost = gather_next(collect, err);
    if (lost == 0 && collect->group != NULL)
        lost = ash_group_broadcast(collect->group, &result, sizeof(result), 0, err);
    if (lost == 0) *rc_out = result;
    ash_model_close(collect->outline);
    free(collect->order);
    free(collect->tensor);
    free(collect);
    return lost;
}

/* In place and all at once: a sampler waits for it in every step. */
int ash_collect_model(struct ash_stages *stages, struct ash_model *model, struct ash_err *err)
{
    float *values = ash_model_values(model);
    size_t size = ash_model_size(model);
    int rc = 0;

    ash_assert(!ash_mesh_is_whole(stages->mesh));
    memset(values, 0, size * sizeof(*values));
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        ash_assert(param->count == ash_param_full_count(param));
        for (size_t c = 0; c < stages->chunk_count; c++)
            put_parts(&stages->chunks[c].state, param->name, ASH_COLLECT_WEIGHTS, values + param->offset);
    }
    for (size_t first = 0; rc == 0 && first < size; first += COLLECT_COUNT)
        rc = ash_group_all_reduce(stages->mesh->world, values + first, values + first,
                                  ash_min(size - first, COLLECT_COUNT), ASH_COLL_I32, ASH_COLL_SUM, err);
    if (rc == 0) ash_model_refresh(model);
    return rc;
}
