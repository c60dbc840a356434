/* run: the boundary between two steps, at which ranks join and leave. The first rank has the joining processes; every
 * rank has its own stop request. All get the same sum, so all decide the same. */
#include "train/run/run_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "collective/epoch.h"
#include "record/metrics.h"

#define LOOK_NS 100000000u /* between two looks for a request */
#define PROBE_STEPS 20     /* between two looks at links */

bool ash_run_is_told(const struct ash_run *run)
{
    return run->opts->stop != NULL && run->opts->stop();
}

static void take_news(struct ash_run *run, enum ash_elastic_event_kind kind, int64_t count)
{
    ash_elastic_take(&run->elastic, &(struct ash_elastic_event){.kind = kind, .count = count});
}

/* First rank: look for joining processes and for a request. */
static void look_around(struct ash_run *run, struct ash_run_sum *values)
{
    struct ash_epoch_news news = {0};
    struct ash_run_request request = {0};

    if (ash_clock_ns() - run->files.asked_ns >= LOOK_NS) {
        run->files.asked_ns = ash_clock_ns();
        ash_run_request_take(run->opts->dir, &request);
    }
    if (run->group != NULL) ash_epoch_get_news(run->group, &news);
    take_news(run, ASH_ELASTIC_JOIN, (int64_t)news.joiners);
    take_news(run, ASH_ELASTIC_LEAVE, (int64_t)news.leavers);
    if (request.stop) take_news(run, ASH_ELASTIC_STOP_ALL, 0);
    if (request.ranks > 0 && run->group != NULL) take_news(run, ASH_ELASTIC_RESIZE, request.ranks);
    if (request.ranks > 0 && request.ranks < run->job->recover.min_ranks)
        ash_run_warn(run, "a resize to %lld is refused: recover.min_ranks is %lld", (long long)request.ranks,
                     (long long)run->job->recover.min_ranks);
    values->faults = (struct ash_run_fault_sum){.flip = request.flip,
                                                .slow = request.slow,
                                                .die = request.die,
                                                .passes = request.passes,
                                                .err = request.err,
                                                .doom = request.doom};
}

/* Why ranks change, if they do. Ranks that grow into a larger mesh have been named before. */
static void describe(struct ash_run *run)
{
    const struct ash_elastic *elastic = &run->elastic;
    long long joiners = elastic->joining, leavers = elastic->going;
    size_t used = 0;

    if (elastic->growth != ASH_ELASTIC_GROWTH_NONE) return;
    run->progress.change_why[0] = '\0';
    if (elastic->change == ASH_ELASTIC_CHANGE_NONE) return;
    if (joiners > 0)
        used = (size_t)snprintf(run->progress.change_why, sizeof(run->progress.change_why), "%lld process%s join%s",
                                joiners, joiners == 1 ? "" : "es", joiners == 1 ? "s" : "");
    if (leavers > 0)
        snprintf(run->progress.change_why + used, sizeof(run->progress.change_why) - used, "%s%lld rank%s leave%s",
                 used > 0 ? ", " : "", leavers, leavers == 1 ? "" : "s", leavers == 1 ? "s" : "");
}

/* ---- slow ranks -------------------------------------------------------------------------------------------------- */

ASH_COUNTER(slow_metric, "ashlar_train_slow_ranks_total",
            "Times that a rank was slower than its peers for some steps.");

/* This rank's last step. */
static void tell_pace(struct ash_run *run, struct ash_run_sum *values)
{
    values->own_us = (int64_t)(run->pace.own_s * 1e6);
    values->waits = run->pace.waits_long;
    if (!run->pace.is_slow || run->group == NULL) return;
    take_news(run, ASH_ELASTIC_SLOW, 0);
    values->slow_rank = (int64_t)ash_group_rank(run->group);
    values->slow_times = (int64_t)(run->pace.slow.mean * 100);
}

/* All ranks' last step: this rank judges itself, and the first one names the one that was found slow. */
static void hear_pace(struct ash_run *run, const struct ash_run_sum *values)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    struct ash_group_member slow;

    if (group == NULL) return;
    run->pace.is_slow = ash_slow_watch_add(&run->pace.slow, run->pace.own_s, (double)values->own_us * 1e-6,
                                           ash_group_size(group), run->facts.mesh->size[ASH_MESH_PP] > 1);
    if (!run->is_leader || values->votes.slow != 1) return;
    slow = ash_group_get_member(run->group, (size_t)values->slow_rank);
    ash_metric_add(&slow_metric, 1);
    ash_run_warn(run, "rank %zu (host %s, process %lld) is %.1f times as slow as its peers, for %d steps", slow.rank,
                 slow.host, (long long)slow.pid, (double)values->slow_times * 0.01, ASH_SLOW_STEPS);
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

/* If all ranks wait long, no rank is the reason: time the links between nodes, and have the first rank name one that
 * stands out. Ranks behind it may be replaced. Returns 0 or the group's error. */
