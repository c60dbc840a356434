/* fsdp: weights that are put together from the parts of all ranks. */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "collective/host/window.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

size_t ash_fsdp_width(const struct ash_fsdp *fsdp)
{
    return fsdp->state->bf16.data != NULL ? sizeof(uint16_t) : sizeof(float);
}

bool ash_fsdp_is_shared(const struct ash_fsdp *fsdp)
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

/* Slots that the ranks of tp see: sums by rows read their weights there (model/axis.h). Ranks meet in every unit, so no
 * other is further behind than the unit before this rank's, and nobody reads any more in the slot that it takes next.
 */
static int open_seen_slots(struct ash_fsdp *fsdp, struct ash_group *readers, size_t count, struct ash_err *err)
{
    int64_t bytes = (int64_t)(largest_unit(fsdp->shards) * ash_fsdp_width(fsdp)); /* may differ */
    int rc = ash_group_all_reduce(readers, &bytes, &bytes, 1, ASH_COLL_I64, ASH_COLL_MAX, err);

    if (rc == 0) rc = ash_group_window_open(readers, (size_t)bytes * count, &fsdp->slot_window, err);
    if (rc < 0) return rc;
    ash_window_fill(fsdp->slot_window);
    for (; fsdp->slot_count < count; fsdp->slot_count++)
        fsdp->slots[fsdp->slot_count].data =
            (struct ash_buffer){.data = (char *)ash_window_data(fsdp->slot_window) + fsdp->slot_count * (size_t)bytes,
                                .size_bytes = (size_t)bytes};
    return 0;
}

static int open_slots(struct ash_fsdp *fsdp, size_t count, struct ash_err *err)
{
    struct ash_group *readers = ash_mesh_readers(fsdp->mesh);
    size_t bytes = largest_unit(fsdp->shards) * ash_fsdp_width(fsdp);

    if (fsdp->mesh->zero == 3 && count > 0 && readers != NULL) return open_seen_slots(fsdp, readers, count, err);
    for (; fsdp->slot_count < count; fsdp->slot_count++) {
        int rc = ash_buffer_init(&fsdp->slots[fsdp->slot_count].data, fsdp->state->exec->memory, bytes,
                                 "weights of a layer", err);
        if (rc < 0) return rc;
    }
    return 0;
}

static size_t slots_of(const struct ash_fsdp *fsdp)
{
    size_t units = ash_model_expert_size(fsdp->state->model) > 0 ? 2 : 1; /* of a layer */

    if (ash_fsdp_is_shared(fsdp)) return 0;
    if (fsdp->mesh->zero < 3) return 1;
    return units * (ash_mesh_readers(fsdp->mesh) != NULL ? ASH_FSDP_SLOTS_SEEN : ASH_FSDP_SLOTS);
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
    rc = open_slots(fsdp, slots_of(fsdp), err);
    if (rc == 0 && ash_fsdp_is_brought(fsdp)) rc = ash_fsdp_open_bringing(fsdp, err);
    if (rc == 0) rc = ash_fsdp_open_sums(fsdp, err);
    if (rc < 0) ash_fsdp_fini(fsdp);
    return rc;
}

void ash_fsdp_fini(struct ash_fsdp *fsdp)
{
    ash_fsdp_close_flights(fsdp);
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        ash_call_wait(fsdp->slots[i].call, NULL);
        ash_buffer_fini(&fsdp->slots[i].data);
    }
    ash_fsdp_close_bringing(fsdp);
    ash_window_close(fsdp->slot_window);
    for (size_t lane = 0; fsdp->expert_leaves != NULL && lane < fsdp->experts.opts.lane_count; lane++)
        ash_buffer_fini(&fsdp->expert_leaves[lane]);
    free(fsdp->expert_leaves);
    ash_grains_fini(&fsdp->sums);
    ash_grains_fini(&fsdp->experts);
    ash_fsdp_close_leaf(fsdp);
    memset(fsdp, 0, sizeof(*fsdp));
}

/* ---- putting units together -------------------------------------------------------------------------------------- */

char *ash_fsdp_weights(const struct ash_fsdp *fsdp)
{
    return fsdp->state->bf16.data != NULL ? fsdp->state->bf16.data : (void *)ash_model_values(fsdp->state->model);
}

int ash_fsdp_gather(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, const struct ash_shard_unit *unit,
                    struct ash_err *err)
{
    size_t width = ash_fsdp_width(fsdp), bytes = unit->part * width;
    char *own = (char *)slot->data.data + fsdp->shards->rank * bytes;

