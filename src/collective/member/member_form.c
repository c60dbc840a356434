/* A meeting, as its coordinator: gather, propose, decide, start. */
#include "collective/member/member_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define SUSPECT_RETRIES 5 /* that one who was silent already has to show that it lives */

/* ---- seats ------------------------------------------------------------------------------------------------------- */

static bool is_open(const struct ash_member_seat *seat)
{
    return !(seat->has_come && (seat->is_ready || seat->leaves)) && !seat->is_dead && !seat->is_given_up;
}

static bool comes_along(const struct ash_member_seat *seat)
{
    return seat->has_come && seat->is_ready && !seat->leaves && !seat->is_dead && !seat->is_given_up;
}

/* A proposal is void: gather again. */
static void withdraw(struct ash_member_meeting *meeting)
{
    ash_view_put(meeting->proposed);
    meeting->proposed = NULL;
    free(meeting->answered);
    free(meeting->answer_heard_ns);
    meeting->answered = NULL;
    meeting->answer_heard_ns = NULL;
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

/* ---- what is proposed -------------------------------------------------------------------------------------------- */

/* Of a view's ranks, are more than half here, or half with the lowest one? */
static bool has_majority(const struct ash_member *member, const struct ash_view *view)
{
    const struct ash_member_seat *seats = member->meeting->seats;
    size_t here = 0;
    bool has_lowest = false;

    for (size_t r = 0; r < view->size; r++) {
        size_t seat = view == member->view ? r : ash_view_find(member->view, view->members[r].id);

        if (seat == SIZE_MAX || !seats[seat].has_come || seats[seat].is_dead || seats[seat].is_given_up) continue;
        here++;
        if (r == 0) has_lowest = true;
    }
    return 2 * here > view->size || (2 * here == view->size && has_lowest);
}

static bool all_others_are_dead(const struct ash_member *member)
{
    const struct ash_member_meeting *meeting = member->meeting;

    for (size_t r = 0; r < meeting->size; r++)
        if (meeting->seats[r].is_given_up && !meeting->seats[r].is_dead) return false;
    return true;
}

/* May this side go on now? false: not yet, or not at all. */
static bool has_right(const struct ash_member *member)
{
    bool has_most = has_majority(member, member->view);

    if (member->opts.ops->decide != NULL)
        return has_most || all_others_are_dead(member) ||
               member->now_ns - member->meeting->complete_ns >= member->opts.yield_ns;
    if (member->opts.trusts_deaths && all_others_are_dead(member)) return true;
    return has_most && member->base != NULL && (member->base == member->view || has_majority(member, member->base));
}

/* Survivors keep their ranks below the new size; the others fill the places that are empty, then joiners do. */
static struct ash_view *make_view(const struct ash_member *member, size_t size)
{
    const struct ash_member_meeting *meeting = member->meeting;
    size_t card_bytes = member->opts.card_bytes, hole = 0;
    struct ash_view *view = ash_view_new(size, card_bytes);

    if (view == NULL) return NULL;
    for (size_t r = 0; r < meeting->size && r < size; r++)
        if (comes_along(&meeting->seats[r])) view->members[r].id = member->view->members[r].id;
    for (size_t r = 0; r < meeting->size; r++) {
        size_t place = r;

        if (!comes_along(&meeting->seats[r])) continue;
        if (r >= size) {
            while (view->members[hole].id != 0)
                hole++;
            place = hole;
        }
        view->members[place] = (struct ash_view_member){.id = member->view->members[r].id, .rank_before = (uint32_t)r};
        if (card_bytes > 0)
            memcpy(ash_view_card(view, place), r == member->rank ? member->card : meeting->seats[r].card, card_bytes);
    }
    for (size_t i = 0; i < member->joiner_count; i++) {
        while (hole < size && view->members[hole].id != 0)
            hole++;
        if (hole == size) break;
        view->members[hole] = (struct ash_view_member){.id = member->joiners[i].id, .rank_before = ASH_VIEW_NEW};
        if (card_bytes > 0) memcpy(ash_view_card(view, hole), member->joiners[i].card, card_bytes);
    }
    return view;
}

static void send_propose(struct ash_member *member, size_t rank)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_PROPOSE);

    msg.view = member->meeting->proposed;
    ash_member_send(member, msg.view->members[rank].id, &msg);
}

/* Does this rank leave, and is its vote needed? */
static bool is_vote_missing(const struct ash_member *member, size_t rank)
{
    const struct ash_member_seat *seat = &member->meeting->seats[rank];

    return member->opts.ops->decide == NULL && seat->leaves && !seat->has_agreed && !seat->is_dead &&
           !seat->is_given_up && rank != member->rank;
}

