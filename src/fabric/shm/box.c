/* Slots and rings. The writer puts a mark into an entry last and the reader polls that mark, so one cache line
 * moves for a notification. The writer reads how far the reader is only when it runs out of room. */
#include "fabric/shm/box.h"

#include "base/assert.h"

#define KIND_BITS 1

struct ash_box_slot *ash_box_claim(struct ash_box *box, uint64_t id, int32_t pid)
{
    ash_assert(id != 0); /* 0: the slot is free */
    for (size_t i = 0; i < ASH_BOX_SLOTS; i++) {
        struct ash_box_slot *slot = &box->slots[i];
        uint64_t nobody = 0;

        if (!atomic_compare_exchange_strong(&slot->owner, &nobody, id)) continue;
        atomic_store(&slot->pid, pid);
        atomic_fetch_add(&box->claims, 1);
        return slot;
    }
    return NULL;
}

struct ash_box_slot *ash_box_find(struct ash_box *box, uint64_t id)
{
    struct ash_box_slot *found = NULL;

    for (size_t i = 0; i < ASH_BOX_SLOTS; i++) {
        struct ash_box_slot *slot = &box->slots[i];

        if (atomic_load(&slot->owner) != id) continue;
        if (atomic_load(&slot->closed) != 0) return slot;
        found = slot;
    }
    return found;
}

void ash_box_free(struct ash_box_slot *slot)
{
    for (size_t i = 0; i < ASH_BOX_ENTRIES; i++)
        atomic_store_explicit(&slot->entries[i].mark, 0, memory_order_relaxed);
    for (size_t i = 0; i < ASH_BOX_CHUNKS; i++)
        atomic_store_explicit(&slot->chunks[i].answered, 0, memory_order_relaxed);
    atomic_store(&slot->taken, 0);
    atomic_store(&slot->closed, 0);
    atomic_store(&slot->pid, 0);
    atomic_store(&slot->owner, 0); /* last */
}

bool ash_box_put(struct ash_box_slot *slot, struct ash_box_cursor *cursor, enum ash_box_kind kind, uint64_t word)
{
    struct ash_box_entry *entry = &slot->entries[cursor->next % ASH_BOX_ENTRIES];

    if (cursor->next - cursor->taken >= ASH_BOX_ENTRIES) {
        cursor->taken = atomic_load_explicit(&slot->taken, memory_order_acquire);
        if (cursor->next - cursor->taken >= ASH_BOX_ENTRIES) return false;
    }
    entry->word = word;
    atomic_store(&entry->mark,
                 (cursor->next + 1) << KIND_BITS | kind); /* ordered before the check whether the reader sleeps */
    cursor->next++;
    return true;
}

bool ash_box_peek(const struct ash_box_slot *slot, const struct ash_box_cursor *cursor, enum ash_box_kind *kind_out,
                  uint64_t *word_out)
{
    const struct ash_box_entry *entry = &slot->entries[cursor->next % ASH_BOX_ENTRIES];
    uint64_t mark = atomic_load(&entry->mark); /* ordered after arming the wake-up */

    if (mark >> KIND_BITS != cursor->next + 1) return false;
    *kind_out = (enum ash_box_kind)(mark & ((1u << KIND_BITS) - 1));
    *word_out = entry->word;
    return true;
}
