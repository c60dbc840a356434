/* fsdp: gradients on their way between nodes. The parts of a unit go to their owners in a call that runs beside the
 * next layer; what has come is added up when its place is wanted for another unit, or when the round is over. Experts
 * that serve several ranks send a unit of each. */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Elements of the largest part that this rank gets of units that leave in turn, or of any. */
static size_t largest_part(const struct ash_fsdp *fsdp, bool in_turn)
{
    size_t most = 0;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &fsdp->shards->units[i];
        bool layer = unit->unit != ASH_UNIT_EMBED && unit->unit != ASH_UNIT_HEAD;
        if (unit->own.count > most && (layer || !in_turn)) most = unit->own.count;
    }
    return most;
}

int ash_fsdp_open_flights(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t size = fsdp->shards->size;

    for (size_t i = 0; i < ASH_FSDP_FLIGHTS; i++) {
        struct ash_fsdp_flight *flight = &fsdp->flights[i];
        size_t part = largest_part(fsdp, i > 0); /* what is no layer travels in the first */
        int rc =
            ash_buffer_init(&flight->inbox, fsdp->state->exec->memory, size * part * sizeof(float), "gradients", err);

        if (rc < 0) return rc;
        flight->part = part;
        flight->send = calloc(2 * size, sizeof(*flight->send));
        if (flight->send == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
        flight->recv = flight->send + size;
    }
    return 0;
}

void ash_fsdp_forget_flights(struct ash_fsdp *fsdp)
{
    for (; fsdp->landed < fsdp->sent; fsdp->landed++) {
        struct ash_fsdp_flight *flight = fsdp->queue[fsdp->landed % ASH_FSDP_FLIGHTS];

        ash_call_wait(flight->call, NULL);
        flight->call = NULL;
    }
}

void ash_fsdp_close_flights(struct ash_fsdp *fsdp)
{
    ash_fsdp_forget_flights(fsdp);
    for (size_t i = 0; i < ASH_FSDP_FLIGHTS; i++) {
        ash_buffer_fini(&fsdp->flights[i].inbox);
        free(fsdp->flights[i].send);
    }
}

size_t ash_fsdp_flight_bytes(const struct ash_fsdp *fsdp)
{
    size_t bytes = 0;

    for (size_t i = 0; i < ASH_FSDP_FLIGHTS; i++)
        bytes += fsdp->flights[i].inbox.size_bytes;
    return bytes;
}

/* ---- on the way -------------------------------------------------------------------------------------------------- */

/* What is rank r's of a unit. */
static size_t part_count(const struct ash_shard_unit *unit, size_t r)
{
    size_t first = r * unit->part;

    return first >= unit->whole.count               ? 0
           : unit->whole.count - first < unit->part ? unit->whole.count - first
                                                    : unit->part;
}

/* The parts of the oldest unit that is on its way go into the sums. */
static int land(struct ash_fsdp *fsdp, struct ash_err *err)
{
    struct ash_fsdp_flight *flight = fsdp->queue[fsdp->landed++ % ASH_FSDP_FLIGHTS];
    const struct ash_fsdp_delivery *to = &flight->to;
    size_t leaves = ash_fsdp_leaves(fsdp, ash_grains_lane(to->sums, to->lane));
    int rc = ash_fsdp_wait(fsdp, &flight->call, err);

    if (rc < 0) return rc;
    for (size_t r = 0; r < leaves; r++)
        fsdp->leaves[r] = (const float *)flight->inbox.data + r * to->unit->own.count;
    if (to->drops) ash_buffer_drop(to->leaf, to->first * sizeof(float), to->unit->whole.count * sizeof(float));
    return ash_fsdp_put(fsdp, to, leaves, err);
}

int ash_fsdp_land(struct ash_fsdp *fsdp, struct ash_err *err)
{
    int rc = 0;

    while (rc == 0 && fsdp->landed < fsdp->sent)
        rc = land(fsdp, err);
    return rc;
}

int ash_fsdp_send(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, struct ash_err *err)
{
    size_t leaves = ash_fsdp_leaves(fsdp, ash_grains_lane(to->sums, to->lane));
    struct ash_fsdp_flight *flight = &fsdp->flights[fsdp->sent % ASH_FSDP_FLIGHTS];
    int rc = 0;

    if (flight->part < to->unit->own.count) flight = &fsdp->flights[0];
    while (rc == 0 && flight->call != NULL)
        rc = land(fsdp, err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < fsdp->shards->size; r++) {
        flight->send[r] = fsdp->shards->rank < leaves ? part_count(to->unit, r) * sizeof(float) : 0;
        flight->recv[r] = r < leaves ? to->unit->own.count * sizeof(float) : 0;
    }
    flight->to = *to;
    rc = ash_group_all_to_all_start(fsdp->group, (const float *)to->leaf->data + to->first, flight->send,
                                    flight->inbox.data, flight->recv, &flight->call, err);
    if (rc == 0) fsdp->queue[fsdp->sent++ % ASH_FSDP_FLIGHTS] = flight;
    return rc;
}
