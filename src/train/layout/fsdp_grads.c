/* fsdp: the gradients of a grain until their owners have reduced them. If layers are sent as soon as the backward pass
 * has left them, a ring of a few slots serves all layers; the embedding and the head have memory of their own.
 *
 *     grad_buffer   | ring slot 0 | ring slot 1 | ring slot 2 | rest: embedding, head, a tied matrix's gradient |
 *
 * Ranks of one node have their buffers in shared memory: a rank publishes a unit's gradients, continues, and reduces
 * its part of all ranks' when it publishes the next; a rank waits only if another is more than a layer late. Across
 * nodes parts are sent (fsdp_send.c). */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "collective/host/window.h"

/* Counters of the window: numbers of the last unit that a rank has published, and of the last whose
 * part it has reduced. */
enum { PUBLISHED, REDUCED };

bool ash_fsdp_in_ring(const struct ash_fsdp *fsdp, int unit)
{
    return fsdp->sends_by_layer && unit != ASH_UNIT_EMBED && unit != ASH_UNIT_HEAD;
}

/* Experts that serve several ranks have buffers of their own. */
static bool in_grad_buffer(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    return !ash_fsdp_serves_experts(fsdp) || !ash_fsdp_is_expert(fsdp, unit);
}

/* ---- offsets ----------------------------------------------------------------------------------------------------- */

/* Elements of a layer's units, which share a slot. */
static size_t layer_size(const struct ash_fsdp *fsdp, int layer)
{
    size_t size = 0;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == layer && in_grad_buffer(fsdp, &fsdp->shards->units[i]))
            size += fsdp->shards->units[i].whole.count;
    return size;
}

/* Offsets of units, and of the gradient of a tied output matrix; returns the elements of all. */
static size_t lay_out(struct ash_fsdp *fsdp)
{
    const struct ash_shards *shards = fsdp->shards;
    size_t tied = ash_model_grad_size(fsdp->state->model) - ash_model_size(fsdp->state->model), layer = 0, used = 0;

    for (size_t i = 0; i < shards->unit_count; i++)
        if (ash_fsdp_in_ring(fsdp, shards->units[i].unit) && layer_size(fsdp, shards->units[i].unit) > layer)
            layer = layer_size(fsdp, shards->units[i].unit);
    fsdp->ring_slot_size = layer;
    for (size_t i = 0; i < shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &shards->units[i];
        if (!ash_fsdp_in_ring(fsdp, unit->unit)) {
            fsdp->offsets[i] = ASH_FSDP_RING * layer + used;
            used += in_grad_buffer(fsdp, unit) ? unit->whole.count : 0;
            continue;
        }
        fsdp->offsets[i] = (size_t)unit->unit % ASH_FSDP_RING * layer;
        for (size_t j = 0; j < i; j++) /* after the layer's other unit */
            if (shards->units[j].unit == unit->unit && in_grad_buffer(fsdp, &shards->units[j]))
                fsdp->offsets[i] += shards->units[j].whole.count;
    }
    fsdp->rest = (struct ash_range){ASH_FSDP_RING * layer, used + tied};
    return ASH_FSDP_RING * layer + used + tied;
}

/* Have passes add at those offsets. */
static void place_grads(struct ash_fsdp *fsdp, size_t size)
{
    struct ash_model *model = fsdp->state->model;
    const struct ash_shards *shards = fsdp->shards;

    for (size_t p = 0, i = 0; p < ash_model_param_count(model); p++) {
        size_t offset = ash_model_param(model, p)->offset;
        for (i = 0; offset >= shards->units[i].whole.first + shards->units[i].whole.count;)
            i++;
        ash_model_place_grads(model, p, fsdp->offsets[i] + (offset - shards->units[i].whole.first));
    }
    ash_model_place_tied_grads(model, size - (ash_model_grad_size(model) - ash_model_size(model)));
}

