/* rank_lists - a list of every rank, of any length, for all of them. */
#ifndef ASH_TRAIN_RECOVER_RANK_LISTS_H
#define ASH_TRAIN_RECOVER_RANK_LISTS_H

#include <stddef.h>
#include "ashlar/err.h"
#include "collective/group.h"

/* Zero-initialise; free with ash_rank_lists_fini. Those of rank r are items first[r] ... first[r + 1] - 1. */
struct ash_rank_lists {
    void *items;
    size_t *first; /* [ranks + 1] */
};

/* Items are plain data, the first `bytes` of every `stride` bytes of a list. */
struct ash_rank_item {
    size_t stride, bytes;
};

/* All-gather of the ranks' lists; own [count]. All ranks of group call it. Returns 0, -ENOMEM or the group's error. */
int ash_rank_lists_gather(struct ash_rank_lists *lists, struct ash_group *group, const void *own, size_t count,
                          struct ash_rank_item item, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_rank_lists_fini(struct ash_rank_lists *lists);

#endif
