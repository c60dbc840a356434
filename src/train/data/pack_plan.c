/* Which examples share a sequence: best fit, the longest first. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "train/data/examples.h"

#define NO_BIN SIZE_MAX

struct item {
    size_t length, index;
    uint64_t rank;
};

static int longest_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Bins with room for `room` more rows, oldest first: a list for each room. */
struct bins {
    size_t *first, *last; /* [size + 1] */
    size_t *next, *room;  /* [bins] */
    size_t count;
};

static void push(struct bins *bins, size_t bin)
{
    size_t room = bins->room[bin];

    bins->next[bin] = NO_BIN;
    if (bins->first[room] == NO_BIN)
        bins->first[room] = bin;
    else
        bins->next[bins->last[room]] = bin;
    bins->last[room] = bin;
}

/* The oldest of the fullest bins that length rows fit into, taken off its list; or a new one. */
static size_t take(struct bins *bins, size_t length, size_t size)
{
    for (size_t room = length; room <= size; room++) {
        size_t bin = bins->first[room];

        if (bin == NO_BIN) continue;
        bins->first[room] = bins->next[bin];
        return bin;
    }
    bins->room[bins->count] = size;
    return bins->count++;
}

static void place_items(const struct item *items, size_t count, size_t size, struct bins *bins, size_t *bin_of)
{
    for (size_t room = 0; room <= size; room++)
        bins->first[room] = NO_BIN;
    for (size_t i = 0; i < count; i++) {
        size_t bin = take(bins, items[i].length, size);

        bin_of[items[i].index] = bin;
        ash_assert(items[i].length <= bins->room[bin]);
        bins->room[bin] -= items[i].length;
        push(bins, bin);
    }
}

ssize_t ash_pack_plan(const size_t *lengths, const uint64_t *rank, size_t count, size_t size, size_t *bin_of)
{
    struct bins bins = {.first = malloc((size + 1) * sizeof(size_t)),
                        .last = malloc((size + 1) * sizeof(size_t)),
                        .next = malloc((count + 1) * sizeof(size_t)),
                        .room = malloc((count + 1) * sizeof(size_t))};
    struct item *items = malloc((count + 1) * sizeof(*items));
    bool is_whole = bins.first != NULL && bins.last != NULL && bins.next != NULL && bins.room != NULL && items != NULL;

    for (size_t i = 0; is_whole && i < count; i++) {
        ash_assert(lengths[i] > 0 && lengths[i] <= size);
        items[i] = (struct item){lengths[i], i, rank[i]};
    }
    if (is_whole) {
        qsort(items, count, sizeof(*items), longest_first);
        place_items(items, count, size, &bins, bin_of);
    }
    free(bins.first);
    free(bins.last);
    free(bins.next);
    free(bins.room);
    free(items);
    return is_whole ? (ssize_t)bins.count : -ENOMEM;
}
