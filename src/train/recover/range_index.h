/* range_index - which of many ranges of a model's tensors hold a given one. With tensor parallelism a matrix that is
 * cut by columns is a range for every row, so there are tens of thousands, and they may overlap: a rank's ranges of an
 * old mesh, of the new one, and its peer replicas. The time that a search takes grows with the logarithm of their
 * number. */
#ifndef ASH_TRAIN_RECOVER_RANGE_INDEX_H
#define ASH_TRAIN_RECOVER_RANGE_INDEX_H

#include "train/recover/patches.h"

struct ash_range_entry {
    struct ash_patch_range range;
    uint64_t reach; /* the last end of any entry in the part of the list that this one is the middle of */
    size_t id;      /* its number in the list that was indexed */
};

/* Sorted by parameter, first element, id. Zero-initialise; free with ash_range_index_fini. */
struct ash_range_index {
    struct ash_range_entry *entries;
    size_t count;
    void *memory; /* in which they are */
};

/* Is called for a range that was found. */
typedef void (*ash_range_found_fn)(void *ctx, const struct ash_range_entry *entry);

/* Index count ranges, which are stride bytes apart: alone, or at the beginning of larger structs. Returns 0 or
 * -ENOMEM. */
int ash_range_index_init(struct ash_range_index *index, const void *ranges, size_t count, size_t stride_bytes);
/* Free; a zeroed struct is a no-op. */
void ash_range_index_fini(struct ash_range_index *index);
/* Call found for each that holds all elements of range, and moments if that has them, in the order of the index. */
void ash_range_index_find(const struct ash_range_index *index, const struct ash_patch_range *range,
                          ash_range_found_fn found, void *ctx);
/* Where in the index the first range of a parameter is that begins at `first` or later; count: there is none. */
size_t ash_range_index_at(const struct ash_range_index *index, uint32_t param, uint64_t first);

#endif
