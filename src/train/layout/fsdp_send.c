/* fsdp: gradients in flight between nodes. The parts of a unit go to their owners in an all-to-all that overlaps with
 * the next layer; arrived parts are reduced when their inbox is needed for another unit, or when the round is over.
 * Experts that serve several ranks send a unit for each. */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Elements of the largest part that this rank owns of layers (layers_only), or of any unit. */
static size_t largest_part(const struct ash_fsdp *fsdp, bool layers_only)
{
    size_t most = 0;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &fsdp->shards->units[i];
        bool layer = unit->unit != ASH_UNIT_EMBED && unit->unit != ASH_UNIT_HEAD;
        if (unit->own.count > most && (layer || !layers_only)) most = unit->own.count;
    }
    return most;
}

int ash_fsdp_open_requests(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t size = fsdp->shards->size;

    for (size_t i = 0; i < ASH_FSDP_REQUESTS; i++) {
        struct ash_fsdp_request *request = &fsdp->requests[i];
        size_t part = largest_part(fsdp, i > 0); /* units outside layers use the first */
        int rc =
            ash_buffer_init(&request->inbox, fsdp->state->exec->memory, size * part * sizeof(float), "gradients", err);

        if (rc < 0) return rc;
        request->part = part;
        request->send = calloc(2 * size, sizeof(*request->send));
        if (request->send == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
        request->recv = request->send + size;
    }
    return 0;
}

void ash_fsdp_drop_requests(struct ash_fsdp *fsdp)
{
    for (; fsdp->received < fsdp->sent; fsdp->received++) {
        struct ash_fsdp_request *request = fsdp->queue[fsdp->received % ASH_FSDP_REQUESTS];

        ash_call_wait(request->call, NULL);
        request->call = NULL;
    }
}

void ash_fsdp_close_requests(struct ash_fsdp *fsdp)
{
    ash_fsdp_drop_requests(fsdp);
    for (size_t i = 0; i < ASH_FSDP_REQUESTS; i++) {
        ash_buffer_fini(&fsdp->requests[i].inbox);
        free(fsdp->requests[i].send);
    }
}

size_t ash_fsdp_request_bytes(const struct ash_fsdp *fsdp)
{
    size_t bytes = 0;

    for (size_t i = 0; i < ASH_FSDP_REQUESTS; i++)
        bytes += fsdp->requests[i].inbox.size_bytes;
    return bytes;
}

/* ---- in flight --------------------------------------------------------------------------------------------------- */

/* Rank r's part of a unit. */
static size_t part_count(const struct ash_shard_unit *unit, size_t r)
{
    size_t first = r * unit->part;

    ash_assert(unit->part > 0);
    return first >= unit->whole.count               ? 0
           : unit->whole.count - first < unit->part ? unit->whole.count - first
                                                    : unit->part;
}

/* Wait for the oldest request and add its parts to the sums. */
static int receive_oldest(struct ash_fsdp *fsdp, struct ash_err *err)
{
    struct ash_fsdp_request *request = fsdp->queue[fsdp->received++ % ASH_FSDP_REQUESTS];
    const struct ash_fsdp_delivery *to = &request->to;
    size_t grains = ash_fsdp_round_grains(fsdp, ash_grains_of(to->sums, to->strand));
    int rc = ash_fsdp_wait(fsdp, &request->call, err);

    ash_assert(fsdp->received <= fsdp->sent);
    if (rc < 0) return rc;
    for (size_t r = 0; r < grains; r++)
        fsdp->grad_parts[r] = (const float *)request->inbox.data + r * to->unit->own.count;
    if (to->releases) ash_buffer_drop(to->from, to->first * sizeof(float), to->unit->whole.count * sizeof(float));
    return ash_fsdp_reduce_parts(fsdp, to, grains, err);
}

int ash_fsdp_receive(struct ash_fsdp *fsdp, struct ash_err *err)
{
    int rc = 0;

    while (rc == 0 && fsdp->received < fsdp->sent)
        rc = receive_oldest(fsdp, err);
    return rc;
}

int ash_fsdp_send(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, struct ash_err *err)
{
    size_t grains = ash_fsdp_round_grains(fsdp, ash_grains_of(to->sums, to->strand));
    struct ash_fsdp_request *request = &fsdp->requests[fsdp->sent % ASH_FSDP_REQUESTS];
    int rc = 0;

    if (request->part < to->unit->own.count) request = &fsdp->requests[0];
    ash_assert(request->part >= to->unit->own.count);
    while (rc == 0 && request->call != NULL)
        rc = receive_oldest(fsdp, err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < fsdp->shards->size; r++) {
        request->send[r] = fsdp->shards->rank < grains ? part_count(to->unit, r) * sizeof(float) : 0;
        request->recv[r] = r < grains ? to->unit->own.count * sizeof(float) : 0;
    }
    request->to = *to;
    rc = ash_group_all_to_all_start(fsdp->group, (const float *)to->from->data + to->first, request->send,
                                    request->inbox.data, request->recv, &request->call, err);
    if (rc == 0) fsdp->queue[fsdp->sent++ % ASH_FSDP_REQUESTS] = request;
    return rc;
}
