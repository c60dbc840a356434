/* run: the edge of a step, where ranks come and go. The first rank knows who asks for a place; every rank knows whether
 * it was told to stop. One sum tells all of them, so all of them decide the same. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/metrics.h"
#include "collective/epoch.h"
#include "train/run/control.h"

#define LOOK_NS 100000000u     /* between two looks for a request */
#define PROBE_STEPS 20         /* between two looks at links */
#define TOGETHER_NS 200000000u /* stop requests that come within this are one request, for all ranks */

/* What ranks add up. */
enum edge_value {
    EDGE_TOLD, /* ranks that were told to stop */
    EDGE_JOIN, /* processes that wait for a place; spares that want to leave; the first rank's word counts */
    EDGE_LEAVE,
    EDGE_STOP,   /* somebody asks the run to stop, */
    EDGE_RANKS,  /* or to have this many ranks; 0: as they are */
    EDGE_KEEP,   /* this many ranks stay; 0: all. One that did not hear it is asked again at the next edge */
    EDGE_FLIP,   /* or that a bit changes: see struct ash_run_request */
    EDGE_PAUSE,  /* or that a rank is slow from now on: that one, counted from 1 */
    EDGE_DIE,    /* or that one dies somewhere; */
    EDGE_PASSES, /* after that many times; */
    EDGE_ERR,    /* or that it computes wrongly: see struct ash_run_request; */
    EDGE_DOOM,   /* or that the next step kills whoever is last */
    EDGE_WAITS,  /* ranks that wait much longer for others than at first, for some steps */
    EDGE_OWN_US, /* work of the last step, of all ranks */
    EDGE_SLOW,   /* ranks that have been slow for some steps; where it is one: */
    EDGE_SLOW_RANK,
    EDGE_SLOW_TIMES, /* hundredths */
    EDGE_SETTLE,     /* some were told to stop, long enough ago that it was not meant for all */
    EDGE_VALUES
};

bool ash_run_is_told(const struct ash_run *run)
{
    return run->opts->stop != NULL && run->opts->stop();
}

/* First rank. */
static void look_around(struct ash_run *run, int64_t values[EDGE_VALUES])
{
    struct ash_epoch_news news = {0};
    struct ash_run_request request = {0};

    if (ash_clock_ns() - run->asked_ns >= LOOK_NS) {
        run->asked_ns = ash_clock_ns();
        ash_run_request_take(run->opts->dir, &request);
    }
    values[EDGE_STOP] = request.stop;
    values[EDGE_RANKS] = run->group != NULL ? request.ranks : 0;
    values[EDGE_FLIP] = request.flip;
    values[EDGE_PAUSE] = request.slow;
    values[EDGE_DIE] = request.die;
    values[EDGE_PASSES] = request.passes;
    values[EDGE_ERR] = request.err;
    values[EDGE_DOOM] = request.doom;
    values[EDGE_KEEP] = values[EDGE_RANKS] > 0 ? values[EDGE_RANKS] : run->wanted_ranks;

    if (run->group != NULL) ash_epoch_get_news(run->group, &news);
    values[EDGE_JOIN] = (int64_t)news.joiners;
    values[EDGE_LEAVE] = (int64_t)news.leavers;
    values[EDGE_SETTLE] = run->told_ns != 0 && ash_clock_ns() - run->told_ns >= TOGETHER_NS;
}

/* Is this one of the ranks that a resize leaves out? */
static bool is_dropped(const struct ash_run *run)
{
    return run->group != NULL && (int64_t)ash_group_rank(run->group) >= run->kept_ranks;
}

/* Why ranks change, if they do. */
static void describe(struct ash_run *run, const struct ash_run_edge *edge, int64_t joiners, int64_t leavers)
{
    size_t used = 0;

    run->change_why[0] = '\0';
    if (!edge->changes) return;
    if (joiners > 0)
        used = (size_t)snprintf(run->change_why, sizeof(run->change_why), "%lld process%s join%s", (long long)joiners,
                                joiners == 1 ? "" : "es", joiners == 1 ? "s" : "");
    if (leavers > 0)
        snprintf(run->change_why + used, sizeof(run->change_why) - used, "%s%lld rank%s leave%s", used > 0 ? ", " : "",
                 (long long)leavers, leavers == 1 ? "" : "s", leavers == 1 ? "s" : "");
}

