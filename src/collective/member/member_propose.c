/* A meeting, as its coordinator: may this side go on, what view is proposed, and who has accepted it. */
#include "collective/member/member_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

/* ---- the right to go on ------------------------------------------------------------------------------------------ */

/* Of a view's ranks, are more than half here, or half with the lowest one? */
static bool has_majority(const struct ash_member *member, const struct ash_view *view)
{
    const struct ash_member_seat *seats = member->meeting->seats;
    size_t here = 0;
    bool has_lowest = false;

    ash_assert(view->size > 0);
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

/* ---- the new view ------------------------------------------------------------------------------------------------ */

/* Survivors keep their ranks below the new size; the others fill the places that are empty, lowest first. */
static void place_survivors(const struct ash_member *member, struct ash_view *view)
{
    const struct ash_member_meeting *meeting = member->meeting;
    size_t hole = 0;

    for (size_t r = 0; r < meeting->size && r < view->size; r++)
        if (ash_member_comes_along(&meeting->seats[r])) view->members[r].id = member->view->members[r].id;
    for (size_t r = 0; r < meeting->size; r++) {
        const char *card = r == member->rank ? member->card : meeting->seats[r].card;
        size_t place = r;

        if (!ash_member_comes_along(&meeting->seats[r])) continue;
        if (r >= view->size) {
            while (view->members[hole].id != 0)
                hole++;
            place = hole;
        }
        ash_assert(place < view->size &&
                   (view->members[place].id == 0 || place == r)); /* no survivor takes another's rank */
        view->members[place] = (struct ash_view_member){.id = member->view->members[r].id, .rank_before = (uint32_t)r};
        if (view->card_bytes > 0) memcpy(ash_view_card(view, place), card, view->card_bytes);
    }
}

/* Joiners take the places that are left. */
static void place_joiners(const struct ash_member *member, struct ash_view *view)
{
    size_t hole = 0;

    for (size_t i = 0; i < member->joiner_count; i++) {
        while (hole < view->size && view->members[hole].id != 0)
            hole++;
        if (hole == view->size) return;
        view->members[hole] = (struct ash_view_member){.id = member->joiners[i].id, .rank_before = ASH_VIEW_NEW};
        if (view->card_bytes > 0) memcpy(ash_view_card(view, hole), member->joiners[i].card, view->card_bytes);
    }
}

static struct ash_view *make_view(const struct ash_member *member, size_t size)
{
    struct ash_view *view = ash_view_new(size, member->opts.card_bytes);

    if (view == NULL) return NULL;
    place_survivors(member, view);
    place_joiners(member, view);
    return view;
}

/* ---- those who leave --------------------------------------------------------------------------------------------- */

/* Does this rank leave, and is its vote needed? */
static bool is_vote_missing(const struct ash_member *member, size_t rank)
{
    const struct ash_member_seat *seat = &member->meeting->seats[rank];

    ash_assert(rank < member->meeting->size);
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

bool ash_member_have_leavers_agreed(const struct ash_member *member)
{
    for (size_t r = 0; r < member->meeting->size; r++)
        if (is_vote_missing(member, r)) return false;
    return true;
}

void ash_member_release_leavers(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_LEAVE);

    for (size_t r = 0; r < member->meeting->size; r++)
        if (member->meeting->seats[r].leaves) ash_member_send(member, member->view->members[r].id, &msg);
}

/* ---- proposals --------------------------------------------------------------------------------------------------- */

static void send_propose(struct ash_member *member, size_t rank)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_PROPOSE);

    ash_assert(rank < member->meeting->proposed->size);
    msg.view = member->meeting->proposed;
    ash_member_send(member, msg.view->members[rank].id, &msg);
}

void ash_member_withdraw(struct ash_member_meeting *meeting)
{
    ash_view_put(meeting->proposed);
    meeting->proposed = NULL;
    free(meeting->answered);
    free(meeting->answer_heard_ns);
    meeting->answered = NULL;
    meeting->answer_heard_ns = NULL;
}

static void propose(struct ash_member *member, size_t size)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_view *view = make_view(member, size);
    uint32_t newest = member->opts.ops->decide != NULL || meeting->epoch_max < member->view->epoch ? member->view->epoch
                                                                                                   : meeting->epoch_max;

    ash_assert(size > 0);
    if (view == NULL) return; /* tried again with the next tick */
    view->epoch = newest + 1;
    view->proposal = ash_hash_mix(member->opts.id + 0x9e3779b97f4a7c15u * ++member->attempts) | 1;
    meeting->answered = calloc(size, sizeof(*meeting->answered));
    meeting->answer_heard_ns = calloc(size, sizeof(*meeting->answer_heard_ns));
    if (meeting->answered == NULL || meeting->answer_heard_ns == NULL || ash_view_seal(view) < 0) {
        ash_view_put(view);
        ash_member_withdraw(meeting);
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
    ash_member_check_answers(member);
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

/* How many ranks the next view would have: survivors and joiners. */
static size_t next_size(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    size_t survivors = 0;

    for (size_t r = 0; r < meeting->size; r++)
        survivors += ash_member_comes_along(&meeting->seats[r]);
    if (survivors == 0 && member->joiner_count > 0) { /* newcomers have nothing to go on from: it stays with them */
        member->terms.leaves = meeting->seats[member->rank].leaves = false;
        survivors = 1;
    }
    return survivors + member->joiner_count;
}

/* All seats are resolved: propose, wait for joiners or for the others, or give up. */
static void conclude_gather(struct ash_member *member)
{
    const struct ash_member_terms *terms = &member->terms;
    size_t size = next_size(member);
    uint64_t waited_ns = member->now_ns - member->meeting->complete_ns;

    if (!has_right(member)) {
        if (waited_ns >= member->opts.yield_ns && member->opts.ops->decide == NULL)
            give_up(member, -EHOSTUNREACH,
                    "most ranks of the last epoch cannot be reached and may continue: those on this side end");
    } else if (size == 0) {
        ash_member_release_leavers(member);
        ash_member_end(member, 0, NULL);
    } else if (waited_ns >= terms->wait_ns && size < terms->min_size) {
        give_up(member, -ENODATA, "too few ranks are left");
    } else if (size >= terms->want_size || waited_ns >= terms->wait_ns) {
        propose(member, size);
    }
}

void ash_member_advance(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;

    if (!member->is_ready || meeting->proposed != NULL) return;
    if (meeting->unresolved > 0) {
        meeting->complete_ns = 0;
        return;
    }
    if (meeting->complete_ns == 0) meeting->complete_ns = member->now_ns;
    conclude_gather(member);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void ash_member_on_accept(struct ash_member *member, const struct ash_member_msg *msg)
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
    ash_member_check_answers(member);
}

void ash_member_call_unanswered(struct ash_member *member)
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
    if (is_void) ash_member_withdraw(meeting);
}
