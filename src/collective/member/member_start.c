/* A view that all its members have accepted: the decision that it is the next epoch, and its start on every rank. */
#include "collective/member/member_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

/* ---- decision ---------------------------------------------------------------------------------------------------- */

struct ash_view *ash_member_find_accepted(const struct ash_member *member, uint64_t proposal)
{
    if (member->accepted_before != NULL && member->accepted_before->proposal == proposal)
        return member->accepted_before;
    return member->accepted != NULL && member->accepted->proposal == proposal ? member->accepted : NULL;
}

/* Another view is this epoch: those in it start it, the others are stale. */
static void concede(struct ash_member *member, uint64_t winner)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_STALE);
    struct ash_view *won = ash_member_find_accepted(member, winner);

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

    ash_assert(rank < member->starting->proposed->size);
    msg.proposal = view->proposal;
    ash_member_send(member, view->members[rank].id, &msg);
}

static void start_all(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    struct ash_view *view = meeting->proposed;
    bool is_in = ash_view_find(view, member->opts.id) != SIZE_MAX;

    ash_assert(meeting->answered_count == view->size); /* all have accepted */
    ash_member_release_leavers(member);
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

void ash_member_check_answers(struct ash_member *member)
{
    struct ash_member_meeting *meeting = member->meeting;
    uint64_t winner = 0;
    int rc = 1;

    if (meeting->answered_count < meeting->proposed->size || !ash_member_have_leavers_agreed(member)) return;
    if (member->opts.ops->decide != NULL)
        rc = member->opts.ops->decide(member->opts.ctx, meeting->proposed->epoch, meeting->proposed->proposal, &winner);
    if (rc == 1)
        start_all(member);
    else if (rc == 0)
        concede(member, winner);
    else
        meeting->retry_at_ns = member->now_ns + ash_member_retry_ns(member); /* the register does not answer */
}

/* ---- until all have started -------------------------------------------------------------------------------------- */

/* One that leaves has no neighbours: it tells the first rank, whose heartbeats tell the others. */
static void tell_confirmed(struct ash_member *member)
{
    const struct ash_view *view = member->starting->proposed;
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_STARTED);

    msg.proposal = view->proposal;
    msg.is_confirmed = true;
    ash_member_send(member, view->members[0].id, &msg);
}

void ash_member_on_started(struct ash_member *member, const struct ash_member_msg *msg)
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

void ash_member_start_unanswered(struct ash_member *member)
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
