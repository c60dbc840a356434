/* fsdp: weights that are put together from the parts of all ranks. */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

size_t ash_fsdp_width(const struct ash_fsdp *fsdp)
{
    return fsdp->state->bf16.data != NULL ? sizeof(uint16_t) : sizeof(float);
}

/* Do the ranks keep one working copy together? Then everything is where passes read it. */
static bool is_shared(const struct ash_fsdp *fsdp)
{
    return fsdp->state->part.sharers != NULL;
}

/* The largest unit, its parts filled up. */
static size_t largest_unit(const struct ash_shards *shards)
{
    size_t most = 0;

    for (size_t i = 0; i < shards->unit_count; i++)
        if (shards->units[i].part > most) most = shards->units[i].part;
    return most * shards->size;
}

static int open_slots(struct ash_fsdp *fsdp, size_t count, struct ash_err *err)
{
    size_t bytes = largest_unit(fsdp->shards) * ash_fsdp_width(fsdp);

    for (; fsdp->slot_count < count; fsdp->slot_count++) {
        int rc = ash_buffer_init(&fsdp->slots[fsdp->slot_count].data, fsdp->state->exec->memory, bytes,
                                 "weights of a layer", err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_fsdp_init(struct ash_fsdp *fsdp, struct ash_state *state, struct ash_mesh *mesh, size_t grain_count,
                  size_t grain_micros, struct ash_err *err)
{
    int rc;

    *fsdp = (struct ash_fsdp){.state = state,
                              .mesh = mesh,
                              .group = mesh->groups[ASH_MESH_FSDP],
                              .shards = ash_model_shards(state->model),
                              .grain_count = grain_count,
                              .streams = mesh->zero > 1 && grain_micros == 1};
    if (mesh->zero == 0) return 0;
    rc = open_slots(fsdp,
                    is_shared(fsdp)                           ? 0
                    : mesh->zero < 3                          ? 1
                    : ash_model_expert_size(state->model) > 0 ? ASH_FSDP_SLOTS_MAX
                                                              : ASH_FSDP_SLOTS,
                    err);
    if (rc == 0) rc = ash_fsdp_open_sums(fsdp, err);
    if (rc < 0) ash_fsdp_fini(fsdp);
    return rc;
}

void ash_fsdp_fini(struct ash_fsdp *fsdp)
{
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        ash_call_wait(fsdp->slots[i].call, NULL);
        ash_buffer_fini(&fsdp->slots[i].data);
    }
    for (size_t lane = 0; fsdp->expert_leaves != NULL && lane < fsdp->experts.opts.lane_count; lane++)
        ash_buffer_fini(&fsdp->expert_leaves[lane]);
    free(fsdp->expert_leaves);
    ash_grains_fini(&fsdp->sums);
    ash_grains_fini(&fsdp->experts);
    ash_fsdp_close_leaf(fsdp);
    ash_buffer_fini(&fsdp->inbox);
    free(fsdp->send);
    free(fsdp->recv);
    memset(fsdp, 0, sizeof(*fsdp));
}

/* ---- putting units together -------------------------------------------------------------------------------------- */

static char *weights(const struct ash_fsdp *fsdp)
{
    return fsdp->state->bf16.data != NULL ? fsdp->state->bf16.data : (void *)ash_model_values(fsdp->state->model);
}

/* Begin to bring a unit into a slot. */
static int start(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, const struct ash_shard_unit *unit,
                 struct ash_err *err)
{
    size_t width = ash_fsdp_width(fsdp), bytes = unit->part * width;
    char *own = (char *)slot->data.data + fsdp->shards->rank * bytes;

    memcpy(own, weights(fsdp) + unit->own.first * width, unit->own.count * width);
    slot->unit = unit;
    return ash_group_all_gather_start(fsdp->group, own, slot->data.data, bytes, &slot->call, err);
}

static int wait_for(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, struct ash_err *err)
{
    struct ash_call *call = slot->call;

    int rc;

    slot->call = NULL;
    ash_meter_begin(&fsdp->mesh->meter);
    rc = ash_call_wait(call, err);
    ash_meter_end(&fsdp->mesh->meter, ASH_METER_COMM);
    return rc;
}

/* Have the passes read a unit's parameters in the slot. */
static void bind(struct ash_fsdp *fsdp, const struct ash_fsdp_slot *slot)
{
    struct ash_model *model = fsdp->state->model;
    const struct ash_run *whole = &slot->unit->whole;

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        size_t offset = ash_model_param(model, i)->offset;
        if (offset >= whole->first && offset < whole->first + whole->count)
            ash_model_bind(model, i, (char *)slot->data.data + (offset - whole->first) * ash_fsdp_width(fsdp));
    }
}

static struct ash_fsdp_slot *slot_with(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    for (size_t i = 0; i < fsdp->slot_count; i++)
        if (fsdp->slots[i].unit == unit) return &fsdp->slots[i];
    return NULL;
}

/* The slot that was asked for longest ago. All ranks ask for the same, so all take the same. */
static struct ash_fsdp_slot *oldest(struct ash_fsdp *fsdp)
{
    struct ash_fsdp_slot *slot = &fsdp->slots[0];

    for (size_t i = 1; i < fsdp->slot_count; i++)
        if (fsdp->slots[i].used < slot->used) slot = &fsdp->slots[i];
    return slot;
}

/* The unit is in a slot, or on its way. */
static int fetch(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_fsdp_slot **slot_out,
                 struct ash_err *err)
{
    struct ash_fsdp_slot *slot = slot_with(fsdp, unit);
    int rc = 0;

    if (slot == NULL) {
        slot = oldest(fsdp);
        if ((rc = wait_for(fsdp, slot, err)) < 0) return rc;
        rc = start(fsdp, slot, unit, err);
    }
    slot->used = ++fsdp->clock;
    *slot_out = slot;
    return rc;
}

/* Which unit a pass asks for behind this one. */
static int next_unit(const struct ash_fsdp *fsdp, int unit, bool backward)
{
    int layers = 0;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit < ASH_UNIT_HEAD && fsdp->shards->units[i].unit + 1 > layers)
            layers = fsdp->shards->units[i].unit + 1;
    if (backward) return unit == ASH_UNIT_HEAD ? layers - 1 : unit - 1;
    return unit + 1 == layers ? ASH_UNIT_HEAD : unit + 1;
}