    memcpy(own, ash_fsdp_weights(fsdp) + unit->own.first * width, unit->own.count * width);
    slot->unit = unit;
    return ash_group_all_gather_start(fsdp->group, own, slot->data.data, bytes, &slot->call, err);
}

int ash_fsdp_wait(struct ash_fsdp *fsdp, struct ash_call **call, struct ash_err *err)
{
    struct ash_call *waited = *call;
    int rc;

    *call = NULL;
    ash_meter_begin(&fsdp->mesh->meter);
    rc = ash_call_wait(waited, err);
    ash_meter_end(&fsdp->mesh->meter, ASH_METER_COMM);
    return rc;
}

static int wait_for(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, struct ash_err *err)
{
    return ash_fsdp_wait(fsdp, &slot->call, err);
}

void ash_fsdp_bind(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, const char *data)
{
    struct ash_model *model = fsdp->state->model;
    const struct ash_range *whole = &unit->whole;

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        size_t offset = ash_model_param(model, i)->offset;
        if (offset >= whole->first && offset < whole->first + whole->count)
            ash_model_bind(model, i, data + (offset - whole->first) * ash_fsdp_width(fsdp));
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
        rc = ash_fsdp_gather(fsdp, slot, unit, err);
    }
    slot->used = ++fsdp->clock;
    *slot_out = slot;
    return rc;
}

#define NO_UNIT (ASH_UNIT_EMBED - 1) /* before a pass, which asks for the embedding first */

/* Which unit a pass asks for behind this one. */
static int next_unit(const struct ash_fsdp *fsdp, int unit, bool backward)
{
    int layers = (int)ash_model_get_config(fsdp->state->model)->layers;

    if (backward) return unit == ASH_UNIT_HEAD ? layers - 1 : unit - 1;
    if (unit == ASH_UNIT_HEAD) return ash_model_get_config(fsdp->state->model)->tied ? ASH_UNIT_EMBED : NO_UNIT;
    return unit + 1 == layers ? ASH_UNIT_HEAD : unit + 1;
}

/* Units that are fetched while one is at work: two, where those and it fill the slots. Beside a tied output matrix
 * there is the embedding, too; and where others read in the slots, those of both and of the unit before are taken. */
static int ahead_of(const struct ash_fsdp *fsdp, int unit)
{
    bool both = unit == ASH_UNIT_HEAD || (unit == ASH_UNIT_EMBED && fsdp->slot_window != NULL);

    return both && ash_model_get_config(fsdp->state->model)->tied ? 1 : ASH_FSDP_SLOTS - 1;
}

/* What passes ask for behind a unit is on its way while they work with it. Nothing is, behind the step's last. */
static int fetch_next(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err)
{
    struct ash_fsdp_slot *slot;
    int rc, next = unit;

    for (int ahead = ahead_of(fsdp, unit); ahead > 0; ahead--) {
        next = next_unit(fsdp, next, backward);
        if (next == ASH_UNIT_EMBED && backward && fsdp->last) return 0;
        for (size_t i = 0; i < fsdp->shards->unit_count; i++)
            if (fsdp->shards->units[i].unit == next && (rc = fetch(fsdp, &fsdp->shards->units[i], &slot, err)) < 0)
                return rc;
    }
    return 0;
}

/* ---- around the layers of a pass --------------------------------------------------------------------------------- */

bool ash_fsdp_has_hooks(const struct ash_fsdp *fsdp)
{
    return fsdp->mesh->zero > 1 || ash_fsdp_is_brought(fsdp);
}

int ash_fsdp_need(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err)
{
    int rc;

    if (backward && ash_fsdp_in_turn(fsdp, unit) && (rc = ash_fsdp_clear_layer(fsdp, unit, err)) < 0) return rc;
    if (ash_fsdp_is_brought(fsdp)) return ash_fsdp_take_weights(fsdp, unit, err);
    if (fsdp->mesh->zero < 3 || ash_fsdp_is_shared(fsdp)) return 0;
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        struct ash_fsdp_slot *slot = NULL;
        if (fsdp->shards->units[i].unit != unit) continue;
        if ((rc = fetch(fsdp, &fsdp->shards->units[i], &slot, err)) < 0) return rc;
        if ((rc = wait_for(fsdp, slot, err)) < 0) return rc;
        ash_fsdp_bind(fsdp, slot->unit, slot->data.data);
    }
    return fetch_next(fsdp, unit, backward, err);
}