/* Does the run end here? */
static bool wants_stop(const struct ash_run *run, const int64_t values[EDGE_VALUES], int64_t mesh_ranks, int64_t all)
{
    int64_t told = values[EDGE_TOLD];

    if (values[EDGE_STOP] != 0 || told == mesh_ranks) return true;
    return told > 0 && all - told - values[EDGE_LEAVE] < run->job->recover.min_ranks;
}

/* ---- slow ranks -------------------------------------------------------------------------------------------------- */

ASH_COUNTER(slow_metric, "ashlar_train_slow_ranks_total",
            "Times that a rank was slower than its peers for some steps.");

/* What this rank says of its last step. */
static void tell_pace(const struct ash_run *run, int64_t values[EDGE_VALUES])
{
    values[EDGE_OWN_US] = (int64_t)(run->own_s * 1e6);
    values[EDGE_WAITS] = run->waits_long;
    if (!run->is_slow || run->group == NULL) return;
    values[EDGE_SLOW] = 1;
    values[EDGE_SLOW_RANK] = (int64_t)ash_group_rank(run->group);
    values[EDGE_SLOW_TIMES] = (int64_t)(run->slow.mean * 100);
}

/* What all have said of it: this rank judges itself, and the first one names who was found slow. */
static void hear_pace(struct ash_run *run, const int64_t values[EDGE_VALUES])
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    struct ash_group_member slow;

    if (group == NULL) return;
    run->is_slow = ash_slow_watch_add(&run->slow, run->own_s, (double)values[EDGE_OWN_US] * 1e-6, ash_group_size(group),
                                      run->facts.mesh->size[ASH_MESH_PP] > 1);
    if (!run->is_leader || values[EDGE_SLOW] != 1) return;
    slow = ash_group_get_member(run->group, (size_t)values[EDGE_SLOW_RANK]);
    ash_metric_add(&slow_metric, 1);
    ash_run_warn(run, "rank %zu (host %s, process %lld) is %.1f times as slow as its peers, for %d steps", slow.rank,
                 slow.host, (long long)slow.pid, (double)values[EDGE_SLOW_TIMES] * 0.01, ASH_SLOW_STEPS);
}

ASH_COUNTER(link_metric, "ashlar_train_slow_links_total", "Times that a link between nodes was found slow.");
ASH_GAUGE(
    rank_link_metric, "ashlar_rank_slow_link",
    "How many times as slow as the job's other links the one from this rank's node is; 0: it does not stand out.");

/* How many ranks of the mesh are on the node that a link leads from, where as many spares are elsewhere; else 0. No
 * spare may be there itself: it would be behind that link, too. */
static int64_t count_behind(const struct ash_run *run, size_t from)
{
    size_t mesh_ranks = ash_group_size(ash_trainer_group(run->trainer)),
           node = ash_group_get_member(run->group, from).node_index;
    int64_t behind = 0, spares = 0;

    for (size_t r = 0; r < ash_group_size(run->group); r++) {
        bool is_there = ash_group_get_member(run->group, r).node_index == node, is_spare = r >= mesh_ranks;

        if (is_there && is_spare) return 0;
        behind += is_there;
        spares += is_spare;
    }
    return spares >= behind ? behind : 0;
}

static void name_link(struct ash_run *run, const struct ash_slow_link *link, int64_t behind)
{
    struct ash_group_member from = ash_group_get_member(run->group, link->from),
                            to = ash_group_get_member(run->group, link->to);

    ash_metric_add(&link_metric, 1);
    ash_run_warn(
        run,
        "the link from the node of rank %zu (host %s) to that of rank %zu (host %s) is slow: %.3f s for %zu kB, "
        "%.3f s elsewhere; all ranks wait for it%s",
        link->from, from.host, link->to, to.host, link->took_s, ASH_LINK_MESSAGE_BYTES >> 10, link->rest_s,
        !run->job->recover.replace_slow ? ""
        : behind > 0                    ? "; spares take over"
                                        : "; there are not enough spares on other nodes to take over");
}

