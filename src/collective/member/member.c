/* The membership machine: its life, what its owner asks of it, peers and time. */
#include "collective/member/member_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"

#define PAUSE_HEARTBEATS 5 /* a longer pause of this process is not the others' silence */
#define RETRY_RANK_NS 8000 /* four times what a coordinator needs for one message: repeats must not fill its queue */

/* ---- small things ------------------------------------------------------------------------------------------------ */

struct ash_member_msg ash_member_message(const struct ash_member *member, enum ash_member_kind kind)
{
    return (struct ash_member_msg){.kind = kind,
                                   .from = member->opts.id,
                                   .epoch = member->view != NULL ? member->view->epoch : 0,
                                   .proposal = member->view != NULL ? member->view->proposal : 0};
}

void ash_member_send(struct ash_member *member, uint64_t to, const struct ash_member_msg *msg)
{
    if (to != member->opts.id) member->opts.ops->send(member->opts.ctx, to, msg);
}

bool ash_member_ids_has(const struct ash_member_ids *ids, uint64_t id)
{
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] == id) return true;
    return false;
}

void ash_member_ids_remove(struct ash_member_ids *ids, uint64_t id)
{
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] == id) ids->ids[i--] = ids->ids[--ids->count];
}

void ash_member_ids_add(struct ash_member_ids *ids, uint64_t id)
{
    if (ash_member_ids_has(ids, id)) return;
    if (ash_array_reserve(&ids->ids, &ids->room, ids->count + 1, sizeof(*ids->ids)) < 0) return;
    ids->ids[ids->count++] = id;
}

void ash_member_suspect(struct ash_member *member, uint64_t id)
{
    ash_member_ids_add(&member->suspects, id);
    ash_member_ids_add(&member->deaf, id);
}

uint64_t ash_member_retry_ns(const struct ash_member *member)
{
    size_t size = member->view != NULL ? member->view->size : 1;

    return ash_max(member->opts.retry_ns, size * RETRY_RANK_NS);
}

void ash_member_meeting_close(struct ash_member *member, struct ash_member_meeting *meeting)
{
    if (meeting == NULL) return;
    for (size_t r = 0; meeting->seats != NULL && r < meeting->size; r++)
        free(meeting->seats[r].card);
    free(meeting->seats);
    free(meeting->answered);
    free(meeting->answer_heard_ns);
    ash_view_put(meeting->proposed);
    if (member->meeting == meeting) member->meeting = NULL;
    if (member->starting == meeting) member->starting = NULL;
    free(meeting);
}

static void drop_accepted(struct ash_member *member)
{
    ash_view_put(member->accepted);
    ash_view_put(member->accepted_before);
    member->accepted = member->accepted_before = NULL;
}

