/* fsdp: weights, gathered from the shards of all ranks. */
#include "train/layout/fsdp_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/assert.h"
#include "collective/host/window.h"
#include "compute/backends/backends.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

size_t ash_fsdp_weight_bytes(const struct ash_fsdp *fsdp)
{
    return fsdp->state->bf16.data != NULL ? sizeof(uint16_t) : sizeof(float);
}

bool ash_fsdp_is_node_shared(const struct ash_fsdp *fsdp)
{
    return fsdp->state->part.node_shard_group != NULL;
}

/* Elements of the largest unit, with padding to equal parts. */
static size_t largest_unit(const struct ash_shards *shards)
{
    size_t most = 0;

    for (size_t i = 0; i < shards->unit_count; i++)
        most = ash_max(most, shards->units[i].part);
    return most * shards->size;
}

/* Slots that all tp peers see: reductions through shared memory read their weights there (model/axis.h). Every unit has
 * a barrier of tp, so no peer is further back than the unit before this rank's, and no peer still reads the slot that
 * it fills next. */
static int open_shared_slots(struct ash_fsdp *fsdp, struct ash_group *tp_peers, size_t count, struct ash_err *err)
{
    int64_t bytes = (int64_t)(largest_unit(fsdp->shards) * ash_fsdp_weight_bytes(fsdp)); /* may differ */
    int rc = ash_group_all_reduce(tp_peers, &bytes, &bytes, 1, ASH_COLL_I64, ASH_COLL_MAX, err);

    if (rc < 0) return rc;
    rc = ash_group_window_open(tp_peers, (size_t)bytes * count, &fsdp->slot_window, err);
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
    struct ash_group *tp_peers = ash_mesh_tp_peers(fsdp->mesh);
    size_t bytes = largest_unit(fsdp->shards) * ash_fsdp_weight_bytes(fsdp);

    if (fsdp->mesh->zero == 3 && count > 0 && tp_peers != NULL) return open_shared_slots(fsdp, tp_peers, count, err);
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

    if (ash_fsdp_is_node_shared(fsdp)) return 0;
    if (fsdp->mesh->zero < 3) return 1;
    /* how far ahead ranks gather follows from it: the same for all, also where only some have tp peers */
    return units * (fsdp->mesh->has_tp_peers ? ASH_FSDP_SLOTS_SHARED : ASH_FSDP_SLOTS);
}

int ash_fsdp_init(struct ash_fsdp *fsdp, struct ash_state *state, struct ash_mesh *mesh, size_t grain_count,
                  size_t grain_micros, struct ash_err *err)
{
    int rc;

    ash_assert(grain_count > 0 && grain_micros > 0);
    *fsdp = (struct ash_fsdp){.state = state,
                              .mesh = mesh,
                              .group = mesh->groups[ASH_MESH_FSDP],
                              .shards = ash_model_shards(state->model),
                              .grain_count = grain_count,
                              .sends_by_layer = mesh->zero > 1 && grain_micros == 1};
    if (mesh->zero == 0) return 0;
    rc = open_slots(fsdp, slots_of(fsdp), err);
    if (rc == 0 && ash_fsdp_prefetches(fsdp)) rc = ash_fsdp_open_prefetch(fsdp, err);
    if (rc == 0) rc = ash_fsdp_open_sums(fsdp, err);
    if (rc < 0) ash_fsdp_fini(fsdp);
    return rc;
}

void ash_fsdp_settle(struct ash_fsdp *fsdp)
{
    ash_fsdp_drop_requests(fsdp);
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        ash_call_wait(fsdp->slots[i].call, NULL);
        fsdp->slots[i].call = NULL;
    }
    ash_fsdp_drop_prefetch(fsdp);
    ash_grains_settle(&fsdp->sums);
    ash_grains_settle(&fsdp->experts);
}

void ash_fsdp_fini(struct ash_fsdp *fsdp)
{
    ash_fsdp_settle(fsdp);
    ash_fsdp_close_requests(fsdp);
    for (size_t i = 0; i < fsdp->slot_count; i++)
        ash_buffer_fini(&fsdp->slots[i].data);
    ash_fsdp_close_prefetch(fsdp);
    ash_window_close(fsdp->slot_window);
    for (size_t strand = 0; fsdp->expert_grad_buffers != NULL && strand < fsdp->experts.opts.strand_count; strand++)
        ash_buffer_fini(&fsdp->expert_grad_buffers[strand]);
    free(fsdp->expert_grad_buffers);
    ash_grains_fini(&fsdp->sums);
    ash_grains_fini(&fsdp->experts);
    ash_fsdp_close_grad_buffer(fsdp);
    memset(fsdp, 0, sizeof(*fsdp));
}

/* ---- gathering units --------------------------------------------------------------------------------------------- */

