/* rank_lists: how long each list is, then all of them, each with room for the longest. */
#include "train/recover/rank_lists.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

void ash_rank_lists_fini(struct ash_rank_lists *lists)
{
    free(lists->items);
    free(lists->first);
    memset(lists, 0, sizeof(*lists));
}

/* How long each is, and the longest. */
static int gather_counts(struct ash_rank_lists *lists, struct ash_group *group, size_t count, size_t *most_out,
                         struct ash_err *err)
{
    size_t ranks = ash_group_size(group);
    uint64_t own = count, *counts = calloc(ranks, sizeof(*counts));
    int rc = -ENOMEM;

    lists->first = calloc(ranks + 1, sizeof(*lists->first));
    if (counts != NULL && lists->first != NULL) rc = ash_group_all_gather(group, &own, counts, sizeof(own), err);
    *most_out = 1;
    for (size_t r = 0; rc == 0 && r < ranks; r++) {
        *most_out = ash_max(*most_out, (size_t)counts[r]);
        lists->first[r + 1] = lists->first[r] + (size_t)counts[r];
    }
    free(counts);
    return rc;
}

int ash_rank_lists_gather(struct ash_rank_lists *lists, struct ash_group *group, const void *own, size_t count,
                          struct ash_rank_item item, struct ash_err *err)
{
    size_t ranks = ash_group_size(group), most = 1;
    char *mine = NULL, *all = NULL;
    int rc = gather_counts(lists, group, count, &most, err);

    if (rc < 0) goto out;
    rc = -ENOMEM;
    mine = calloc(most, item.bytes);
    all = calloc(ranks * most, item.bytes);
    lists->items = calloc(lists->first[ranks] + 1, item.bytes);
    if (mine == NULL || all == NULL || lists->items == NULL) goto out;
    for (size_t i = 0; i < count; i++)
        memcpy(mine + i * item.bytes, (const char *)own + i * item.stride, item.bytes);
    rc = ash_group_all_gather(group, mine, all, most * item.bytes, err);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        memcpy((char *)lists->items + lists->first[r] * item.bytes, all + r * most * item.bytes,
               (lists->first[r + 1] - lists->first[r]) * item.bytes);

out:
    free(mine);
    free(all);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for what %zu ranks hold", ranks) : rc;
}