void ash_member_end(struct ash_member *member, int code, const char *why)
{
    struct ash_member_event event = {
        .kind = ASH_MEMBER_EVENT_ENDED, .view = member->view, .rank = member->rank, .code = code, .why = why};

    if (member->state == ASH_MEMBER_ENDED) return;
    ash_member_meeting_close(member, member->meeting);
    ash_member_meeting_close(member, member->starting);
    member->state = ASH_MEMBER_ENDED;
    member->opts.ops->event(member->opts.ctx, &event);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct ash_member *ash_member_open(const struct ash_member_opts *opts, uint64_t now_ns)
{
    struct ash_member *member = calloc(1, sizeof(*member));

    ash_assert(opts->id != 0 && opts->ops->send != NULL && opts->ops->event != NULL && opts->heartbeat_ns > 0);
    if (member == NULL) return NULL;
    member->opts = *opts;
    member->now_ns = member->last_tick_ns = now_ns;
    member->tell_at_ns = ASH_MEMBER_NEVER;
    if (opts->card_bytes > 0 && (member->card = calloc(1, opts->card_bytes)) == NULL) {
        free(member);
        return NULL;
    }
    return member;
}

void ash_member_close(struct ash_member *member)
{
    if (member == NULL) return;
    ash_member_meeting_close(member, member->meeting);
    ash_member_meeting_close(member, member->starting);
    for (size_t i = 0; i < member->joiner_count; i++)
        free(member->joiners[i].card);
    free(member->joiners);
    free(member->dead.ids);
    free(member->suspects.ids);
    free(member->deaf.ids);
    free(member->gone.ids);
    free(member->leavers.ids);
    free(member->card);
    drop_accepted(member);
    ash_view_put(member->view);
    ash_view_put(member->base);
    free(member);
}

void ash_member_start(struct ash_member *member, struct ash_view *view)
{
    struct ash_member_event event = {.kind = ASH_MEMBER_EVENT_STARTED};

    ash_view_get(view);
    ash_view_put(member->view);
    member->view = view;
    member->rank = ash_view_find(view, member->opts.id);
    ash_assert(member->rank < view->size);
    drop_accepted(member);
    ash_member_meeting_close(member, member->meeting);
    member->state = ASH_MEMBER_RUNNING;
    member->is_ready = member->wants_leave = member->network_fails = false;
    member->dead.count = member->suspects.count = member->deaf.count = member->gone.count = member->leavers.count = 0;
    member->tell_at_ns = ASH_MEMBER_NEVER;
    ash_member_join_expire(member, 0);
    ash_member_watch_begin(member);
    event.view = view;
    event.rank = member->rank;
    member->opts.ops->event(member->opts.ctx, &event);
}

void ash_member_begin(struct ash_member *member, struct ash_view *view, uint64_t now_ns)
{
    ash_assert(member->view == NULL);
    member->now_ns = member->last_tick_ns = now_ns;
    ash_member_start(member, view);
    member->base = ash_view_get(view);
}

int ash_member_join(struct ash_member *member, const void *card, uint64_t now_ns)
{
    if (member->state != ASH_MEMBER_IDLE) return -EINVAL;
    member->now_ns = member->last_tick_ns = now_ns;
    if (card != NULL) memcpy(member->card, card, member->opts.card_bytes);
    member->state = ASH_MEMBER_JOINING;
    member->join_at_ns = now_ns;
    return 0;
}

int ash_member_reform(struct ash_member *member, const struct ash_member_terms *terms, uint64_t now_ns)
{
    if (member->view == NULL || member->state == ASH_MEMBER_ENDED) return -EINVAL;
    member->now_ns = now_ns;
    member->terms = *terms;
    if (terms->card != NULL) memcpy(member->card, terms->card, member->opts.card_bytes);
    member->terms.card = NULL;
    member->is_ready = true;
    member->has_agreed = false;
    member->ready_since_ns = now_ns;
    if (member->state == ASH_MEMBER_RUNNING) ash_member_over(member, ASH_MEMBER_NEVER);
    member->tell_at_ns = ASH_MEMBER_NEVER; /* it knows */
    member->hello_at_ns = now_ns;
    ash_member_form_ready(member);
    return 0;
}

void ash_member_abort(struct ash_member *member, uint64_t subject, int code, const char *why, uint64_t now_ns)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_LOST);

    member->now_ns = now_ns;
    if (member->state != ASH_MEMBER_RUNNING) return;
    msg.subject = subject;
    msg.loss = ASH_MEMBER_ABORTED;
    msg.code = code;
    msg.why = why;
    ash_member_lose(member, &msg, 0);
}

void ash_member_say_bye(struct ash_member *member)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_BYE);

    if (member->state != ASH_MEMBER_RUNNING && member->state != ASH_MEMBER_OVER) return;
    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++)
        if (member->neighbours[i].id != 0) ash_member_send(member, member->neighbours[i].id, &msg);
}

void ash_member_want_leave(struct ash_member *member, uint64_t now_ns)
{
    member->now_ns = now_ns;
    member->wants_leave = true;
    member->heartbeat_at_ns = now_ns; /* says so with the next ones */
}

