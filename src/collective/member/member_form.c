/* A meeting, as its coordinator: who has come, who is waited for and for how long. */
#include "collective/member/member_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define SUSPECT_RETRIES 5 /* that one who was silent already has to show that it lives */

/* ---- seats ------------------------------------------------------------------------------------------------------- */

static bool is_open(const struct ash_member_seat *seat)
{
    return !(seat->has_come && (seat->is_ready || seat->leaves)) && !seat->is_dead && !seat->is_given_up;
}

bool ash_member_comes_along(const struct ash_member_seat *seat)
{
    return seat->has_come && seat->is_ready && !seat->leaves && !seat->is_dead && !seat->is_given_up;
}

static void seat_changed(struct ash_member_meeting *meeting, const struct ash_member_seat *seat, bool was_open)
{
    meeting->unresolved += is_open(seat);
    meeting->unresolved -= was_open;
}

void ash_member_form_begin(struct ash_member *member)
{
    struct ash_member_meeting *meeting = calloc(1, sizeof(*meeting));
    struct ash_member_event news = {.kind = ASH_MEMBER_EVENT_NEWS, .view = member->view, .rank = member->rank};
    size_t size = member->view->size;
    uint64_t short_ns = SUSPECT_RETRIES * ash_member_retry_ns(member), silent_ns = member->opts.silent_ns;

    if (meeting != NULL) meeting->seats = calloc(size, sizeof(*meeting->seats));
    if (meeting == NULL || meeting->seats == NULL) {
        free(meeting);
        ash_member_end(member, -ENOMEM, "out of memory to form a group");
        return;
    }
    ash_assert(member->meeting == NULL); /* one meeting at a time */
    member->meeting = meeting;
    meeting->size = meeting->unresolved = size;
    meeting->since_ns = member->now_ns;
    meeting->retry_at_ns = member->now_ns + ash_member_retry_ns(member);
    for (size_t r = 0; r < size; r++) {
        uint64_t id = member->view->members[r].id;
        struct ash_member_seat *seat = &meeting->seats[r];

        seat->heard_ns = member->now_ns;
        if (member->suspects.count > 0 && silent_ns > short_ns && ash_member_ids_has(&member->suspects, id))
            seat->heard_ns = member->now_ns > silent_ns ? member->now_ns - silent_ns + short_ns : 0;
        if (member->dead.count > 0) seat->is_dead = ash_member_ids_has(&member->dead, id);
        if (r == member->rank) {
            seat->has_come = true;
            seat->is_ready = member->is_ready;
            seat->leaves = member->is_ready && member->terms.leaves;
        }
        if (!is_open(seat)) meeting->unresolved--;
    }
    member->opts.ops->event(member->opts.ctx, &news);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* What a follower knows of the last epoch that all had started: a newcomer knows nothing of it. */
static void learn_base(struct ash_member *member, const struct ash_member_msg *msg)
{
    if (msg->is_confirmed) {
        ash_member_confirm(member);
    } else if (msg->view != NULL && msg->view->epoch < member->view->epoch &&
               (member->base == NULL || member->base->epoch < msg->view->epoch)) {
        ash_view_put(member->base);
        member->base = ash_view_get(msg->view);
    }
}

/* Keep what a follower brings. Returns false if it has to come again. */
static bool take_card(struct ash_member *member, struct ash_member_seat *seat, const struct ash_member_msg *msg)
{
    if (!msg->is_ready || member->opts.card_bytes == 0) return true;
    if (msg->card == NULL) return false;
    if (seat->card == NULL) seat->card = malloc(member->opts.card_bytes);
    if (seat->card == NULL) return false;
    memcpy(seat->card, msg->card, member->opts.card_bytes);
    return true;
}

static void take_seat(struct ash_member *member, struct ash_member_seat *seat, const struct ash_member_msg *msg)
{
    struct ash_member_meeting *meeting = member->meeting;
    bool was_open = is_open(seat), came_along = ash_member_comes_along(seat);

    seat->has_come = true;
    seat->is_given_up = false;
    seat->heard_ns = member->now_ns;
    seat->is_ready = msg->is_ready;
    seat->leaves = msg->leaves;
    seat_changed(meeting, seat, was_open);
    if (msg->accepted_epoch > meeting->epoch_max) meeting->epoch_max = msg->accepted_epoch;
    if (meeting->proposed != NULL && ash_member_comes_along(seat) && !came_along)
        ash_member_withdraw(meeting); /* it came late */
}

static void on_hello(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_ACK);
    struct ash_member_seat *seat;

    answer.subject = member->view->members[member->candidate].id;
    answer.is_ready = true;
    ash_member_send(member, msg->from, &answer);
    learn_base(member, msg);
    if (member->meeting == NULL) return;
    seat = &member->meeting->seats[ash_view_find(member->view, msg->from)];
    if (seat->is_dead || !take_card(member, seat, msg)) return;
    take_seat(member, seat, msg);
    for (size_t i = 0; i < msg->dead_count && i < ASH_MEMBER_DEAD_MAX && member->meeting != NULL; i++)
        if (!ash_member_ids_has(&member->dead, msg->dead[i]))
            ash_member_peer_died(member, msg->dead[i], member->now_ns);
    if (member->meeting != NULL) ash_member_advance(member);
}

