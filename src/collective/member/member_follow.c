/* A view change, as a follower: the coordinator, the hellos to it, and its proposals. */
#include "collective/member/member_priv.h"

#include <errno.h>

#include "base/assert.h"

#define LIMIT_SILENCES 6 /* coordinators that fall silent one after the other before a process gives up */

void ash_member_choose(struct ash_member *member)
{
    const struct ash_view *view = member->view;
    size_t rank = 0;

    if (member->has_agreed) { /* its vote is given: the view that has it continues, or none */
        ash_member_end(member, 0, NULL);
        return;
    }
    while (rank != member->rank && (ash_member_ids_has(&member->dead, view->members[rank].id) ||
                                    ash_member_ids_has(&member->suspects, view->members[rank].id)))
        rank++;
    ash_assert(rank <= member->rank); /* it follows an earlier rank or coordinates */
    member->candidate = rank;
    member->candidate_ns = member->now_ns;
    member->hello_at_ns = member->now_ns;
    if (rank != member->rank)
        ash_member_meeting_close(member, member->meeting);
    else if (member->meeting == NULL)
        ash_member_form_begin(member);
}

void ash_member_over(struct ash_member *member, uint64_t tell_at_ns)
{
    ash_assert(member->state == ASH_MEMBER_RUNNING);
    ash_member_meeting_close(member, member->starting);
    member->state = ASH_MEMBER_OVER;
    member->over_since_ns = member->now_ns;
    member->tell_at_ns = tell_at_ns;
    ash_member_choose(member);
}

void ash_member_tell_suspicion(const struct ash_member *member, struct ash_member_msg *msg)
{
    msg->network_fails = member->network_fails;
    if (member->suspects.count > 0) msg->suspect = member->suspects.ids[member->suspects.count - 1];
}

static void say_hello(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_HELLO);

    msg.is_ready = member->is_ready;
    ash_member_tell_suspicion(member, &msg);
    msg.is_confirmed = member->base == member->view;
    if (!msg.is_confirmed) msg.view = member->base;
    msg.leaves = member->is_ready && member->terms.leaves;
    if (member->accepted != NULL) msg.accepted_epoch = member->accepted->epoch;
    if (member->is_ready && member->opts.card_bytes > 0) msg.card = member->card;
    for (size_t i = 0; i < member->dead.count && i < ASH_MEMBER_DEAD_MAX; i++)
        msg.dead[msg.dead_count++] = member->dead.ids[member->dead.count - 1 - i];
    ash_member_send(member, member->view->members[member->candidate].id, &msg);
    member->hello_at_ns = member->now_ns + ash_member_retry_ns(member);
}

static void ask_to_join(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_JOIN);

    if (member->now_ns < member->join_at_ns) return;
    msg.subject = member->opts.id;
    if (member->opts.card_bytes > 0) msg.card = member->card;
    member->join_at_ns = member->now_ns + member->opts.heartbeat_ns;
    ash_member_send(member, ASH_MEMBER_ANY, &msg);
}

/* The owner did not come by itself: tell it that the others form the next epoch. */
static void tell_owner(struct ash_member *member)
{
    struct ash_member_event event = {.kind = ASH_MEMBER_EVENT_OVER,
                                     .view = member->view,
                                     .rank = member->rank,
                                     .subject = member->opts.id,
                                     .loss = ASH_MEMBER_RESTRUCTURED,
                                     .code = -ECONNRESET};

    if (member->now_ns < member->tell_at_ns) return;
    member->tell_at_ns = ASH_MEMBER_NEVER;
    member->opts.ops->event(member->opts.ctx, &event);
}

/* How long a meeting may take for one that is ready. */
static uint64_t limit_ns(const struct ash_member *member)
{
    const struct ash_member_opts *opts = &member->opts;

    return opts->ready_ns + 2 * opts->yield_ns + member->terms.wait_ns + LIMIT_SILENCES * opts->silent_ns;
}

void ash_member_follow_tick(struct ash_member *member)
{
    if (member->state == ASH_MEMBER_JOINING) {
        ask_to_join(member);
        return;
    }
    tell_owner(member);
    if (member->now_ns >= member->heartbeat_at_ns) { /* neighbours that know of nothing must not take it for lost */
        member->heartbeat_at_ns = member->now_ns + member->opts.heartbeat_ns;
        ash_member_send_heartbeats(member);
    }
    if (!member->is_ready) { /* it answers, and opens no connection */
        member->hello_at_ns = member->candidate_ns = member->now_ns;
        member->hello_at_ns += member->opts.heartbeat_ns;
        return;
    }
    if (member->is_ready && member->now_ns - member->ready_since_ns > limit_ns(member)) {
        ash_member_end(member, -ETIMEDOUT, "the ranks that are left did not form a group in time");
        return;
    }
    if (member->candidate == member->rank) {
        member->hello_at_ns = member->now_ns + member->opts.heartbeat_ns; /* it has no one to greet */
        return;
    }
    if (member->now_ns - member->candidate_ns > member->opts.silent_ns) {
        ash_member_suspect(member, member->view->members[member->candidate].id);
        member->network_fails = true;
        ash_member_choose(member);
    }
    if (member->state == ASH_MEMBER_OVER && member->now_ns >= member->hello_at_ns && member->candidate != member->rank)
        say_hello(member);
}

