/* pair_heap - pairs of tokens, the most frequent one first; of equally frequent ones that of the smaller key. */
#ifndef ASH_TEXT_LEARN_PAIR_HEAP_H
#define ASH_TEXT_LEARN_PAIR_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ash_pair_entry {
    int64_t count;
    uint64_t key;
    uint32_t pair; /* the caller's number of it */
};

/* Zero-initialise. */
struct ash_pair_heap {
    struct ash_pair_entry *items;
    size_t count, capacity;
};

/* Add an entry. 0 or -ENOMEM. */
int ash_pair_heap_push(struct ash_pair_heap *heap, struct ash_pair_entry entry);
/* Take the first entry out. False: there is none. */
bool ash_pair_heap_pop(struct ash_pair_heap *heap, struct ash_pair_entry *entry_out);
/* Free all of it. */
void ash_pair_heap_fini(struct ash_pair_heap *heap);

#endif