/* Without a register those who leave have to agree. Returns how many have not. */
static size_t call_leavers(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_PROPOSE);
    size_t missing = 0;

    msg.view = member->meeting->proposed;
    for (size_t r = 0; r < member->meeting->size; r++) {
        if (!is_vote_missing(member, r)) continue;
        ash_member_send(member, member->view->members[r].id, &msg);
        missing++;
    }
    return missing;
}

static bool have_leavers_agreed(const struct ash_member *member)
{
    for (size_t r = 0; r < member->meeting->size; r++)
        if (is_vote_missing(member, r)) return false;
    return true;
}

static void check_answers(struct ash_member *member);

static void propose(struct ash_member *member, size_t size)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_view *view = make_view(member, size);
    uint32_t newest = member->opts.ops->decide != NULL || meeting->epoch_max < member->view->epoch ? member->view->epoch
                                                                                                   : meeting->epoch_max;

    if (view == NULL) return; /* tried again with the next tick */
    view->epoch = newest + 1;
    view->proposal = ash_hash_mix(member->opts.id + 0x9e3779b97f4a7c15u * ++member->attempts) | 1;
    meeting->answered = calloc(size, sizeof(*meeting->answered));
    meeting->answer_heard_ns = calloc(size, sizeof(*meeting->answer_heard_ns));
    if (meeting->answered == NULL || meeting->answer_heard_ns == NULL || ash_view_seal(view) < 0) {
        ash_view_put(view);
        withdraw(meeting);
        return;
    }
    meeting->proposed = view;
    meeting->answered_count = 0;
    for (size_t r = 0; r < meeting->size; r++)
        meeting->seats[r].has_agreed = false;
    meeting->proposed_ns = member->now_ns;
    call_leavers(member);
    for (size_t r = 0; r < size; r++) {
        meeting->answer_heard_ns[r] = member->now_ns;
        meeting->answered[r] = view->members[r].id == member->opts.id;
        meeting->answered_count += meeting->answered[r];
        send_propose(member, r);
    }
    check_answers(member);
}

/* End the job, or this side of it, for all followers. */
static void give_up(struct ash_member *member, int code, const char *why)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_END);

    msg.code = code;
    msg.why = why;
    for (size_t r = 0; r < member->meeting->size; r++)
        if (member->meeting->seats[r].has_come) ash_member_send(member, member->view->members[r].id, &msg);
    ash_member_end(member, code, why);
}

/* All that leave may go. */
static void release_leavers(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_LEAVE);

    for (size_t r = 0; r < member->meeting->size; r++)
        if (member->meeting->seats[r].leaves) ash_member_send(member, member->view->members[r].id, &msg);
}

/* Once nobody is left to wait for: propose, wait for joiners or for the others, or give up. */
static void advance(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    const struct ash_member_terms *terms = &member->terms;
    size_t size = member->joiner_count, survivors = 0;
    uint64_t waited_ns;

    if (!member->is_ready || meeting->proposed != NULL) return;
    if (meeting->unresolved > 0) {
        meeting->complete_ns = 0;
        return;
    }
    if (meeting->complete_ns == 0) meeting->complete_ns = member->now_ns;
    waited_ns = member->now_ns - meeting->complete_ns;
    for (size_t r = 0; r < meeting->size; r++)
        survivors += comes_along(&meeting->seats[r]);
    if (survivors == 0 && size > 0) { /* newcomers have nothing to go on from: the coordinator stays with them */
        member->terms.leaves = meeting->seats[member->rank].leaves = false;
        survivors = 1;
    }
    size += survivors;
    if (!has_right(member)) {
        if (waited_ns >= member->opts.yield_ns && member->opts.ops->decide == NULL)
            give_up(member, -EHOSTUNREACH,
                    "most ranks of the last epoch cannot be reached and may continue: those on this side end");
    } else if (size == 0) {
        release_leavers(member);
        ash_member_end(member, 0, NULL);
    } else if (waited_ns >= terms->wait_ns && size < terms->min_size) {
        give_up(member, -ENODATA, "too few ranks are left");
    } else if (size >= terms->want_size || waited_ns >= terms->wait_ns) {
        propose(member, size);
    }
}

/* ---- decision and start ------------------------------------------------------------------------------------------ */