void ash_member_form_receive(struct ash_member *member, const struct ash_member_msg *msg)
{
    if (msg->kind == ASH_MEMBER_HELLO) on_hello(member, msg);
    if (msg->kind == ASH_MEMBER_ACCEPT) ash_member_on_accept(member, msg);
    if (msg->kind == ASH_MEMBER_STARTED) ash_member_on_started(member, msg);
}

void ash_member_form_lose(struct ash_member *member, uint64_t id, bool is_dead)
{
    struct ash_member_meeting *meeting = member->meeting;
    size_t rank;

    if (meeting == NULL) return;
    rank = ash_view_find(member->view, id);
    if (rank != SIZE_MAX && rank != member->rank) {
        struct ash_member_seat *seat = &meeting->seats[rank];
        bool was_open = is_open(seat);

        seat->is_dead = seat->is_dead || is_dead;
        if (!is_dead && !seat->has_come) seat->is_given_up = true;
        seat_changed(meeting, seat, was_open);
    }
    if (is_dead && meeting->proposed != NULL && ash_view_find(meeting->proposed, id) != SIZE_MAX)
        ash_member_withdraw(meeting);
    ash_member_advance(member);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

void ash_member_form_ready(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_member_seat *seat;
    bool was_open;

    if (meeting == NULL) return;
    seat = &meeting->seats[member->rank];
    was_open = is_open(seat);
    seat->is_ready = true;
    seat->leaves = member->terms.leaves;
    seat_changed(meeting, seat, was_open);
    ash_member_advance(member);
}

/* Call those who have not come; do not wait for the silent ones, nor without end for owners that do not come. */
static void call_missing(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_member_msg call = ash_member_message(member, ASH_MEMBER_ACK);

    call.subject = member->opts.id;
    ash_member_tell_suspicion(member, &call);
    for (size_t r = 0; r < meeting->size && meeting->unresolved > 0; r++) {
        struct ash_member_seat *seat = &meeting->seats[r];

        if (!is_open(seat) || r == member->rank) continue;
        if (member->now_ns - seat->heard_ns > member->opts.silent_ns ||
            member->now_ns - meeting->since_ns > member->opts.ready_ns) {
            seat->is_given_up = true;
            meeting->unresolved--;
        } else if (!seat->has_come) {
            ash_member_send(member, member->view->members[r].id, &call);
        }
    }
}

void ash_member_form_tick(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;

    if (member->starting != NULL) ash_member_start_unanswered(member);
    if (member->state == ASH_MEMBER_ENDED) return;
    if (meeting == NULL || member->now_ns < meeting->retry_at_ns) return;
    meeting->retry_at_ns = member->now_ns + ash_member_retry_ns(member);
    ash_member_join_expire(member, 0);
    if (!member->is_ready) return;
    if (meeting->proposed == NULL) {
        call_missing(member);
        ash_member_advance(member);
    } else if (meeting->answered_count == meeting->proposed->size && ash_member_have_leavers_agreed(member)) {
        ash_member_check_answers(member); /* the register did not answer */
    } else {
        ash_member_call_unanswered(member);
        if (meeting->proposed == NULL) ash_member_advance(member);
    }
}
