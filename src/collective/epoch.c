/* What a process asks about epochs; forming them is in group.c. */
#include "collective/epoch.h"

#include <errno.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "collective/group_priv.h"

#define LOOK_NS 2000000 /* between looks at what has come */

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

int ash_epoch_wait(struct ash_group *group, double timeout_s)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    uint64_t deadline_ns = ash_deadline_in(timeout_s);

    for (;;) {
        struct ash_epoch_news news;

        ash_epoch_get_news(group, &news);
        if (news.is_over || news.joiners + news.leavers > 0) return 0;
        if (ash_clock_ns() >= deadline_ns) return -ETIMEDOUT;
        if (ash_interrupt_ends_wait(0)) return -EINTR;
        nanosleep(&pause, NULL);
    }
}

size_t ash_epoch_rank_before(const struct ash_group *group, size_t rank)
{
    const struct ash_group_root *root = group->root;

    ash_assert(rank < root->size);
    return root->ranks_before == NULL || root->ranks_before[rank] == ASH_VIEW_NEW ? SIZE_MAX : root->ranks_before[rank];
}

const void *ash_epoch_get_offer(const struct ash_group *group, size_t rank, size_t *offer_bytes_out)
{
    const struct ash_group_root *root = group->root;

    ash_assert(rank < root->size);
    *offer_bytes_out = root->cards != NULL ? root->cards[rank].offer_bytes : 0;
    return *offer_bytes_out > 0 ? root->cards[rank].offer : NULL;
}
