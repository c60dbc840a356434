/* fsdp: where the gradients of a grain lie until their owners have them. Where layers are sent as soon as the way back
 * has left them, a few places serve all layers in turn; what stands before and behind the layers has places of its own.
 * Ranks of one node have their leaves where all see them: a rank says that a unit's gradients are complete, goes on,
 * and adds up its own part of everyone's when the next ones are; nobody waits unless another is more than a layer
 * behind. Across nodes parts travel (fsdp_send.c). */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "collective/host/window.h"

/* Counters of the window: the last unit that a rank's leaf has; the last one that it has added up its part of. */
enum { GIVEN, TAKEN };

bool ash_fsdp_in_turn(const struct ash_fsdp *fsdp, int unit)
{
    return fsdp->streams && unit != ASH_UNIT_EMBED && unit != ASH_UNIT_HEAD;
}

/* Experts that serve several ranks have leaves of their own. */
static bool in_leaf(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    return !ash_fsdp_serves(fsdp) || !ash_fsdp_is_expert(fsdp, unit);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Elements of a layer's units, which lie in one place. */
static size_t layer_size(const struct ash_fsdp *fsdp, int layer)
{
    size_t size = 0;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (fsdp->shards->units[i].unit == layer && in_leaf(fsdp, &fsdp->shards->units[i]))
            size += fsdp->shards->units[i].whole.count;
    return size;
}

/* Places for units and for the sum of a tied output matrix; returns the elements of all. */
static size_t lay_out(struct ash_fsdp *fsdp)
{
    const struct ash_shards *shards = fsdp->shards;
    size_t tied = ash_model_grad_size(fsdp->state->model) - ash_model_size(fsdp->state->model), layer = 0, used = 0;

    for (size_t i = 0; i < shards->unit_count; i++)
        if (ash_fsdp_in_turn(fsdp, shards->units[i].unit) && layer_size(fsdp, shards->units[i].unit) > layer)
            layer = layer_size(fsdp, shards->units[i].unit);
    fsdp->turn_size = layer;
    for (size_t i = 0; i < shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &shards->units[i];
        if (!ash_fsdp_in_turn(fsdp, unit->unit)) {
            fsdp->places[i] = ASH_FSDP_TURNS * layer + used;
            used += in_leaf(fsdp, unit) ? unit->whole.count : 0;
            continue;
        }
        fsdp->places[i] = (size_t)unit->unit % ASH_FSDP_TURNS * layer;
        for (size_t j = 0; j < i; j++) /* behind the layer's other unit */
            if (shards->units[j].unit == unit->unit && in_leaf(fsdp, &shards->units[j]))
                fsdp->places[i] += shards->units[j].whole.count;
    }
    fsdp->rest = (struct ash_range){ASH_FSDP_TURNS * layer, used + tied};
    return ASH_FSDP_TURNS * layer + used + tied;
}

/* Have the passes add where the places are. */
static void place_grads(struct ash_fsdp *fsdp, size_t size)
{
    struct ash_model *model = fsdp->state->model;
    const struct ash_shards *shards = fsdp->shards;

    for (size_t p = 0, i = 0; p < ash_model_param_count(model); p++) {
        size_t offset = ash_model_param(model, p)->offset;
        for (i = 0; offset >= shards->units[i].whole.first + shards->units[i].whole.count;)
            i++;
        ash_model_place_grads(model, p, fsdp->places[i] + (offset - shards->units[i].whole.first));
    }
    ash_model_place_tied_grads(model, size - (ash_model_grad_size(model) - ash_model_size(model)));
}

int ash_fsdp_open_leaf(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t units = fsdp->shards->unit_count, size;
    int rc;

    fsdp->places = calloc(units, sizeof(*fsdp->places));
    fsdp->given = calloc(units, sizeof(*fsdp->given));
    fsdp->leaves = calloc(fsdp->shards->size, sizeof(*fsdp->leaves));
    if (fsdp->places == NULL || fsdp->given == NULL || fsdp->leaves == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a shard's parts");
    size = lay_out(fsdp);
    place_grads(fsdp, size);
    if (fsdp->state->part.sharers == NULL)
        return ash_buffer_init(&fsdp->leaf, fsdp->state->exec->memory, size * sizeof(float), "gradients", err);
    if ((rc = ash_group_window_open(fsdp->group, size * sizeof(float), &fsdp->window, err)) < 0) return rc;
    ash_window_fill(fsdp->window);
    fsdp->leaf = (struct ash_buffer){.data = ash_window_data(fsdp->window), .size_bytes = size * sizeof(float)};
    return 0;
}

void ash_fsdp_close_leaf(struct ash_fsdp *fsdp)
{
    ash_buffer_fini(&fsdp->leaf);
    ash_window_close(fsdp->window);
    free(fsdp->places);
    free(fsdp->given);
    free(fsdp->leaves);
}

size_t ash_fsdp_place(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    return fsdp->places[unit - fsdp->shards->units];
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Wait until every other rank has said a number. */
static int await(struct ash_fsdp *fsdp, size_t ranks, size_t counter, uint64_t number, struct ash_err *err)
{
    int rc = 0;

    ash_meter_begin(&fsdp->mesh->meter);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        if (r != fsdp->shards->rank) rc = ash_group_window_wait(fsdp->group, fsdp->window, r, counter, number, err);
    ash_meter_end(&fsdp->mesh->meter, ASH_METER_COMM);
    return rc;
}

/* Ready for a grain's gradients, once those who had parts of what was here have them. */
static int clear(struct ash_fsdp *fsdp, struct ash_range run, uint64_t number, struct ash_err *err)
{
    int rc = fsdp->window != NULL ? await(fsdp, fsdp->shards->size, TAKEN, number, err) : 0;

    if (rc < 0) return rc;
    if (ash_mesh_starts(fsdp->mesh))
        ash_model_clear_grads(fsdp->state->model, fsdp->state->exec, fsdp->leaf.data, run);
    else
        ash_exec_zero(fsdp->state->exec, (float *)fsdp->leaf.data + run.first, run.count * sizeof(float));
    return 0;
}

int ash_fsdp_clear_layer(struct ash_fsdp *fsdp, int layer, struct ash_err *err)
{
    size_t turn = (size_t)layer % ASH_FSDP_TURNS;

    return clear(fsdp, (struct ash_range){turn * fsdp->turn_size, fsdp->turn_size}, fsdp->turn_given[turn], err);
}

int ash_fsdp_clear_rest(struct ash_fsdp *fsdp, struct ash_err *err)
{
    return clear(fsdp, fsdp->rest, fsdp->number, err);
}

/* ---- giving and taking ------------------------------------------------------------------------------------------- */

void ash_fsdp_give(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    ash_assert(fsdp->given_count < fsdp->shards->unit_count);
    fsdp->given[fsdp->given_count++] = unit;
    ash_window_signal(fsdp->window, GIVEN, ++fsdp->number);
    if (ash_fsdp_in_turn(fsdp, unit->unit)) fsdp->turn_given[(size_t)unit->unit % ASH_FSDP_TURNS] = fsdp->number;
}

static int take(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, uint64_t number, struct ash_err *err)
{
    size_t leaves = ash_fsdp_leaves(fsdp, ash_grains_lane(&fsdp->sums, 0));
    struct ash_fsdp_delivery to = {.unit = unit, .sums = &fsdp->sums, .at = unit->at};
    size_t first = ash_fsdp_place(fsdp, unit) + (unit->own.first - unit->whole.first);
    int rc = await(fsdp, leaves, GIVEN, number, err);

    if (rc < 0) return rc;
    for (size_t r = 0; r < leaves; r++)
        fsdp->leaves[r] = (const float *)ash_window_data_of(fsdp->window, r) + first;
    if ((rc = ash_fsdp_put(fsdp, &to, leaves, err)) < 0) return rc;
    for (size_t r = 0; r < leaves; r++)
        if (r != fsdp->shards->rank)
            ash_window_unmap_pages(fsdp->window, r, first * sizeof(float), unit->own.count * sizeof(float));
    ash_window_signal(fsdp->window, TAKEN, number);
    return 0;
}

int ash_fsdp_take(struct ash_fsdp *fsdp, struct ash_err *err)
{
    for (size_t i = 0; i < fsdp->given_count; i++) {
        int rc = take(fsdp, fsdp->given[i], fsdp->number - fsdp->given_count + 1 + i, err);
        if (rc < 0) return rc;
    }
    fsdp->given_count = 0;
    return 0;
}