/* Another view is this epoch: those in it start it, the others are stale. */
static void concede(struct ash_member *member, uint64_t winner)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_STALE);
    struct ash_view *won = member->accepted != NULL && member->accepted->proposal == winner ? member->accepted
                           : member->accepted_before != NULL && member->accepted_before->proposal == winner
                               ? member->accepted_before
                               : NULL;

    msg.epoch = member->meeting->proposed->epoch;
    msg.proposal = winner;
    for (size_t r = 0; r < member->meeting->size; r++)
        if (member->meeting->seats[r].has_come &&
            (won == NULL || ash_view_find(won, member->view->members[r].id) == SIZE_MAX))
            ash_member_send(member, member->view->members[r].id, &msg);
    if (won == NULL) {
        ash_member_end(member, -ESTALE, NULL);
        return;
    }
    msg.kind = ASH_MEMBER_START;
    msg.view = won;
    for (size_t r = 0; r < won->size; r++)
        ash_member_send(member, won->members[r].id, &msg);
    ash_member_start(member, won);
}

static void send_start(struct ash_member *member, size_t rank)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_START);
    const struct ash_view *view = member->starting->proposed;

    msg.proposal = view->proposal;
    ash_member_send(member, view->members[rank].id, &msg);
}

static void start_all(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_view *view = meeting->proposed;
    bool is_in = ash_view_find(view, member->opts.id) != SIZE_MAX;

    release_leavers(member);
    member->meeting = NULL;
    member->starting = meeting;
    memset(meeting->answered, 0, view->size * sizeof(*meeting->answered));
    meeting->answered_count = 0;
    meeting->retry_at_ns = member->now_ns + ash_member_retry_ns(member);
    for (size_t r = 0; r < view->size; r++) {
        if (view->members[r].id == member->opts.id) {
            meeting->answered[r] = true;
            meeting->answered_count = 1;
        }
        send_start(member, r);
    }
    if (!is_in) {
        member->state = ASH_MEMBER_LEAVING;
        meeting->since_ns = member->now_ns;
        return;
    }
    ash_member_start(member, view);
    if (view->size == 1) {
        ash_member_confirm(member);
        ash_member_meeting_close(member, meeting);
    }
}

static void check_answers(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    uint64_t winner = 0;
    int rc = 1;

    if (meeting->answered_count < meeting->proposed->size || !have_leavers_agreed(member)) return;
    if (member->opts.ops->decide != NULL)
        rc = member->opts.ops->decide(member->opts.ctx, meeting->proposed->epoch, meeting->proposed->proposal, &winner);
    if (rc == 1)
        start_all(member);
    else if (rc == 0)
        concede(member, winner);
    else
        meeting->retry_at_ns = member->now_ns + ash_member_retry_ns(member); /* the register does not answer */
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void seat_changed(struct ash_member_meeting *meeting, const struct ash_member_seat *seat, bool was_open)
{
    meeting->unresolved += is_open(seat);
    meeting->unresolved -= was_open;
}

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

static void on_hello(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_member_msg answer = ash_member_message(member, ASH_MEMBER_ACK);
    size_t rank = ash_view_find(member->view, msg->from);
    struct ash_member_seat *seat;
    bool was_open, came_along;

    answer.subject = member->view->members[member->candidate].id;
    answer.is_ready = true;
    ash_member_send(member, msg->from, &answer);
    learn_base(member, msg);
    if (meeting == NULL || meeting->seats[rank].is_dead) return;
    seat = &meeting->seats[rank];
    was_open = is_open(seat);
    came_along = comes_along(seat);
    if (msg->is_ready && member->opts.card_bytes > 0) {
        if (msg->card == NULL) return;
        if (seat->card == NULL) seat->card = malloc(member->opts.card_bytes);
        if (seat->card == NULL) return; /* it comes again */
        memcpy(seat->card, msg->card, member->opts.card_bytes);
    }
    seat->has_come = true;
    seat->is_given_up = false;
    seat->heard_ns = member->now_ns;
    seat->is_ready = msg->is_ready;
    seat->leaves = msg->leaves;
    seat_changed(meeting, seat, was_open);
    if (msg->accepted_epoch > meeting->epoch_max) meeting->epoch_max = msg->accepted_epoch;
    if (meeting->proposed != NULL && comes_along(seat) && !came_along) withdraw(meeting); /* it came late */
    for (size_t i = 0; i < msg->dead_count && i < ASH_MEMBER_DEAD_MAX && member->meeting != NULL; i++)
        if (!ash_member_ids_has(&member->dead, msg->dead[i]))
            ash_member_peer_died(member, msg->dead[i], member->now_ns);
    if (member->meeting != NULL) advance(member);
}

static void on_accept(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_meeting *meeting = member->meeting;
    size_t rank;

    if (meeting == NULL || meeting->proposed == NULL || meeting->proposed->proposal != msg->proposal) return;
    rank = ash_view_find(meeting->proposed, msg->from);
    if (rank == SIZE_MAX) {
        rank = ash_view_find(member->view, msg->from);
        if (rank == SIZE_MAX || !meeting->seats[rank].leaves) return;
        meeting->seats[rank].has_agreed = true;
    } else if (!meeting->answered[rank]) {
        meeting->answered[rank] = true;
        meeting->answered_count++;
    }
    check_answers(member);
}

/* One that leaves is no neighbour of anybody: it tells the first rank, whose heartbeats tell the others. */
static void tell_confirmed(struct ash_member *member)
{
    const struct ash_view *view = member->starting->proposed;
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_STARTED);

    msg.proposal = view->proposal;
    msg.is_confirmed = true;
    ash_member_send(member, view->members[0].id, &msg);
}

