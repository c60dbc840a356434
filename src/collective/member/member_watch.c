/* A running epoch: heartbeats between tree neighbours, and losses that spread along the tree. Every neighbour of a lost
 * rank notices by itself, so the tree needs no repair. */
#include "collective/member/member_priv.h"

#include <errno.h>

void ash_member_watch_begin(struct ash_member *member)
{
    size_t rank = member->rank, size = member->view->size;
    size_t ranks[ASH_MEMBER_NEIGHBOURS] = {rank > 0 ? (rank - 1) / 2 : SIZE_MAX, 2 * rank + 1, 2 * rank + 2};

    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++)
        member->neighbours[i] = (struct ash_member_neighbour){
            .id = ranks[i] < size ? member->view->members[ranks[i]].id : 0, .heard_ns = member->now_ns};
    member->heartbeat_at_ns = member->now_ns;
}

void ash_member_send_heartbeats(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_HEARTBEAT);

    msg.is_confirmed = member->base == member->view;
    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++)
        if (member->neighbours[i].id != 0) ash_member_send(member, member->neighbours[i].id, &msg);
}

static void find_silence(struct ash_member *member)
{
    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS && member->state == ASH_MEMBER_RUNNING; i++) {
        const struct ash_member_neighbour *neighbour = &member->neighbours[i];
        struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_LOST);

        if (neighbour->id == 0 || member->now_ns - neighbour->heard_ns < member->opts.silent_ns) continue;
        msg.subject = neighbour->id;
        msg.loss = ASH_MEMBER_SILENT;
        msg.code = -ECONNRESET;
        ash_member_lose(member, &msg, (double)(member->now_ns - neighbour->heard_ns) * 1e-9);
    }
}

/* Rank 0 collects those who want to leave. */
static void tell_leave(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_LEAVE);

    if (member->rank == 0)
        ash_member_ids_add(&member->leavers, member->opts.id);
    else
        ash_member_send(member, member->view->members[0].id, &msg);
}

void ash_member_watch_tick(struct ash_member *member)
{
    if (member->now_ns < member->heartbeat_at_ns) return;
    member->heartbeat_at_ns = member->now_ns + member->opts.heartbeat_ns;
    ash_member_send_heartbeats(member);
    if (member->wants_leave) tell_leave(member);
    ash_member_join_expire(member, 0);
    find_silence(member);
}

void ash_member_confirm(struct ash_member *member)
{
    if (member->base == member->view) return;
    ash_view_put(member->base);
    member->base = ash_view_get(member->view);
    if (member->state == ASH_MEMBER_RUNNING) ash_member_send_heartbeats(member);
}

void ash_member_watch_heartbeat(struct ash_member *member, const struct ash_member_msg *msg)
{
    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++)
        if (member->neighbours[i].id == msg->from) member->neighbours[i].heard_ns = member->now_ns;
    if (msg->is_confirmed) ash_member_confirm(member);
}

/* What a loss says about its subject. */
static void note_loss(struct ash_member *member, const struct ash_member_msg *msg)
{
    if (msg->subject == member->opts.id) return;
    if (msg->loss == ASH_MEMBER_DIED) ash_member_ids_add(&member->dead, msg->subject);
    if (msg->loss == ASH_MEMBER_SILENT) {
        ash_member_ids_add(&member->suspects, msg->subject);
        if (msg->from == member->opts.id) ash_member_suspect(member, msg->subject);
        member->network_fails = true;
    }
}

/* Along the tree; not back, and not to the lost one, unless it lives and is told why others gave up. */
static void pass_loss(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg on = *msg;

    on.from = member->opts.id;
    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++) {
        uint64_t id = member->neighbours[i].id;

        if (id == 0 || id == msg->from || (id == msg->subject && msg->loss != ASH_MEMBER_ABORTED)) continue;
        ash_member_send(member, id, &on);
    }
}

/* The epoch is over: neighbours and owner hear why. */
static void report_loss(struct ash_member *member, const struct ash_member_msg *msg, double silent_s)
{
    struct ash_member_event event = {.kind = ASH_MEMBER_EVENT_OVER,
                                     .view = member->view,
                                     .rank = member->rank,
                                     .subject = msg->subject,
                                     .loss = msg->loss,
                                     .silent_s = silent_s,
                                     .code = msg->code,
                                     .why = msg->why};

    pass_loss(member, msg);
    member->tell_at_ns = ASH_MEMBER_NEVER;
    member->opts.ops->event(member->opts.ctx, &event);
    if (member->state == ASH_MEMBER_RUNNING) ash_member_over(member, ASH_MEMBER_NEVER);
}

void ash_member_lose(struct ash_member *member, const struct ash_member_msg *msg, double silent_s)
{
    bool is_news = member->state == ASH_MEMBER_RUNNING || member->tell_at_ns != ASH_MEMBER_NEVER;
    bool is_certain = msg->loss == ASH_MEMBER_DIED, is_gone = is_certain || msg->loss == ASH_MEMBER_SILENT;

    if (member->state != ASH_MEMBER_RUNNING && member->state != ASH_MEMBER_OVER) return;
    note_loss(member, msg);
    if (is_news) report_loss(member, msg, silent_s);
    if (is_certain && member->meeting != NULL) ash_member_form_lose(member, msg->subject, true);
    if (is_gone && member->state == ASH_MEMBER_OVER && msg->subject == member->view->members[member->candidate].id)
        ash_member_choose(member);
}
