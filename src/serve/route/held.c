/* Open addressing with linear probing; an entry that leaves lets those behind it move up, so there are no marks of
 * deleted ones. */
#include "serve/route/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define SLOTS_MIN 64

struct ash_route_held_slot {
    uint64_t hash;
    uint32_t times; /* 0: the slot is free */
};

static size_t home_of(const struct ash_route_held *held, uint64_t hash)
{
    return ash_hash_mix(hash) & held->mask;
}

/* The slot of a hash, or the free one where it would be. */
static size_t find(const struct ash_route_held *held, uint64_t hash)
{
    size_t at = home_of(held, hash);

    ash_assert(held->count <= held->mask);
    while (held->slots[at].times > 0 && held->slots[at].hash != hash)
        at = (at + 1) & held->mask;
    return at;
}

/* At most half of the slots are used. */
static int grow(struct ash_route_held *held)
{
    size_t wanted = held->slots != NULL ? 2 * (held->mask + 1) : SLOTS_MIN;
    struct ash_route_held larger = {.mask = wanted - 1, .count = held->count};

    if (held->slots != NULL && 2 * (held->count + 1) <= held->mask + 1) return 0;
    larger.slots = calloc(wanted, sizeof(*larger.slots));
    if (larger.slots == NULL) return -ENOMEM;
    for (size_t i = 0; held->slots != NULL && i <= held->mask; i++)
        if (held->slots[i].times > 0) larger.slots[find(&larger, held->slots[i].hash)] = held->slots[i];
    free(held->slots);
    *held = larger;
    return 0;
}

void ash_route_held_fini(struct ash_route_held *held)
{
    free(held->slots);
    *held = (struct ash_route_held){0};
}

int ash_route_held_add(struct ash_route_held *held, uint64_t hash)
{
    int rc = grow(held);
    struct ash_route_held_slot *slot;

    if (rc < 0) return rc;
    slot = &held->slots[find(held, hash)];
    if (slot->times == 0) held->count++;
    slot->hash = hash;
    slot->times++;
    return 0;
}

void ash_route_held_remove(struct ash_route_held *held, uint64_t hash)
{
    size_t hole, at;

    if (held->slots == NULL) return;
    hole = at = find(held, hash);
    if (held->slots[at].times == 0 || --held->slots[at].times > 0) return;
    held->count--;
    for (;;) {
        at = (at + 1) & held->mask;
        if (held->slots[at].times == 0) break;
        /* It stays if its home is between the hole and itself. */
        if (((at - home_of(held, held->slots[at].hash)) & held->mask) < ((at - hole) & held->mask)) continue;
        held->slots[hole] = held->slots[at];
        held->slots[at].times = 0;
        hole = at;
    }
}

bool ash_route_held_has(const struct ash_route_held *held, uint64_t hash)
{
    return held->slots != NULL && held->slots[find(held, hash)].times > 0;
}

void ash_route_held_clear(struct ash_route_held *held)
{
    if (held->slots != NULL) memset(held->slots, 0, (held->mask + 1) * sizeof(*held->slots));
    held->count = 0;
}
