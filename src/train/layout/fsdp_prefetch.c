/* fsdp: weights under zero 1 and 2 across nodes. After an update they are all-gathered, unit by unit in the order in
 * which passes use them; the first layers of the next step are computed while the others are in flight. */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "compute/backends/backends.h"

bool ash_fsdp_prefetches(const struct ash_fsdp *fsdp)
{
    return (fsdp->mesh->zero == 1 || fsdp->mesh->zero == 2) && !ash_fsdp_is_node_shared(fsdp);
}

/* Units in the order in which passes use them. */
int ash_fsdp_open_prefetch(struct ash_fsdp *fsdp, struct ash_err *err)
{
    const struct ash_shards *shards = fsdp->shards;
    size_t count = 0;

    fsdp->gathers = calloc(shards->unit_count, sizeof(struct ash_call *));
    fsdp->order = calloc(shards->unit_count, sizeof(*fsdp->order));
    if (fsdp->gathers == NULL || fsdp->order == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a list");
    for (int unit = ASH_UNIT_EMBED; unit <= ASH_UNIT_HEAD; unit++)
        for (size_t i = 0; i < shards->unit_count; i++)
            if (shards->units[i].unit == unit) fsdp->order[count++] = i;
    ash_assert(count == shards->unit_count);
    fsdp->started = fsdp->arrived = count;
    return 0;
}

/* Parts of equal size are gathered in place, others through the slot. */
static bool is_even(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    return unit->part * fsdp->shards->size == unit->whole.count;
}

/* Start all-gathers in order, as far as there is room: one may be in the slot. */
static int start_gathers(struct ash_fsdp *fsdp, struct ash_err *err)
{
    struct ash_fsdp_slot *slot = &fsdp->slots[0];
    int rc = 0;

    for (; rc == 0 && fsdp->started < fsdp->shards->unit_count; fsdp->started++) {
        size_t index = fsdp->order[fsdp->started], width = ash_fsdp_weight_bytes(fsdp);
        const struct ash_shard_unit *unit = &fsdp->shards->units[index];
        char *whole = ash_fsdp_weights(fsdp) + unit->whole.first * width;

        if (!is_even(fsdp, unit) && slot->unit != NULL) return 0;
        if (!is_even(fsdp, unit)) {
            rc = ash_fsdp_gather(fsdp, slot, unit, err);
            continue;
        }
        rc = ash_group_all_gather_start(fsdp->group, whole + fsdp->shards->rank * unit->part * width, whole,
                                        unit->part * width, &fsdp->gathers[index], err);
    }
    return rc;
}

/* Wait for the next unit of the order, and start what its slot was in the way of. */
static int wait_next(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t index = fsdp->order[fsdp->arrived], width = ash_fsdp_weight_bytes(fsdp);
    const struct ash_shard_unit *unit = &fsdp->shards->units[index];
    struct ash_fsdp_slot *slot = &fsdp->slots[0];
    char *whole = ash_fsdp_weights(fsdp) + unit->whole.first * width;
    int rc = ash_fsdp_wait(fsdp, is_even(fsdp, unit) ? &fsdp->gathers[index] : &slot->call, err);

    ash_assert(fsdp->arrived < fsdp->started); /* arrivals were requested */
    if (rc < 0) return rc;
    fsdp->arrived++;
    if (!is_even(fsdp, unit)) {
        ash_backend_copy(fsdp->state->exec, whole, slot->data.data, unit->whole.count * width);
        slot->unit = NULL;
    }
    ash_fsdp_bind(fsdp, unit, whole);
    return start_gathers(fsdp, err);
}

int ash_fsdp_wait_unit(struct ash_fsdp *fsdp, int unit, struct ash_err *err)
{
    int rc = 0;

    while (rc == 0 && fsdp->arrived < fsdp->shards->unit_count &&
           fsdp->shards->units[fsdp->order[fsdp->arrived]].unit <= unit)
        rc = wait_next(fsdp, err);
    return rc;
}

int ash_fsdp_flush(struct ash_fsdp *fsdp, struct ash_err *err)
{
    return ash_fsdp_prefetches(fsdp) ? ash_fsdp_wait_unit(fsdp, ASH_UNIT_HEAD, err) : 0;
}

int ash_fsdp_prefetch(struct ash_fsdp *fsdp, struct ash_err *err)
{
    int rc = ash_fsdp_flush(fsdp, err);

    ash_assert(ash_fsdp_prefetches(fsdp));
    if (rc < 0) return rc;
    fsdp->started = fsdp->arrived = 0;
    return start_gathers(fsdp, err);
}

void ash_fsdp_drop_prefetch(struct ash_fsdp *fsdp)
{
    for (size_t i = 0; fsdp->gathers != NULL && i < fsdp->shards->unit_count; i++) {
        ash_call_wait(fsdp->gathers[i], NULL);
        fsdp->gathers[i] = NULL;
    }
}

void ash_fsdp_close_prefetch(struct ash_fsdp *fsdp)
{
    ash_fsdp_drop_prefetch(fsdp);
    free(fsdp->gathers);
    free(fsdp->order);
}