char *ash_fsdp_weights(const struct ash_fsdp *fsdp)
{
    return fsdp->state->bf16.data != NULL ? fsdp->state->bf16.data : (void *)ash_model_values(fsdp->state->model);
}

int ash_fsdp_gather(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, const struct ash_shard_unit *unit,
                    struct ash_err *err)
{
    size_t width = ash_fsdp_weight_bytes(fsdp), bytes = unit->part * width;
    char *own = (char *)slot->data.data + fsdp->shards->rank * bytes;

    ash_assert(slot->call == NULL && bytes * fsdp->shards->size <= slot->data.size_bytes);
    ash_backend_copy(fsdp->state->exec, own, ash_fsdp_weights(fsdp) + unit->own.first * width, unit->own.count * width);
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
            ash_model_bind(model, i, data + (offset - whole->first) * ash_fsdp_weight_bytes(fsdp));
    }
}

static struct ash_fsdp_slot *slot_with(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    for (size_t i = 0; i < fsdp->slot_count; i++)
        if (fsdp->slots[i].unit == unit) return &fsdp->slots[i];
    return NULL;
}

/* The least recently used slot. All ranks use the same units, so all choose the same slot. */
static struct ash_fsdp_slot *oldest(struct ash_fsdp *fsdp)
{
    struct ash_fsdp_slot *slot = &fsdp->slots[0];

    ash_assert(fsdp->slot_count > 0);
    for (size_t i = 1; i < fsdp->slot_count; i++)
        if (fsdp->slots[i].used < slot->used) slot = &fsdp->slots[i];
    return slot;
}

/* Find the unit in a slot, or start to gather it. */
static int fetch(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_fsdp_slot **slot_out,
                 struct ash_err *err)
{
    struct ash_fsdp_slot *slot = slot_with(fsdp, unit);
    int rc = 0;

    if (slot == NULL) {
        slot = oldest(fsdp);
        rc = wait_for(fsdp, slot, err);
        if (rc < 0) return rc;
        rc = ash_fsdp_gather(fsdp, slot, unit, err);
    }
    slot->used = ++fsdp->clock;
    *slot_out = slot;
    return rc;
}

#define NO_UNIT (ASH_UNIT_EMBED - 1) /* before a pass, which uses the embedding first */

/* Which unit a pass uses after this one. */
static int next_unit(const struct ash_fsdp *fsdp, int unit, bool backward)
{
    int layers = (int)ash_model_get_config(fsdp->state->model)->layers;

    if (backward) return unit == ASH_UNIT_HEAD ? layers - 1 : unit - 1;
    if (unit == ASH_UNIT_HEAD) return ash_model_get_config(fsdp->state->model)->tied ? ASH_UNIT_EMBED : NO_UNIT;
    return unit + 1 == layers ? ASH_UNIT_HEAD : unit + 1;
}

/* Units that are prefetched while one is in use: two, which with it fill the slots. With a tied output matrix the
 * embedding has one, too; and where peers read the slots, both and the unit before are still in use. */
static int ahead_of(const struct ash_fsdp *fsdp, int unit)
{
    bool both = unit == ASH_UNIT_HEAD || (unit == ASH_UNIT_EMBED && fsdp->slot_window != NULL);

    return both && ash_model_get_config(fsdp->state->model)->tied ? 1 : ASH_FSDP_SLOTS - 1;
}

/* Prefetch what passes use after a unit. Nothing after the step's last. */
static int fetch_next(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err)
{
    struct ash_fsdp_slot *slot;
    int rc, next = unit;

    for (int ahead = ahead_of(fsdp, unit); ahead > 0; ahead--) {
        next = next_unit(fsdp, next, backward);
        if (next == ASH_UNIT_EMBED && backward && fsdp->is_last_of_step) return 0;
        for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
            if (fsdp->shards->units[i].unit == next) {
                rc = fetch(fsdp, &fsdp->shards->units[i], &slot, err);
                if (rc < 0) return rc;
            }
        }
    }
    return 0;
}

/* ---- around the layers of a pass --------------------------------------------------------------------------------- */

bool ash_fsdp_has_hooks(const struct ash_fsdp *fsdp)
{
    return fsdp->mesh->zero > 1 || ash_fsdp_prefetches(fsdp);
}

