/* Token counts: a dense list and a table of open addressing over it. Nothing is ever taken out of the list, so a slot
 * that was found stays. */
#include "serve/engine/token_counts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

int ash_token_counts_init(struct ash_token_counts *counts, size_t max_tokens)
{
    size_t slots = 16;

    while (slots < 2 * max_tokens)
        slots *= 2;
    counts->items = calloc(max_tokens + 1, sizeof(*counts->items));
    counts->slots = malloc(slots * sizeof(*counts->slots));
    if (counts->items == NULL || counts->slots == NULL) {
        ash_token_counts_fini(counts);
        return -ENOMEM;
    }
    memset(counts->slots, 0xff, slots * sizeof(*counts->slots));
    counts->capacity = max_tokens;
    counts->slot_mask = slots - 1;
    return 0;
}

void ash_token_counts_fini(struct ash_token_counts *counts)
{
    free(counts->items);
    free(counts->slots);
    *counts = (struct ash_token_counts){0};
}

/* The id's entry; a new one if it has none. */
static struct ash_token_count *find(struct ash_token_counts *counts, int32_t id)
{
    size_t slot = ((uint32_t)id * UINT32_C(2654435761)) & counts->slot_mask;

    for (; counts->slots[slot] >= 0; slot = (slot + 1) & counts->slot_mask)
        if (counts->items[counts->slots[slot]].id == id) return &counts->items[counts->slots[slot]];
    ash_assert(counts->count < counts->capacity);
    counts->slots[slot] = (int32_t)counts->count;
    counts->items[counts->count] = (struct ash_token_count){.id = id};
    return &counts->items[counts->count++];
}

void ash_token_counts_add(struct ash_token_counts *counts, int32_t id, bool in_answer)
{
    struct ash_token_count *item = find(counts, id);

    item->in_text++;
    item->in_answer += in_answer;
}

void ash_token_counts_remove(struct ash_token_counts *counts, int32_t id, bool in_answer)
{
    struct ash_token_count *item = find(counts, id);

    ash_assert(item->in_text > 0 && item->in_answer >= in_answer);
    item->in_text--;
    item->in_answer -= in_answer;
}