static int fetch_next(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err)
{
    int next = next_unit(fsdp, unit, backward);
    struct ash_fsdp_slot *slot;
    int rc;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == next && (rc = fetch(fsdp, &fsdp->shards->units[i], &slot, err)) < 0)
            return rc;
    return 0;
}

static int need(void *ctx, int unit, bool backward, struct ash_err *err)
{
    struct ash_fsdp *fsdp = ctx;
    int rc;

    if (backward && ash_fsdp_in_turn(fsdp, unit) && (rc = ash_fsdp_clear_layer(fsdp, unit, err)) < 0) return rc;
    if (fsdp->mesh->zero < 3 || is_shared(fsdp)) return 0;
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        struct ash_fsdp_slot *slot = NULL;
        if (fsdp->shards->units[i].unit != unit) continue;
        if ((rc = fetch(fsdp, &fsdp->shards->units[i], &slot, err)) < 0) return rc;
        if ((rc = wait_for(fsdp, slot, err)) < 0) return rc;
        bind(fsdp, slot);
    }
    return fetch_next(fsdp, unit, backward, err);
}

/* The gradients of what stands before and behind the layers are complete only when the grain is. */
static int done(void *ctx, int unit, bool backward, struct ash_err *err)
{
    struct ash_fsdp *fsdp = ctx;
    int rc;

    for (size_t i = 0; fsdp->mesh->zero == 3 && is_shared(fsdp) && i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == unit) ash_state_look_away(fsdp->state, fsdp->shards->units[i].whole);
    if (!backward || !ash_fsdp_in_turn(fsdp, unit)) return 0;
    if ((rc = ash_fsdp_take(fsdp, err)) < 0) return rc; /* of the layer before, which others have had time for */
    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == unit && (rc = ash_fsdp_send_unit(fsdp, &fsdp->shards->units[i], err)) < 0)
            return rc;
    return 0;
}

struct ash_pass_hooks ash_fsdp_hooks(struct ash_fsdp *fsdp)
{
    if (fsdp->mesh->zero < 2) return (struct ash_pass_hooks){0};
    return (struct ash_pass_hooks){need, done, fsdp};
}