int ash_fsdp_need(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err)
{
    int rc;

    if (backward && ash_fsdp_in_ring(fsdp, unit)) {
        rc = ash_fsdp_clear_layer(fsdp, unit, err);
        if (rc < 0) return rc;
    }
    if (ash_fsdp_prefetches(fsdp)) return ash_fsdp_wait_unit(fsdp, unit, err);
    if (fsdp->mesh->zero < 3 || ash_fsdp_is_node_shared(fsdp)) return 0;
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        struct ash_fsdp_slot *slot = NULL;
        if (fsdp->shards->units[i].unit != unit) continue;
        rc = fetch(fsdp, &fsdp->shards->units[i], &slot, err);
        if (rc < 0) return rc;
        rc = wait_for(fsdp, slot, err);
        if (rc < 0) return rc;
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

    for (size_t i = 0; fsdp->mesh->zero == 3 && ash_fsdp_is_node_shared(fsdp) && i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == unit) ash_state_unmap(fsdp->state, fsdp->shards->units[i].whole);
    if (!backward || !fsdp->is_last_of_grain || fsdp->mesh->zero < 2 || !ash_fsdp_completes(fsdp->state->model, unit))
        return 0;
    rc = ash_fsdp_reduce_published(fsdp, err);
    if (rc < 0) return rc; /* of the layer before: by now the others have published theirs */
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        if (fsdp->shards->units[i].unit == unit) {
            rc = ash_fsdp_send_unit(fsdp, &fsdp->shards->units[i], err);
            if (rc < 0) return rc;
        }
    }
    return 0;
}

int ash_fsdp_gather_param(struct ash_fsdp *fsdp, const struct ash_param *param, const void **data_out,
                          struct ash_err *err)
{
    const struct ash_shard_unit *unit = fsdp->shards->units;
    struct ash_fsdp_slot *slot = NULL;
    int rc;

    *data_out = ash_fsdp_weights(fsdp) + param->offset * ash_fsdp_weight_bytes(fsdp);
    if (fsdp->mesh->zero < 3 || ash_fsdp_is_node_shared(fsdp)) return 0;
    while (param->offset >= ash_range_end(unit->whole))
        unit++;
    ash_assert(unit < fsdp->shards->units + fsdp->shards->unit_count);
    rc = fetch(fsdp, unit, &slot, err);
    if (rc < 0) return rc;
    rc = wait_for(fsdp, slot, err);
    if (rc < 0) return rc;
    *data_out = (char *)slot->data.data + (param->offset - unit->whole.first) * ash_fsdp_weight_bytes(fsdp);
    return 0;
}

void ash_fsdp_store_param(struct ash_fsdp *fsdp, const struct ash_param *param, const void *data)
{
    size_t width = ash_fsdp_weight_bytes(fsdp);
    struct ash_shard_part part = {0, param->count, 0};

    if (!ash_fsdp_prefetches(fsdp)) part = ash_shards_part_in(fsdp->shards, param, fsdp->state->own);
    ash_backend_copy(fsdp->state->exec, ash_fsdp_weights(fsdp) + (param->offset + part.first) * width,
                     (const char *)data + part.first * width, part.count * width);
}

/* zero 3: the slots are out of date; prefetch the first units of the next pass. */
static int forget(struct ash_fsdp *fsdp, struct ash_err *err)
{
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        int rc = wait_for(fsdp, &fsdp->slots[i], err);
        if (rc < 0) return rc;
        fsdp->slots[i].unit = NULL;
    }
    return fetch_next(fsdp, NO_UNIT, false, err);
}

int ash_fsdp_after_update(struct ash_fsdp *fsdp, struct ash_err *err)
{
    if (fsdp->mesh->zero == 3 && ash_fsdp_is_node_shared(fsdp)) /* vectors have just been read */
        ash_state_unmap(fsdp->state, (struct ash_range){0, ash_model_size(fsdp->state->model)});
    if (fsdp->mesh->zero == 0 || ash_fsdp_is_node_shared(fsdp)) return 0;
    if (fsdp->mesh->zero == 3) return forget(fsdp, err);
    return ash_fsdp_prefetch(fsdp, err);
}

/* Bytes of gradients that their owners have not reduced yet. */
static size_t grad_buffer_bytes(const struct ash_fsdp *fsdp)
{
    size_t strands = fsdp->experts.opts.strand_count, layer = largest_unit(fsdp->shards) * sizeof(float);

    if (strands == 0) return fsdp->grad_buffer.size_bytes;
    if (fsdp->sends_by_layer) return fsdp->grad_buffer.size_bytes + (strands + ASH_FSDP_REQUESTS) * layer;
    return fsdp->grad_buffer.size_bytes + strands * fsdp->expert_grad_buffers[0].size_bytes;
}

size_t ash_fsdp_bytes(const struct ash_fsdp *fsdp)
{
    size_t bytes = ash_fsdp_request_bytes(fsdp);

    if (fsdp->mesh->zero == 0) return 0;
    for (size_t i = 0; i < fsdp->slot_count; i++)
        bytes += fsdp->slots[i].data.size_bytes;
    return bytes + ash_grains_bytes(&fsdp->sums) + ash_grains_bytes(&fsdp->experts) + grad_buffer_bytes(fsdp);
}
