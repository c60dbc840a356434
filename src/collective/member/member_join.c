/* Processes that ask to join: any member may be asked, the lowest rank keeps the list. */
#include "collective/member/member_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"

#define FORGET_HEARTBEATS 10
#define JOINERS_MAX 65536

static void drop(struct ash_member *member, size_t i)
{
    ash_assert(i < member->joiner_count);
    free(member->joiners[i].card);
    member->joiners[i] = member->joiners[--member->joiner_count];
}

static struct ash_member_joiner *add(struct ash_member *member, uint64_t id)
{
    if (member->joiner_count == JOINERS_MAX) return NULL;
    if (ash_array_reserve(&member->joiners, &member->joiner_room, member->joiner_count + 1, sizeof(*member->joiners)) <
        0)
        return NULL;
    member->joiners[member->joiner_count] = (struct ash_member_joiner){.id = id};
    if (member->opts.card_bytes > 0) {
        member->joiners[member->joiner_count].card = malloc(member->opts.card_bytes);
        if (member->joiners[member->joiner_count].card == NULL) return NULL;
    }
    return &member->joiners[member->joiner_count++];
}

static void keep(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_event news = {.kind = ASH_MEMBER_EVENT_NEWS, .view = member->view, .rank = member->rank};
    struct ash_member_joiner *joiner = NULL;

    for (size_t i = 0; i < member->joiner_count && joiner == NULL; i++)
        if (member->joiners[i].id == msg->subject) joiner = &member->joiners[i];
    if (joiner == NULL) {
        joiner = add(member, msg->subject);
        if (joiner == NULL) return; /* it asks again */
        member->opts.ops->event(member->opts.ctx, &news);
    }
    joiner->heard_ns = member->now_ns;
    if (msg->card != NULL && joiner->card != NULL) memcpy(joiner->card, msg->card, member->opts.card_bytes);
}

void ash_member_join_receive(struct ash_member *member, const struct ash_member_msg *msg)
{
    size_t lowest = member->state == ASH_MEMBER_OVER ? member->candidate : 0;
    struct ash_member_msg on = *msg;

    if (member->view == NULL || (member->opts.card_bytes > 0 && msg->card == NULL)) return;
    if (ash_view_find(member->view, msg->subject) != SIZE_MAX) { /* it has a place, and does not know */
        struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_START);

        answer.view = member->view;
        ash_member_send(member, msg->subject, &answer);
    } else if (member->rank == lowest) {
        keep(member, msg);
    } else if (msg->from == msg->subject) { /* once is enough: it asks others, too */
        on.from = member->opts.id;
        ash_member_send(member, member->view->members[lowest].id, &on);
    }
}

void ash_member_join_expire(struct ash_member *member, uint64_t gone_id)
{
    uint64_t limit_ns = FORGET_HEARTBEATS * member->opts.heartbeat_ns;

    for (size_t i = 0; i < member->joiner_count;) {
        const struct ash_member_joiner *joiner = &member->joiners[i];
        bool has_place = member->view != NULL && ash_view_find(member->view, joiner->id) != SIZE_MAX;

        if (joiner->id == gone_id || has_place || member->now_ns - joiner->heard_ns > limit_ns)
            drop(member, i);
        else
            i++;
    }
}