/* Where all ranks wait long, it is no rank's fault: time the links between nodes, and have the first rank name one that
 * stands out. *behind_out: ranks behind it that are to be replaced. Returns 0 or the group's error. */
static int look_at_links(struct ash_run *run, const int64_t values[EDGE_VALUES], int64_t *behind_out,
                         struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    uint64_t step = ash_trainer_state(run->trainer)->step;
    struct ash_slow_link link;
    bool is_there;
    int rc;

    run->is_behind = false;
    if (group == NULL) return 0;
    if (values[EDGE_WAITS] == 0) ash_metric_set(&rank_link_metric, 0);
    if (values[EDGE_WAITS] != (int64_t)ash_group_size(group) || step < run->probe_step) return 0;
    run->probe_step = step + PROBE_STEPS;
    rc = ash_group_nodes(group) > 1 ? ash_links_probe(group, &link, err) : 0;
    if (rc == 0) ash_metric_set(&rank_link_metric, 0);
    if (rc <= 0) return rc;
    if (run->job->recover.replace_slow) *behind_out = count_behind(run, link.from);
    is_there = ash_group_get_member(run->group, ash_group_rank(run->group)).node_index ==
               ash_group_get_member(run->group, link.from).node_index;
    ash_metric_set(&rank_link_metric, is_there ? link.took_s / fmax(link.rest_s, 1e-6) : 0);
    run->is_behind = *behind_out > 0 && is_there;
    if (run->is_leader) name_link(run, &link, *behind_out);
    return 0;
}

/* Is there a slow rank that gives its place to a spare? */
static bool replaces(const struct ash_run *run, const int64_t values[EDGE_VALUES], int64_t mesh_ranks, int64_t all)
{
    return run->job->recover.replace_slow && values[EDGE_SLOW] == 1 && all > mesh_ranks;
}

/* How many ranks somebody wants, and how many stay. */
static void hear_resize(struct ash_run *run, const int64_t values[EDGE_VALUES], int64_t all)
{
    if (values[EDGE_RANKS] > 0) {
        run->wanted_ranks = values[EDGE_RANKS];
        run->resizes++;
    }
    run->kept_ranks = values[EDGE_KEEP] > 0 && values[EDGE_KEEP] < all ? values[EDGE_KEEP] : all;
}

/* Decide, from what all have added up: the same on all ranks. behind: ranks behind a slow link that are replaced. */
static void decide(struct ash_run *run, const int64_t values[EDGE_VALUES], int64_t behind, struct ash_run_edge *edge)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    int64_t mesh_ranks = group != NULL ? (int64_t)ash_group_size(group) : 1,
            all = run->group != NULL ? (int64_t)ash_group_size(run->group) : 1,
            told = values[EDGE_SETTLE] != 0 ? values[EDGE_TOLD] : 0, leavers, replaced;
    bool is_growing = ash_trainer_is_growing(run->trainer); /* one thing after the other */

    hear_resize(run, values, all);
    edge->replaces = behind == 0 && replaces(run, values, mesh_ranks, all);
    replaced = behind + edge->replaces;
    leavers = told + values[EDGE_LEAVE] + all - run->kept_ranks + replaced;
    edge->stop = wants_stop(run, values, mesh_ranks, all);
    edge->changes = !edge->stop && values[EDGE_JOIN] + leavers > 0 && !is_growing; /* they ask again */
    edge->grows = !edge->stop && ash_trainer_is_fed(run->trainer);
    run->flip = edge->changes || edge->grows ? 0 : values[EDGE_FLIP];
    run->hands_over = edge->changes && (told > 0 || replaced > 0 || run->kept_ranks < mesh_ranks);
    if (!is_growing) describe(run, edge, values[EDGE_JOIN], leavers);
}

/* Does this rank leave at an edge at which ranks change? was_told: it alone, or with some others. */
static bool leaves(const struct ash_run *run, const struct ash_run_edge *edge, bool was_told)
{
    return edge->changes && (was_told || is_dropped(run) || run->is_behind || (edge->replaces && run->is_slow));
}

