/* patches: lists of what of a model's state lies where in this process. */
#include "train/recover/patches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"

void ash_patches_fini(struct ash_patches *patches)
{
    free(patches->items);
    memset(patches, 0, sizeof(*patches));
}

int ash_patches_add(struct ash_patches *patches, const struct ash_patch *patch, struct ash_err *err)
{
    if (ash_array_reserve(&patches->items, &patches->room, patches->count + 1, sizeof(*patches->items)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a list of %zu tensors", patches->count + 1);
    patches->items[patches->count++] = *patch;
    return 0;
}

/* The whole model's parameter of that name. Both lists have the same order, so the search continues from *hint. */
static size_t find_param(const struct ash_model *outline, const char *name, size_t *hint)
{
    size_t count = ash_model_param_count(outline), at = *hint;

    for (size_t i = 0; i < count; i++, at = (at + 1) % count) {
        if (strcmp(ash_model_param(outline, at)->name, name) != 0) continue;
        *hint = at;
        return at;
    }
    return SIZE_MAX;
}

/* The part of one parameter here: all of the shard, or the part that this process updates. */
struct held {
    const struct ash_stage *stage;
    size_t chunk, index; /* of the parameter in the whole model */
    const struct ash_param *param;
    struct ash_shard_part part;
};

/* Elements `some` of the parameter here are `full` ... of the whole one. */
static int add_piece(struct ash_patches *patches, const struct held *held, struct ash_range some, size_t full,
                     struct ash_err *err)
{
    const struct ash_state *state = &held->stage->state;
    size_t in_part = some.first - held->part.first, flat = held->param->offset + some.first;
    struct ash_patch patch = {.range = {(uint32_t)held->index, held->param->is_trained, full, some.count},
                              .values = {ash_model_values(state->model) + flat},
                              .chunk = held->chunk,
                              .grad_at = held->stage->optimizer.flat ? flat : held->part.at + in_part};

    if (held->param->is_trained) {
        patch.values[ASH_PATCH_M] = (float *)state->m.data + held->part.at + in_part;
        patch.values[ASH_PATCH_V] = (float *)state->v.data + held->part.at + in_part;
    }
    return ash_patches_add(patches, &patch, err);
}

static int add_param(struct ash_patches *patches, const struct held *held, struct ash_err *err)
{
    struct ash_range own = {held->part.first, held->part.count};
    int rc = 0;

    for (size_t p = 0; rc == 0 && p < ash_param_piece_count(held->param); p++) {
        struct ash_piece piece = ash_param_piece(held->param, p);
        struct ash_range some = ash_range_overlap((struct ash_range){piece.local, piece.count}, own);

        if (some.count > 0) rc = add_piece(patches, held, some, piece.full + (some.first - piece.local), err);
    }
    return rc;
}

int ash_patches_add_stages(struct ash_patches *patches, const struct ash_stages *stages,
                           const struct ash_model *outline, bool reads, struct ash_err *err)
{
    size_t hint = 0;
    int rc = 0;

    for (size_t c = 0; c < stages->chunk_count; c++) {
        struct held held = {.stage = &stages->chunks[c], .chunk = c};
        const struct ash_state *state = &held.stage->state;
        struct ash_range run = reads ? (struct ash_range){0, state->shards->total} : state->own;

        for (size_t i = 0; rc == 0 && i < ash_model_param_count(state->model); i++) {
            held.param = ash_model_param(state->model, i);
            held.part = ash_shards_part_in(state->shards, held.param, run);
            if (held.param->is_tied_copy || held.part.count == 0) continue;
            held.index = find_param(outline, held.param->name, &hint);
            ash_assert(held.index != SIZE_MAX);
            rc = add_param(patches, &held, err);
        }
    }
    return rc;
}

int ash_patches_add_sums(struct ash_patches *patches, const struct ash_stage *stage, const struct ash_model *outline,
                         float *sums, size_t first_param, struct ash_err *err)
{
    const struct ash_model *model = stage->state.model;
    size_t hint = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        if (!param->is_trained || param->is_tied_copy) continue;
        size_t index = find_param(outline, param->name, &hint);
        ash_assert(index != SIZE_MAX);
        for (size_t p = 0; rc == 0 && p < ash_param_piece_count(param); p++) {
            struct ash_piece piece = ash_param_piece(param, p);
            struct ash_patch patch = {.range = {(uint32_t)(first_param + index), 0, piece.full, piece.count},
                                      .values = {sums + param->offset + piece.local}};

            rc = ash_patches_add(patches, &patch, err);
        }
    }
    return rc;
}

const void *ash_patches_read(const struct ash_exec *exec, const void *values, size_t size_bytes,
                             struct ash_buffer *room, struct ash_err *err)
{
    int rc;

    if (exec->memory->host_visible) return values;
    if (room->size_bytes < size_bytes) {
        ash_buffer_fini(room);
        rc = ash_buffer_init(room, &ash_memory_host, size_bytes, "values that are read", err);
        if (rc < 0) return NULL;
    }
    rc = exec->memory->copy(room->data, values, size_bytes);
    if (rc == 0) return room->data;
    ash_err_set(err, rc, "cannot read the memory of '%s'", exec->memory->name);
    return NULL;
}

size_t ash_patch_bytes(const struct ash_patch_range *range)
{
    return (size_t)range->count * sizeof(float) * (range->has_moments != 0 ? ASH_PATCH_KINDS : 1);
}