static int look_at_links(struct ash_run *run, int64_t waits, struct ash_elastic_event *met, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    uint64_t step = ash_trainer_state(run->trainer)->step;
    struct ash_slow_link link;
    bool is_there;
    int rc;

    if (group == NULL) return 0;
    if (waits == 0) ash_metric_set(&rank_link_metric, 0);
    if (waits != (int64_t)ash_group_size(group) || step < run->pace.probe_step) return 0;
    run->pace.probe_step = step + PROBE_STEPS;
    rc = ash_group_nodes(group) > 1 ? ash_links_probe(group, &link, err) : 0;
    if (rc == 0) ash_metric_set(&rank_link_metric, 0);
    if (rc <= 0) return rc;
    if (run->job->recover.replace_slow) met->behind = count_behind(run, link.from);
    is_there = ash_group_get_member(run->group, ash_group_rank(run->group)).node_index ==
               ash_group_get_member(run->group, link.from).node_index;
    ash_metric_set(&rank_link_metric, is_there ? link.took_s / fmax(link.rest_s, 1e-6) : 0);
    met->is_behind = met->behind > 0 && is_there;
    if (run->is_leader) name_link(run, &link, met->behind);
    return 0;
}

/* ---- the boundary ------------------------------------------------------------------------------------------------ */

int ash_run_do_meet(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    enum { VALUES = sizeof(struct ash_run_sum) / sizeof(int64_t) };
    const struct ash_guard_stats *stats = &ash_trainer_state(run->trainer)->guard;
    struct ash_guard_opts guard = ash_job_get_guard(run->job);
    struct ash_group *group = ash_trainer_group(run->trainer);
    struct ash_run_sum *sum = &run->sum;
    int rc = 0;

    *sum = (struct ash_run_sum){0};
    if (ash_run_is_told(run)) take_news(run, ASH_ELASTIC_STOP, 0);
    if (run->is_leader) look_around(run, sum);
    tell_pace(run, sum);
    sum->votes = ash_elastic_vote(&run->elastic, ash_clock_ns());
    rc = ash_group_all_reduce(group, sum, sum, VALUES, ASH_COLL_I64, ASH_COLL_SUM, err);
    if (rc == 0) rc = look_at_links(run, sum->waits, event, err);
    event->gives_up = ash_guard_limit(&guard, stats, run->progress.last.verdict, NULL) < 0;
    event->votes = sum->votes;
    event->now_ns = ash_clock_ns();
    return rc;
}

/* The machine has decided from the sum: what else is in it. */
static void hear_sum(struct ash_run *run)
{
    const struct ash_run_sum *sum = &run->sum;

    describe(run);
    ash_run_take_faults(run, &sum->faults);
    hear_pace(run, sum);
    if (run->is_leader && sum->votes.wanted > 0) ash_run_write_status(run, "running");
    /* from here on all waits lead to a clean end */
    if (run->elastic.is_stopped || run->elastic.leaves) ash_interrupt_take_up();
}

int ash_run_do_watch(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    bool stays = run->elastic.change == ASH_ELASTIC_CHANGE_NONE;
    int rc;

    (void)event;
    hear_sum(run);
    rc = stays ? ash_trainer_spread(run->trainer, err) : 0;
    if (rc == 0) rc = ash_run_watch_saves(run, err);
    if (rc == 0 && run->saves.is_overdue) take_news(run, ASH_ELASTIC_SAVE_DUE, 0);
    return rc;
}

int ash_run_do_notify(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    int rc = ash_run_tell_spares(run, run->elastic.word, err);

    (void)event;
    return rc < 0 || run->elastic.word != ASH_ELASTIC_WORD_STEP ? rc : ash_run_flip_bit(run, err);
}

/* ---- spares ------------------------------------------------------------------------------------------------------ */

/* Plain data. */
struct spare_note {
    uint64_t step;
    int64_t kept_ranks;
    int64_t die; /* while they receive the state: see struct ash_run_request */
    uint32_t word, hands_over;
};

int ash_run_tell_spares(struct ash_run *run, enum ash_elastic_word word, struct ash_err *err)
{
    struct ash_group *mesh = ash_trainer_group(run->trainer);
    struct spare_note note = {.step = ash_trainer_state(run->trainer)->step,
                              .kept_ranks = run->elastic.kept_ranks,
                              .die = word == ASH_ELASTIC_WORD_FEED ? run->faults.newcomer_dies : 0,
                              .word = word,
                              .hands_over = run->elastic.change == ASH_ELASTIC_CHANGE_HAND_OVER};
    int rc = 0;

    if (mesh == NULL || !run->is_leader) return 0;
    for (size_t r = ash_group_size(mesh); rc == 0 && r < ash_group_size(run->group); r++)
        rc = ash_group_send(run->group, r, &note, sizeof(note), err);
    return rc;
}

int ash_run_do_listen(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    struct spare_note note = {0};
    int rc;

    event->is_told = run->elastic.leaves || ash_run_is_told(run);
    if (event->is_told && !run->elastic.leaves) ash_epoch_want_leave(run->group);
    rc = ash_group_recv(run->group, 0, &note, sizeof(note), err);
    if (rc < 0) return rc;
    ash_trainer_hear_step(run->trainer, note.step);
    ash_run_take_death(run, note.die);
    event->word = (enum ash_elastic_word)note.word;
    event->step = note.step;
    event->kept = note.kept_ranks;
    event->hands_over = note.hands_over != 0;
    return 0;
}

int ash_run_do_feed(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    (void)event;
    return ash_trainer_feed_spare(run->trainer, err);
}