bool ash_fsdp_completes(const struct ash_model *model, int unit)
{
    return unit != ASH_UNIT_EMBED && !(unit == ASH_UNIT_HEAD && ash_model_get_config(model)->tied);
}

int ash_fsdp_done(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err)
{
    int rc;

    for (size_t i = 0; fsdp->mesh->zero == 3 && ash_fsdp_is_shared(fsdp) && i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == unit) ash_state_look_away(fsdp->state, fsdp->shards->units[i].whole);
    if (!backward || !fsdp->closes || fsdp->mesh->zero < 2 || !ash_fsdp_completes(fsdp->state->model, unit)) return 0;
    if ((rc = ash_fsdp_take(fsdp, err)) < 0) return rc; /* of the layer before, which others have had time for */
    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == unit && (rc = ash_fsdp_send_unit(fsdp, &fsdp->shards->units[i], err)) < 0)
            return rc;
    return 0;
}

int ash_fsdp_whole(struct ash_fsdp *fsdp, const struct ash_param *param, const void **data_out, struct ash_err *err)
{
    const struct ash_shard_unit *unit = fsdp->shards->units;
    struct ash_fsdp_slot *slot = NULL;
    int rc;

    *data_out = ash_fsdp_weights(fsdp) + param->offset * ash_fsdp_width(fsdp);
    if (fsdp->mesh->zero < 3 || ash_fsdp_is_shared(fsdp)) return 0;
    while (param->offset >= unit->whole.first + unit->whole.count)
        unit++;
    if ((rc = fetch(fsdp, unit, &slot, err)) < 0 || (rc = wait_for(fsdp, slot, err)) < 0) return rc;
    *data_out = (char *)slot->data.data + (param->offset - unit->whole.first) * ash_fsdp_width(fsdp);
    return 0;
}

void ash_fsdp_keep(struct ash_fsdp *fsdp, const struct ash_param *param, const void *data)
{
    size_t width = ash_fsdp_width(fsdp);
    struct ash_shard_part part = {0, param->count, 0};

    if (!ash_fsdp_is_brought(fsdp)) part = ash_shards_part_in(fsdp->shards, param, fsdp->state->own);
    memcpy(ash_fsdp_weights(fsdp) + (param->offset + part.first) * width, (const char *)data + part.first * width,
           part.count * width);
}

/* zero 3: what lies in the slots is old, and the next pass will ask for the first units. */
static int forget(struct ash_fsdp *fsdp, struct ash_err *err)
{
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        int rc = wait_for(fsdp, &fsdp->slots[i], err);
        if (rc < 0) return rc;
        fsdp->slots[i].unit = NULL;
    }
    return fetch_next(fsdp, NO_UNIT, false, err);
}

int ash_fsdp_spread(struct ash_fsdp *fsdp, struct ash_err *err)
{
    if (fsdp->mesh->zero == 3 && ash_fsdp_is_shared(fsdp)) /* vectors have just been read */
        ash_state_look_away(fsdp->state, (struct ash_range){0, ash_model_size(fsdp->state->model)});
    if (fsdp->mesh->zero == 0 || ash_fsdp_is_shared(fsdp)) return 0;
    if (fsdp->mesh->zero == 3) return forget(fsdp, err);
    return ash_fsdp_bring(fsdp, err);
}

/* Gradients that are on their way to their owners. */
static size_t leaf_bytes(const struct ash_fsdp *fsdp)
{
    size_t lanes = fsdp->experts.opts.lane_count, layer = largest_unit(fsdp->shards) * sizeof(float);

    if (lanes == 0) return fsdp->leaf.size_bytes;
    if (fsdp->streams) return fsdp->leaf.size_bytes + (lanes + ASH_FSDP_FLIGHTS) * layer;
    return fsdp->leaf.size_bytes + lanes * fsdp->expert_leaves[0].size_bytes;
}

size_t ash_fsdp_bytes(const struct ash_fsdp *fsdp)
{
    size_t bytes = ash_fsdp_flight_bytes(fsdp);

    if (fsdp->mesh->zero == 0) return 0;
    for (size_t i = 0; i < fsdp->slot_count; i++)
        bytes += fsdp->slots[i].data.size_bytes;
    return bytes + ash_grains_bytes(&fsdp->sums) + ash_grains_bytes(&fsdp->experts) + leaf_bytes(fsdp);
}