int ash_fsdp_whole(struct ash_fsdp *fsdp, const struct ash_param *param, const void **data_out, struct ash_err *err)
{
    const struct ash_shard_unit *unit = fsdp->shards->units;
    struct ash_fsdp_slot *slot = NULL;
    int rc;

    *data_out = weights(fsdp) + param->offset * ash_fsdp_width(fsdp);
    if (fsdp->mesh->zero < 3 || is_shared(fsdp)) return 0;
    while (param->offset >= unit->whole.first + unit->whole.count)
        unit++;
    if ((rc = fetch(fsdp, unit, &slot, err)) < 0 || (rc = wait_for(fsdp, slot, err)) < 0) return rc;
    *data_out = (char *)slot->data.data + (param->offset - unit->whole.first) * ash_fsdp_width(fsdp);
    return 0;
}

void ash_fsdp_keep(struct ash_fsdp *fsdp, const struct ash_param *param, const void *data)
{
    size_t width = ash_fsdp_width(fsdp);
    bool copied = (fsdp->mesh->zero == 1 || fsdp->mesh->zero == 2) && !is_shared(fsdp);
    struct ash_shard_part part = {0, param->count, 0};

    if (!copied) part = ash_shards_part_in(fsdp->shards, param, fsdp->state->own);
    memcpy(weights(fsdp) + (param->offset + part.first) * width, (const char *)data + part.first * width,
           part.count * width);
}

/* zero 3: what lies in the slots is old. */
static int forget(struct ash_fsdp *fsdp, struct ash_err *err)
{
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        int rc = wait_for(fsdp, &fsdp->slots[i], err);
        if (rc < 0) return rc;
        fsdp->slots[i].unit = NULL;
    }
    return 0;
}

/* All parts of a unit to where its weights are: at once where they are of equal size, else through a slot. */
static int bring(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_err *err)
{
    struct ash_fsdp_slot *slot = &fsdp->slots[0];
    size_t width = ash_fsdp_width(fsdp), bytes = unit->part * width;
    char *whole = weights(fsdp) + unit->whole.first * width;
    int rc;

    if (unit->part * fsdp->shards->size == unit->whole.count)
        return ash_group_all_gather(fsdp->group, whole + fsdp->shards->rank * bytes, whole, bytes, err);
    if ((rc = start(fsdp, slot, unit, err)) < 0 || (rc = wait_for(fsdp, slot, err)) < 0) return rc;
    memcpy(whole, slot->data.data, unit->whole.count * width);
    return 0;
}

int ash_fsdp_spread(struct ash_fsdp *fsdp, struct ash_err *err)
{
    if (fsdp->mesh->zero == 3 && is_shared(fsdp)) /* vectors have just been read */
        ash_state_look_away(fsdp->state, (struct ash_run){0, ash_model_size(fsdp->state->model)});
    if (fsdp->mesh->zero == 0 || is_shared(fsdp)) return 0;
    if (fsdp->mesh->zero == 3) return forget(fsdp, err);
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        int rc = bring(fsdp, &fsdp->shards->units[i], err);
        if (rc < 0) return rc;
    }
    ash_model_refresh(fsdp->state->model);
    return 0;
}

/* Gradients that are on their way to their owners. */
static size_t leaf_bytes(const struct ash_fsdp *fsdp)
{
    size_t lanes = fsdp->experts.opts.lane_count, layer = largest_unit(fsdp->shards) * sizeof(float);

    if (lanes == 0 || fsdp->streams) return fsdp->leaf.size_bytes + lanes * layer;
    return fsdp->leaf.size_bytes + lanes * fsdp->expert_leaves[0].size_bytes;
}

size_t ash_fsdp_bytes(const struct ash_fsdp *fsdp)
{
    size_t bytes = fsdp->inbox.size_bytes;

    if (fsdp->mesh->zero == 0) return 0;
    for (size_t i = 0; i < fsdp->slot_count; i++)
        bytes += fsdp->slots[i].data.size_bytes;
    return bytes + ash_grains_bytes(&fsdp->sums) + ash_grains_bytes(&fsdp->experts) + leaf_bytes(fsdp);
}