int ash_fsdp_open_grad_buffer(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t units = fsdp->shards->unit_count, size;
    int rc;

    fsdp->offsets = calloc(units, sizeof(*fsdp->offsets));
    fsdp->published = calloc(units, sizeof(*fsdp->published));
    fsdp->grad_parts = calloc(fsdp->shards->size, sizeof(*fsdp->grad_parts));
    if (fsdp->offsets == NULL || fsdp->published == NULL || fsdp->grad_parts == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a shard's parts");
    size = lay_out(fsdp);
    place_grads(fsdp, size);
    if (fsdp->state->part.node_shard_group == NULL)
        return ash_buffer_init(&fsdp->grad_buffer, fsdp->state->exec->memory, size * sizeof(float), "gradients", err);
    rc = ash_group_window_open(fsdp->group, size * sizeof(float), &fsdp->window, err);
    if (rc < 0) return rc;
    ash_window_fill(fsdp->window);
    fsdp->grad_buffer = (struct ash_buffer){.data = ash_window_data(fsdp->window), .size_bytes = size * sizeof(float)};
    return 0;
}

void ash_fsdp_close_grad_buffer(struct ash_fsdp *fsdp)
{
    ash_buffer_fini(&fsdp->grad_buffer);
    ash_window_close(fsdp->window);
    free(fsdp->offsets);
    free(fsdp->published);
    free(fsdp->grad_parts);
}

size_t ash_fsdp_grad_offset(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    size_t index = (size_t)(unit - fsdp->shards->units);

    ash_assert(index < fsdp->shards->unit_count);
    return fsdp->offsets[index];
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

/* Wait (metered) until the counter of every other rank has reached a number. */
static int wait_counter(struct ash_fsdp *fsdp, size_t ranks, size_t counter, uint64_t number, struct ash_err *err)
{
    int rc = 0;

    ash_meter_begin(&fsdp->mesh->meter);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        if (r != fsdp->shards->rank) rc = ash_group_window_wait(fsdp->group, fsdp->window, r, counter, number, err);
    ash_meter_end(&fsdp->mesh->meter, ASH_METER_COMM);
    return rc;
}

/* Clear for a grain's gradients, once all ranks have reduced their parts of the previous ones. */
static int clear(struct ash_fsdp *fsdp, struct ash_range run, uint64_t number, struct ash_err *err)
{
    int rc = fsdp->window != NULL ? wait_counter(fsdp, fsdp->shards->size, REDUCED, number, err) : 0;

    if (rc < 0) return rc;
    if (ash_mesh_can_overwrite_grads(fsdp->mesh))
        ash_model_clear_grads(fsdp->state->model, fsdp->state->exec, fsdp->grad_buffer.data, run);
    else
        ash_exec_zero(fsdp->state->exec, (float *)fsdp->grad_buffer.data + run.first, run.count * sizeof(float));
    return 0;
}

int ash_fsdp_clear_layer(struct ash_fsdp *fsdp, int layer, struct ash_err *err)
{
    size_t slot = (size_t)layer % ASH_FSDP_RING;

    ash_assert(ash_fsdp_in_ring(fsdp, layer));
    return clear(fsdp, (struct ash_range){slot * fsdp->ring_slot_size, fsdp->ring_slot_size},
                 fsdp->ring_published[slot], err);
}

int ash_fsdp_clear_rest(struct ash_fsdp *fsdp, struct ash_err *err)
{
    return clear(fsdp, fsdp->rest, fsdp->published_number, err);
}

/* ---- publishing and reducing ------------------------------------------------------------------------------------- */

void ash_fsdp_publish(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    ash_assert(fsdp->published_count < fsdp->shards->unit_count);
    fsdp->published[fsdp->published_count++] = unit;
    ash_window_signal(fsdp->window, PUBLISHED, ++fsdp->published_number);
    if (ash_fsdp_in_ring(fsdp, unit->unit))
        fsdp->ring_published[(size_t)unit->unit % ASH_FSDP_RING] = fsdp->published_number;
}

static int reduce_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, uint64_t number, struct ash_err *err)
{
    size_t grains = ash_fsdp_round_grains(fsdp, ash_grains_of(&fsdp->sums, 0));
    struct ash_fsdp_delivery to = {.unit = unit, .sums = &fsdp->sums, .at = unit->at};
    size_t first = ash_fsdp_grad_offset(fsdp, unit) + (unit->own.first - unit->whole.first);
    int rc = wait_counter(fsdp, grains, PUBLISHED, number, err);

    ash_assert(unit->own.first >= unit->whole.first && ash_range_end(unit->own) <= ash_range_end(unit->whole));
    if (rc < 0) return rc;
    for (size_t r = 0; r < grains; r++)
        fsdp->grad_parts[r] = (const float *)ash_window_data_of(fsdp->window, r) + first;
    rc = ash_fsdp_reduce_parts(fsdp, &to, grains, err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < grains; r++)
        if (r != fsdp->shards->rank)
            ash_window_unmap_pages(fsdp->window, r, first * sizeof(float), unit->own.count * sizeof(float));
    ash_window_signal(fsdp->window, REDUCED, number);
    return 0;
}

int ash_fsdp_reduce_published(struct ash_fsdp *fsdp, struct ash_err *err)
{
    ash_assert(fsdp->published_count <= fsdp->published_number);
    for (size_t i = 0; i < fsdp->published_count; i++) {
        int rc = reduce_unit(fsdp, fsdp->published[i], fsdp->published_number - fsdp->published_count + 1 + i, err);
        if (rc < 0) return rc;
    }
    fsdp->published_count = 0;
    return 0;
}