/* ---- the coordinator's messages ---------------------------------------------------------------------------------- */

/* One that others suspect, but that some follow, may be followed. */
static bool is_trusted(const struct ash_member *member, uint64_t id)
{
    return !ash_member_ids_has(&member->dead, id) && !ash_member_ids_has(&member->deaf, id);
}

static void follow(struct ash_member *member, size_t rank)
{
    if (member->has_agreed) return;
    ash_member_ids_remove(&member->suspects, member->view->members[rank].id);
    ash_assert(rank < member->view->size && rank != member->rank);
    member->candidate = rank;
    member->candidate_ns = member->now_ns;
    member->hello_at_ns = member->now_ns;
    ash_member_meeting_close(member, member->meeting);
}

static void on_ack(struct ash_member *member, const struct ash_member_msg *msg)
{
    size_t sender = ash_view_find(member->view, msg->from), subject = ash_view_find(member->view, msg->subject);

    if (subject == SIZE_MAX) return;
    if (!member->is_ready && sender == subject && !msg->is_ready) { /* a call: it lives, but is not ready */
        struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_HELLO);

        ash_member_send(member, msg->from, &answer);
        return;
    }
    if (subject < member->candidate && is_trusted(member, msg->subject)) {
        follow(member, subject); /* it coordinates, or has a follower, and it comes first */
    } else if (sender == member->candidate) {
        if (msg->is_ready) member->candidate_ns = member->now_ns;
    } else if (sender == subject && member->candidate != member->rank) { /* one that does not know the coordinator */
        struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_ACK);

        answer.subject = member->view->members[member->candidate].id;
        ash_member_send(member, msg->from, &answer);
    }
}

/* A view that holds this process and is newer than its current one. */
static bool is_acceptable(const struct ash_member *member, const struct ash_view *view)
{
    return view != NULL && ash_view_find(view, member->opts.id) != SIZE_MAX &&
           (member->view == NULL || view->epoch > member->view->epoch);
}

/* Who leaves gives its vote for good: the view starts without it, so it could not take the vote back. */
static void agree(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_ACCEPT);

    member->has_agreed = true;
    answer.proposal = msg->view->proposal;
    ash_member_send(member, msg->from, &answer);
}

/* Remember a view that was accepted, and one before it from another coordinator. */
static void keep_accepted(struct ash_member *member, struct ash_view *view, uint64_t from)
{
    bool same_coordinator = member->accepted != NULL && member->accepted_from == from;

    if (member->accepted != NULL && member->accepted->proposal == view->proposal) return;
    if (!same_coordinator) { /* a new proposal withdraws the one before */
        ash_view_put(member->accepted_before);
        member->accepted_before = member->accepted;
        member->accepted = NULL;
    }
    ash_view_put(member->accepted);
    member->accepted = ash_view_get(view);
    member->accepted_from = from;
}

/* Does this process follow the one with this id, and is its owner ready? */
static bool follows(const struct ash_member *member, uint64_t id)
{
    return member->state == ASH_MEMBER_OVER && member->is_ready && member->candidate != member->rank &&
           member->view->members[member->candidate].id == id;
}

static void on_propose(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_ACCEPT);
    bool is_follower = follows(member, msg->from), is_joiner = member->state == ASH_MEMBER_JOINING;

    if (is_follower && member->terms.leaves && msg->view != NULL) {
        agree(member, msg);
        return;
    }
    if (!is_acceptable(member, msg->view) || (!is_follower && !is_joiner)) return;
    if (is_joiner && member->accepted != NULL && member->accepted->epoch > msg->view->epoch) return;
    keep_accepted(member, msg->view, msg->from);
    member->candidate_ns = member->now_ns;
    answer.proposal = msg->view->proposal;
    ash_member_send(member, msg->from, &answer);
}

static void on_start(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_STARTED);
    struct ash_view *view = msg->view;
    bool runs_it = member->view != NULL && member->view->proposal == msg->proposal;

    if (!runs_it && member->state != ASH_MEMBER_OVER && member->state != ASH_MEMBER_JOINING) return;
    if (!runs_it) {
        if (member->accepted != NULL && member->accepted->proposal == msg->proposal) view = member->accepted;
        if (!is_acceptable(member, view) || view->proposal != msg->proposal) return;
        if (member->state == ASH_MEMBER_OVER && (!member->is_ready || member->terms.leaves)) return;
        ash_member_start(member, view);
    }
    answer.epoch = member->view->epoch;
    answer.proposal = msg->proposal;
    ash_member_send(member, msg->from, &answer);
}

void ash_member_follow_receive(struct ash_member *member, const struct ash_member_msg *msg)
{
    if (msg->kind == ASH_MEMBER_ACK && member->state == ASH_MEMBER_OVER) on_ack(member, msg);
    if (msg->kind == ASH_MEMBER_PROPOSE) on_propose(member, msg);
    if (msg->kind == ASH_MEMBER_START) on_start(member, msg);
    if (msg->kind == ASH_MEMBER_END && member->state == ASH_MEMBER_OVER &&
        member->view->members[member->candidate].id == msg->from)
        ash_member_end(member, msg->code < 0 ? msg->code : -EPERM, msg->why);
}