static void on_started(struct ash_member *member, const struct ash_member_msg *msg)
{
    struct ash_member_meeting *starting = member->starting;
    size_t rank;

    if (msg->is_confirmed && member->state == ASH_MEMBER_RUNNING && member->view->proposal == msg->proposal)
        ash_member_confirm(member);
    if (starting == NULL || starting->proposed->proposal != msg->proposal) return;
    rank = ash_view_find(starting->proposed, msg->from);
    if (rank == SIZE_MAX || starting->answered[rank]) return;
    starting->answered[rank] = true;
    if (++starting->answered_count < starting->proposed->size) return;
    if (member->state == ASH_MEMBER_LEAVING) {
        tell_confirmed(member);
        ash_member_end(member, 0, NULL);
        return;
    }
    ash_member_confirm(member);
    ash_member_meeting_close(member, starting);
}

void ash_member_form_receive(struct ash_member *member, const struct ash_member_msg *msg)
{
    if (msg->kind == ASH_MEMBER_HELLO) on_hello(member, msg);
    if (msg->kind == ASH_MEMBER_ACCEPT) on_accept(member, msg);
    if (msg->kind == ASH_MEMBER_STARTED) on_started(member, msg);
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
    if (is_dead && meeting->proposed != NULL && ash_view_find(meeting->proposed, id) != SIZE_MAX) withdraw(meeting);
    advance(member);
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
    advance(member);
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

/* Propose again to those who have not accepted; without those who have been silent since. */
static void call_unanswered(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    bool is_void = false;

    if (call_leavers(member) > 0 && member->now_ns - meeting->proposed_ns > member->opts.silent_ns) {
        is_void = true;
        for (size_t r = 0; r < meeting->size; r++)
            if (is_vote_missing(member, r)) meeting->seats[r].is_given_up = true;
    }
    for (size_t r = 0; r < meeting->proposed->size; r++) {
        uint64_t id = meeting->proposed->members[r].id;
        size_t rank = ash_view_find(member->view, id);

        if (meeting->answered[r]) continue;
        if (member->now_ns - meeting->answer_heard_ns[r] <= member->opts.silent_ns) {
            send_propose(member, r);
            continue;
        }
        is_void = true;
        if (rank != SIZE_MAX)
            meeting->seats[rank].is_given_up = true;
        else
            ash_member_join_expire(member, id);
    }
    if (is_void) withdraw(meeting);
}

static void start_unanswered(struct ash_member *member)
{
    struct ash_member_meeting *starting = member->starting;

    if (member->now_ns < starting->retry_at_ns) return;
    if (member->state == ASH_MEMBER_LEAVING && member->now_ns - starting->since_ns > member->opts.silent_ns) {
        ash_member_end(member, 0, NULL); /* the others help each other */
        return;
    }
    starting->retry_at_ns = member->now_ns + ash_member_retry_ns(member);
    for (size_t r = 0; r < starting->proposed->size; r++)
        if (!starting->answered[r]) send_start(member, r);
}

void ash_member_form_tick(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;

    if (member->starting != NULL) start_unanswered(member);
    if (member->state == ASH_MEMBER_ENDED) return;
    if (meeting == NULL || member->now_ns < meeting->retry_at_ns) return;
    meeting->retry_at_ns = member->now_ns + ash_member_retry_ns(member);
    ash_member_join_expire(member, 0);
    if (!member->is_ready) return;
    if (meeting->proposed == NULL) {
        call_missing(member);
        advance(member);
    } else if (meeting->answered_count == meeting->proposed->size && have_leavers_agreed(member)) {
        check_answers(member); /* the register did not answer */
    } else {
        call_unanswered(member);
        if (meeting->proposed == NULL) advance(member);
    }
}
