/* What a process asks about epochs; forming them is in group.c. */
#include "collective/epoch.h"

#include "base/assert.h"
#include "collective/group_priv.h"

void ash_epoch_get_news(struct ash_group *group, struct ash_epoch_news *news_out)
{
    struct ash_group_root *root = group->root;

    *news_out = (struct ash_epoch_news){.is_over = atomic_load(&root->gives_up)};
    if (root->membership == NULL) return;
    ash_membership_news(root->membership, &news_out->joiners, &news_out->leavers, &news_out->is_over);
    news_out->is_over = news_out->is_over || atomic_load(&root->gives_up);
}

int ash_epoch_check(const struct ash_group *group, struct ash_err *err)
{
    return group->local != NULL ? ash_local_check(group->local, err) : 0;
}

void ash_epoch_want_leave(struct ash_group *group)
{
    if (group->root->membership != NULL) ash_membership_want_leave(group->root->membership);
}

size_t ash_epoch_rank_before(const struct ash_group *group, size_t rank)
{
    const struct ash_group_root *root = group->root;

    ash_assert(rank < root->size);
    return root->ranks_before == NULL || root->ranks_before[rank] == ASH_VIEW_NEW ? SIZE_MAX : root->ranks_before[rank];
}
