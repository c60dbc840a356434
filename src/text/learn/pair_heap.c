/* pair_heap: a binary heap in an array. */
#include "text/learn/pair_heap.h"

#include <stdlib.h>

#include "base/array.h"

static bool comes_first(const struct ash_pair_entry *a, const struct ash_pair_entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

int ash_pair_heap_push(struct ash_pair_heap *heap, struct ash_pair_entry entry)
{
    int rc = ash_array_reserve(&heap->items, &heap->capacity, heap->count + 1, sizeof(*heap->items));
    size_t at = heap->count;

    if (rc < 0) return rc;
    heap->count++;
    while (at > 0 && comes_first(&entry, &heap->items[(at - 1) / 2])) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = entry;
    return 0;
}

bool ash_pair_heap_pop(struct ash_pair_heap *heap, struct ash_pair_entry *entry_out)
{
    struct ash_pair_entry last;
    size_t at = 0, child;

    if (heap->count == 0) return false;
    *entry_out = heap->items[0];
    last = heap->items[--heap->count];
    for (; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && comes_first(&heap->items[child + 1], &heap->items[child])) child++;
        if (!comes_first(&heap->items[child], &last)) break;
        heap->items[at] = heap->items[child];
    }
    heap->items[at] = last;
    return true;
}

void ash_pair_heap_fini(struct ash_pair_heap *heap)
{
    free(heap->items);
    *heap = (struct ash_pair_heap){0};
}
