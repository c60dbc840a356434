/* Messages of the membership machine: from which epoch they come, and which part of the machine answers. */
#include "collective/member/member_priv.h"

#include <errno.h>

#define PATIENCE_HEARTBEATS 3 /* for the owner to come to a planned meeting by itself */

/* ---- of another epoch -------------------------------------------------------------------------------------------- */

/* The sender has not heard of this epoch: if it belongs to it, it has accepted the view and may start it. */
static void help_behind(struct ash_member *member, const struct ash_member_msg *msg)
{
    bool is_in = ash_view_find(member->view, msg->from) != SIZE_MAX;
    struct ash_member_msg answer;

    if (msg->kind == ASH_MEMBER_ACCEPT || msg->kind == ASH_MEMBER_STARTED || msg->kind == ASH_MEMBER_STALE) return;
    if (!is_in && (member->base != member->view || msg->epoch == 0)) return; /* not sure that this epoch runs */
    answer = ash_member_message(member, is_in ? ASH_MEMBER_START : ASH_MEMBER_STALE);
    if (is_in) answer.view = member->view;
    ash_member_send(member, msg->from, &answer);
}

/* The sender is further. Returns true if this process has caught up, so that the message is of its epoch. */
static bool catch_up(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg question = ash_member_message(member, ASH_MEMBER_HEARTBEAT);
    struct ash_view *known = member->state == ASH_MEMBER_OVER ? ash_member_find_accepted(member, msg->proposal) : NULL;

    if (known != NULL) {
        ash_member_start(member, known);
        return true;
    }
    ash_member_send(member, msg->from, &question); /* the answer is a start, or that this process is stale */
    return false;
}

static void on_stale(struct ash_member *member, const struct ash_member_msg *msg)
{
    if (member->view == NULL || msg->epoch <= member->view->epoch) return;
    if (catch_up(member, msg)) return;
    ash_member_end(member, -ESTALE, msg->why);
}

/* ---- of the same epoch ------------------------------------------------------------------------------------------- */

static void on_leave(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_event news = {.kind = ASH_MEMBER_EVENT_NEWS, .view = member->view, .rank = member->rank};

    if (member->state == ASH_MEMBER_OVER && member->is_ready && member->terms.leaves)
        ash_member_end(member, 0, NULL);
    else if (member->state == ASH_MEMBER_RUNNING && !ash_member_ids_has(&member->leavers, msg->from)) {
        ash_member_ids_add(&member->leavers, msg->from);
        member->opts.ops->event(member->opts.ctx, &news);
    }
}

/* A follower found a member silent: do not follow that one, unless it shows that it lives. */
static void hear_suspicion(struct ash_member *member, uint64_t id)
{
    size_t rank = ash_view_find(member->view, id);

    if (rank == SIZE_MAX || rank == member->rank) return;
    ash_member_ids_add(&member->suspects, id);
    if (rank == member->candidate) ash_member_choose(member);
}

/* The same is news to a process whose epoch runs, and to its neighbours. */
static void pass_suspicion(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg lost = ash_member_message(member, ASH_MEMBER_LOST);

    if (ash_view_find(member->view, msg->suspect) == SIZE_MAX || msg->suspect == member->opts.id) return;
    lost.from = msg->from;
    lost.subject = msg->suspect;
    lost.loss = ASH_MEMBER_SILENT;
    lost.code = -ECONNRESET;
    ash_member_lose(member, &lost, 0);
}

/* The next epoch is being formed: a HELLO or a call. */
static void on_meeting(struct ash_member *member, const struct ash_member_msg *msg)
{
    uint64_t patience_ns = PATIENCE_HEARTBEATS * member->opts.heartbeat_ns;

    if (member->state == ASH_MEMBER_RUNNING && msg->network_fails) pass_suspicion(member, msg);
    if (member->state == ASH_MEMBER_RUNNING) ash_member_over(member, member->now_ns + patience_ns);
    if (member->state != ASH_MEMBER_OVER) return;
    member->network_fails = member->network_fails || msg->network_fails;
    if (msg->network_fails) hear_suspicion(member, msg->suspect);
    if (msg->kind == ASH_MEMBER_HELLO)
        ash_member_form_receive(member, msg);
    else
        ash_member_follow_receive(member, msg);
}

/* A message of this process's own epoch, from one of its members. */
static void on_own_epoch(struct ash_member *member, const struct ash_member_msg *msg)
{
    switch (msg->kind) {
    case ASH_MEMBER_HEARTBEAT:
        ash_member_watch_heartbeat(member, msg);
        break;
    case ASH_MEMBER_LOST:
        ash_member_lose(member, msg, 0);
        break;
    case ASH_MEMBER_BYE:
        ash_member_ids_add(&member->gone, msg->from);
        for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++)
            if (member->neighbours[i].id == msg->from) member->neighbours[i].id = 0;
        break;
    case ASH_MEMBER_LEAVE:
        on_leave(member, msg);
        break;
    case ASH_MEMBER_HELLO:
    case ASH_MEMBER_ACK:
        on_meeting(member, msg);
        break;
    case ASH_MEMBER_PROPOSE:
    case ASH_MEMBER_START:
    case ASH_MEMBER_END:
        ash_member_follow_receive(member, msg);
        break;
    default:
        break;
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Does a message matter to a process in this state at all? */
static bool is_heard(const struct ash_member *member, const struct ash_member_msg *msg)
{
    if (member->state == ASH_MEMBER_ENDED || member->state == ASH_MEMBER_IDLE) return false;
    if (member->state == ASH_MEMBER_LEAVING && msg->kind != ASH_MEMBER_STARTED) return false;
    return msg->from != member->opts.id;
}

void ash_member_receive(struct ash_member *member, const struct ash_member_msg *msg, uint64_t now_ns)
{
    member->now_ns = now_ns;
    if (!is_heard(member, msg)) return;
    if (msg->kind == ASH_MEMBER_JOIN) {
        ash_member_join_receive(member, msg);
    } else if (msg->kind == ASH_MEMBER_STALE) {
        on_stale(member, msg);
    } else if (msg->kind == ASH_MEMBER_ACCEPT || msg->kind == ASH_MEMBER_STARTED) {
        ash_member_form_receive(member, msg);
    } else if (msg->kind == ASH_MEMBER_START || member->view == NULL) {
        ash_member_follow_receive(member, msg);
    } else if (msg->epoch < member->view->epoch) {
        help_behind(member, msg);
    } else if (msg->epoch == member->view->epoch || catch_up(member, msg)) {
        if (msg->proposal == member->view->proposal && ash_view_find(member->view, msg->from) != SIZE_MAX)
            on_own_epoch(member, msg);
    }
}