int ash_run_meet_edge(struct ash_run *run, struct ash_run_edge *edge_out, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    int64_t values[EDGE_VALUES] = {ash_run_is_told(run)}, behind = 0;
    bool was_told = values[EDGE_TOLD] != 0;
    int rc = 0;

    *edge_out = (struct ash_run_edge){0};
    if (run->is_leader) look_around(run, values);
    tell_pace(run, values);
    if (group != NULL) rc = ash_group_all_reduce(group, values, values, EDGE_VALUES, ASH_COLL_I64, ASH_COLL_SUM, err);
    if (rc == 0) rc = look_at_links(run, values, &behind, err);
    if (rc < 0) return rc;
    if (values[EDGE_TOLD] == 0) run->told_ns = 0;
    if (values[EDGE_TOLD] > 0 && run->told_ns == 0) run->told_ns = ash_clock_ns();
    decide(run, values, behind, edge_out);
    run->is_leaving = leaves(run, edge_out, was_told && values[EDGE_SETTLE] != 0);
    ash_run_take_faults(run, &(struct ash_run_faults){.slow = values[EDGE_PAUSE],
                                                      .die = values[EDGE_DIE],
                                                      .passes = values[EDGE_PASSES],
                                                      .err = values[EDGE_ERR],
                                                      .doom = values[EDGE_DOOM] != 0});
    hear_pace(run, values);
    if (run->is_leader && values[EDGE_RANKS] > 0) ash_run_write_status(run, "running");
    if (edge_out->stop || run->is_leaving) ash_interrupt_take_up(); /* what is waited for from here on ends it well */
    return 0;
}

/* ---- spares ------------------------------------------------------------------------------------------------------ */

/* Plain data. */
struct spare_note {
    uint64_t step;
    int64_t kept_ranks;
    int64_t die; /* while they are fed: see struct ash_run_request */
    uint32_t word, hands_over;
};

int ash_run_tell_spares(struct ash_run *run, enum ash_spare_word word, struct ash_err *err)
{
    struct ash_group *mesh = ash_trainer_group(run->trainer);
    struct spare_note note = {.step = ash_trainer_state(run->trainer)->step,
                              .kept_ranks = run->kept_ranks,
                              .die = word == ASH_SPARE_FEED ? run->newcomer_dies : 0,
                              .word = word,
                              .hands_over = run->hands_over};
    int rc = 0;

    if (mesh == NULL || !run->is_leader) return 0;
    for (size_t r = ash_group_size(mesh); rc == 0 && r < ash_group_size(run->group); r++)
        rc = ash_group_send(run->group, r, &note, sizeof(note), err);
    return rc;
}

/* The next one, and what it asks for at once. */
static int hear_note(struct ash_run *run, struct spare_note *note, struct ash_err *err)
{
    int rc = ash_group_recv(run->group, 0, note, sizeof(*note), err);

    if (rc < 0) return rc;
    ash_trainer_hear_step(run->trainer, note->step);
    ash_run_take_death(run, note->die);
    return note->word == ASH_SPARE_FEED ? ash_trainer_feed_spare(run->trainer, err) : 0;
}

int ash_run_wait_as_spare(struct ash_run *run, struct ash_err *err)
{
    struct spare_note note = {0};
    bool wants_leave = false;
    int rc = 0;

    while (rc == 0 && (note.word == ASH_SPARE_STEP || note.word == ASH_SPARE_FEED)) {
        if (ash_run_is_told(run) && !wants_leave) {
            ash_epoch_want_leave(run->group);
            wants_leave = true;
        }
        rc = hear_note(run, &note, err);
    }
    run->hands_over = note.hands_over != 0;
    run->grows = rc == 0 && note.word == ASH_SPARE_GROW;
    run->kept_ranks = note.kept_ranks;
    run->is_leaving = !run->grows && (wants_leave || (rc == 0 && note.word == ASH_SPARE_CHANGE && is_dropped(run)));
    return rc < 0 ? rc : note.word == ASH_SPARE_OVER;
}