/* ---- peers and time ---------------------------------------------------------------------------------------------- */

void ash_member_peer_died(struct ash_member *member, uint64_t id, uint64_t now_ns)
{
    struct ash_member_msg msg = ash_member_message(member, ASH_MEMBER_LOST);

    member->now_ns = now_ns;
    if (member->state == ASH_MEMBER_ENDED) return;
    ash_member_join_expire(member, id);
    if (member->state == ASH_MEMBER_OVER) ash_member_form_lose(member, id, true); /* a joiner, perhaps */
    if (member->view == NULL || ash_view_find(member->view, id) == SIZE_MAX || id == member->opts.id) return;
    if (member->state == ASH_MEMBER_RUNNING && ash_member_ids_has(&member->gone, id)) return;
    msg.subject = id;
    msg.loss = ASH_MEMBER_DIED;
    msg.code = -ECONNRESET;
    ash_member_lose(member, &msg, 0);
}

void ash_member_peer_unreachable(struct ash_member *member, uint64_t id, uint64_t now_ns)
{
    member->now_ns = now_ns;
    if (member->state != ASH_MEMBER_OVER || !member->network_fails) return;
    ash_member_form_lose(member, id, false);
    if (ash_view_find(member->view, id) == member->candidate && member->candidate != member->rank) {
        ash_member_suspect(member, id);
        ash_member_choose(member);
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* This process was asleep: the others' silence is not theirs. */
static void forgive(struct ash_member *member, uint64_t gap_ns)
{
    uint64_t now_ns = member->now_ns;

    for (size_t i = 0; i < ASH_MEMBER_NEIGHBOURS; i++)
        member->neighbours[i].heard_ns = sooner(member->neighbours[i].heard_ns + gap_ns, now_ns);
    member->candidate_ns = sooner(member->candidate_ns + gap_ns, now_ns);
    for (size_t r = 0; member->meeting != NULL && r < member->meeting->size; r++)
        member->meeting->seats[r].heard_ns = sooner(member->meeting->seats[r].heard_ns + gap_ns, now_ns);
}

void ash_member_tick(struct ash_member *member, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - member->last_tick_ns;

    member->now_ns = member->last_tick_ns = now_ns;
    if (gap_ns > PAUSE_HEARTBEATS * member->opts.heartbeat_ns) forgive(member, gap_ns);
    if (member->state == ASH_MEMBER_RUNNING) ash_member_watch_tick(member);
    if (member->state == ASH_MEMBER_OVER || member->state == ASH_MEMBER_JOINING) ash_member_follow_tick(member);
    if (member->meeting != NULL || member->starting != NULL) ash_member_form_tick(member);
}

uint64_t ash_member_next_ns(const struct ash_member *member)
{
    uint64_t next_ns = ASH_MEMBER_NEVER;

    if (member->state == ASH_MEMBER_RUNNING) next_ns = member->heartbeat_at_ns;
    if (member->state == ASH_MEMBER_JOINING) next_ns = member->join_at_ns;
    if (member->state == ASH_MEMBER_OVER)
        next_ns = sooner(sooner(member->hello_at_ns, member->heartbeat_at_ns), member->tell_at_ns);
    if (member->meeting != NULL) next_ns = sooner(next_ns, member->meeting->retry_at_ns);
    if (member->starting != NULL) next_ns = sooner(next_ns, member->starting->retry_at_ns);
    return next_ns;
}

struct ash_view *ash_member_view(const struct ash_member *member)
{
    return member->view;
}

bool ash_member_is_running(const struct ash_member *member)
{
    return member->state == ASH_MEMBER_RUNNING;
}

bool ash_member_is_coordinator(const struct ash_member *member)
{
    return member->meeting != NULL;
}

void ash_member_news(const struct ash_member *member, size_t *joiners_out, size_t *leavers_out)
{
    *joiners_out = member->joiner_count;
    *leavers_out = member->leavers.count;
}
