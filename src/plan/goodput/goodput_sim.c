/* The two-level machine simulated event by event: snapshots, their arrival, failures that may strike at any moment,
 * repairs of nodes. It knows nothing of the formula, so that the two can be held against each other. */
#include "plan/goodput/goodput_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"

#define RUNS_MIN 32
#define RUNS_LEAST 8 /* where runs must be long */
#define RUNS_MAX 4096
#define REPAIRS_MAX 4096 /* nodes away at a time; more cannot be: one more than the spares stops the job */
#define FAR_PERIODS 1000 /* quiet ones of both levels, from which on they are counted instead of simulated */
#define NEVER INFINITY

enum stream { STREAM_GAP = 1, STREAM_LEVEL, STREAM_REPLACE, STREAM_AWAY };

/* Progress is in seconds of work. */
struct track {
    double counts;   /* newest snapshot that a failure falls back to */
    double pending;  /* the one on its way */
    double ready_at; /* when it counts; NEVER: none is on its way */
    double next;     /* progress at which the next is taken */
};

struct simulation {
    const struct ash_goodput_way *way;
    uint64_t seed, draws, failures, events;
    double now, progress, fail_at, stall_until;
    struct track fast, slow;
    bool every_step; /* the fast level costs nothing: its snapshots need no events */
    double repairs[REPAIRS_MAX];
    size_t repairs_begin, repairs_count;
    double *gains; /* progress of each run */
    size_t runs, wanted_runs;
    double window_s, run_end, run_began, end;
    struct ash_goodput_shares spent; /* seconds */
};

static double draw_gap(struct simulation *sim)
{
    return -sim->way->mtbf_s * log1p(-ash_rng_uniform(sim->seed, STREAM_GAP, sim->draws++));
}

/* Time reaches `until` (at constant progress): close the runs that end before it. */
static void pass_time(struct simulation *sim, double until)
{
    while (sim->run_end <= until && sim->runs < sim->wanted_runs) {
        sim->gains[sim->runs++] = (sim->progress - sim->run_began) / sim->window_s;
        sim->run_began = sim->progress;
        sim->run_end += sim->window_s;
    }
    ash_assert(until >= sim->now); /* time does not run back */
    sim->now = until;
}

/* Seconds from now until then that lie inside the runs. */
static double inside(const struct simulation *sim, double until)
{
    return fmax(0, fmin(until, sim->end) - sim->now);
}

static void settle(struct track *track, double now)
{
    if (track->ready_at > now) return;
    track->counts = fmax(track->counts, track->pending);
    track->ready_at = NEVER;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* A node breaks at `now`. Returns when the job can continue: at once with a spare, else when the first node is back. */
static double repair_node(struct simulation *sim, double now)
{
    while (sim->repairs_count > 0 && sim->repairs[sim->repairs_begin] <= now) {
        sim->repairs_begin = (sim->repairs_begin + 1) % REPAIRS_MAX;
        sim->repairs_count--;
    }
    ash_assert(sim->repairs_count < REPAIRS_MAX);
    sim->repairs[(sim->repairs_begin + sim->repairs_count++) % REPAIRS_MAX] = now + sim->way->repair_s;
    return (int64_t)sim->repairs_count <= sim->way->spares ? now : sim->repairs[sim->repairs_begin];
}

static bool counts_spares(const struct ash_goodput_way *way)
{
    return way->spares >= 0 && way->replace_share > 0;
}

/* Some failures cost a node. */
static void replace_node(struct simulation *sim)
{
    double back;

    if (!counts_spares(sim->way) || ash_rng_uniform(sim->seed, STREAM_REPLACE, sim->draws) >= sim->way->replace_share)
        return;
    back = repair_node(sim, sim->now);
    sim->spent.waiting += inside(sim, back);
    pass_time(sim, back);
}

/* Progress falls back to the newest snapshot of the level that answers. */
static void fall_back(struct simulation *sim, bool fast)
{
    double step_s = sim->way->fast.work_s;

    settle(&sim->slow, sim->now);
    settle(&sim->fast, sim->now);
    if (sim->every_step) sim->fast.counts = floor(sim->progress / step_s + 1e-9) * step_s;
    if (fast) {
        sim->progress = sim->fast.counts;
        if (sim->slow.ready_at < NEVER && sim->slow.ready_at - sim->way->slow.lag_s > sim->now) {
            sim->slow.next = sim->slow.pending; /* it was still being taken */
            sim->slow.ready_at = NEVER;
        }
    } else {
        sim->progress = sim->slow.counts;
        sim->slow.ready_at = NEVER;
        sim->slow.next = sim->progress + sim->way->slow.work_s;
    }
    sim->fast.counts = sim->progress;
    sim->fast.ready_at = NEVER;
    sim->fast.next = sim->progress + sim->way->fast.work_s;
    sim->stall_until = sim->now;
}

/* One part of a recovery. Returns false where the next failure cuts it short. */
static bool recover_part(struct simulation *sim, double seconds, double *spent)
{
    double until = fmin(sim->now + seconds, sim->fail_at);

    *spent += inside(sim, until);
    pass_time(sim, until);
    return until < sim->fail_at;
}

static void handle_failure(struct simulation *sim)
{
    const struct ash_goodput_way *way = sim->way;
    bool fast = way->has_fast, done = false;

    while (!done && sim->runs < sim->wanted_runs) {
        const struct ash_goodput_level *level;

        sim->failures++;
        sim->events++;
        if (fast) fast = ash_rng_uniform(sim->seed, STREAM_LEVEL, sim->draws) < way->cover;
        fall_back(sim, fast);
        replace_node(sim);
        sim->fail_at = sim->now + draw_gap(sim);
        level = fast ? &way->fast : &way->slow;
        done = recover_part(sim, level->detect_s, &sim->spent.detect) &&
               recover_part(sim, level->restart_s, &sim->spent.restart) &&
               recover_part(sim, level->load_s, &sim->spent.load);
    }
    sim->stall_until = sim->now;
    settle(&sim->slow, sim->now); /* a background write may have ended meanwhile */
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* Share of full speed: background writes take some. */
static double speed(const struct simulation *sim)
{
    double rate = 1;

    if (sim->now < sim->stall_until) return 0;
    if (sim->slow.ready_at < NEVER) rate -= sim->way->slow.slowdown;
    if (sim->fast.ready_at < NEVER && sim->way->has_fast) rate -= sim->way->fast.slowdown;
    return rate;
}

static void take_snapshot(struct simulation *sim, struct track *track, const struct ash_goodput_level *level)
{
    if (track->ready_at < NEVER) return; /* the one before is not there yet: this one waits */
    sim->stall_until = fmax(sim->stall_until, sim->now) + level->stall_s;
    track->pending = sim->progress;
    track->ready_at = sim->stall_until + level->lag_s;
    track->next = sim->progress + level->work_s;
    settle(track, sim->now);
}

/* When progress will be at `next`, at this speed. */
static double due_at(const struct simulation *sim, const struct track *track, double rate)
{
    if (track->ready_at < NEVER) return NEVER;
    if (sim->progress >= track->next - 1e-9) return sim->now;
    return rate > 0 ? sim->now + (track->next - sim->progress) / rate : NEVER;
}

/* A snapshot of level is due, and the next thing that differs (a failure, the end of a run, the other level's turn) is
 * some periods away: what happens until then repeats itself, so let whole periods pass at once. */
static void skip_periods(struct simulation *sim, struct track *track, const struct ash_goodput_level *level,
                         double quiet_until, double other_slowdown)
{
    double slow_rate = 1 - other_slowdown - level->slowdown;
    double rest_s = (level->work_s - slow_rate * level->lag_s) / (1 - other_slowdown);
    double period = level->stall_s + level->lag_s + rest_s, count = floor((quiet_until - sim->now) / period) - 1;

    if (rest_s < 0 || !(count >= 1)) return;
    sim->progress += count * level->work_s;
    sim->spent.stall += count * (period - level->work_s);
    track->counts = sim->progress - level->work_s;
    track->next = sim->progress;
    pass_time(sim, sim->now + count * period);
}

/* Until when will nothing but fast snapshots happen? The slow level's next snapshot comes after its work_s. */
static double quiet_of_fast(const struct simulation *sim)
{
    double until = fmin(sim->fail_at, sim->run_end);

    if (sim->slow.ready_at < NEVER) return fmin(until, sim->slow.ready_at);
    return fmin(until, sim->now + sim->slow.next - sim->progress);
}

/* The same for both levels together, where the slow one's turns follow each other so closely that simulating a quiet
 * stretch would take too long. Copies keep their distance in progress; what two slow-downs at once would take is
 * neglected. Returns whether anything was skipped: then copies that were due are late. */
static bool skip_far(struct simulation *sim, double quiet_until)
{
    const struct ash_goodput_level *fast = &sim->way->fast, *slow = &sim->way->slow;
    double fast_pause = fast->stall_s + fast->slowdown * fast->lag_s;
    double slow_pause = slow->stall_s + slow->slowdown * slow->lag_s;
    double period = slow->work_s * (1 + fast_pause / fast->work_s) + slow_pause;
    double stalled = fmax(0, sim->stall_until - sim->now); /* by a copy that is being taken */
    double count = floor((quiet_until - sim->now - stalled) / period) - 1, work = count * slow->work_s, copies, pauses;

    if (!(count >= FAR_PERIODS)) return false;
    copies = fmax(0, floor((sim->progress + work - sim->fast.next) / fast->work_s) + 1);
    pauses = stalled + count * slow_pause + copies * fast_pause;
    if (sim->now + work + pauses > quiet_until) return false;
    sim->progress += work;
    sim->spent.stall += pauses;
    sim->slow.counts = sim->progress - slow->work_s;
    sim->slow.next = sim->progress;
    sim->fast.next += copies * fast->work_s;
    sim->fast.counts = fmax(sim->fast.counts, sim->fast.next - fast->work_s);
    sim->fast.ready_at = NEVER;
    pass_time(sim, sim->now + work + pauses);
    return true;
}

/* Work until the next event and handle it. */
static void advance(struct simulation *sim)
{
    const struct ash_goodput_way *way = sim->way;
    bool events_of_fast = way->has_fast && !sim->every_step;
    double rate = speed(sim), until = fmin(sim->fail_at, sim->run_end), fast_due = NEVER, slow_due;

    sim->events++;
    slow_due = due_at(sim, &sim->slow, rate);
    if (events_of_fast) fast_due = due_at(sim, &sim->fast, rate);
    until = fmin(until, fmin(fast_due, slow_due));
    until = fmin(until, fmin(sim->slow.ready_at, events_of_fast ? sim->fast.ready_at : NEVER));
    if (rate <= 0) until = fmin(until, sim->stall_until);
    sim->progress += rate * (until - sim->now);
    sim->spent.stall += (1 - rate) * (until - sim->now);
    pass_time(sim, until);
    settle(&sim->slow, until);
    settle(&sim->fast, until);
    if (until == sim->fail_at) {
        handle_failure(sim);
        return;
    }
    if (until == slow_due && events_of_fast && skip_far(sim, fmin(sim->fail_at, sim->run_end))) fast_due = NEVER;
    if (until == fast_due) {
        double writing = sim->slow.ready_at < NEVER ? way->slow.slowdown : 0;

        if (sim->now >= sim->stall_until && until != slow_due)
            skip_periods(sim, &sim->fast, &way->fast, quiet_of_fast(sim), writing);
        take_snapshot(sim, &sim->fast, &way->fast);
    }
    if (until == slow_due) {
        if (!events_of_fast) skip_periods(sim, &sim->slow, &way->slow, fmin(sim->fail_at, sim->run_end), 0);
        take_snapshot(sim, &sim->slow, &way->slow);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Seconds between failures; the job does not fail while it waits for nodes. */
static double failure_gap(const struct ash_goodput_way *way)
{
    if (!counts_spares(way)) return way->mtbf_s;
    return fmax(way->mtbf_s, way->replace_share * way->repair_s / ((double)way->spares + 1));
}

/* Events of a second on average. Quiet stretches between failures and inside runs are skipped, but not across turns of
 * two levels unless they are long. */
static double event_rate(const struct simulation *sim, double run_s)
{
    const struct ash_goodput_way *way = sim->way;
    double gap = failure_gap(way), rate = 12 / gap;

    if (way->has_fast && !sim->every_step) rate += fmin(7 / way->slow.work_s, 7 * FAR_PERIODS * (1 / gap + 1 / run_s));
    return rate;
}

/* How long the runs are and how many. Nodes that are away link runs that are shorter than a repair: they are made as
 * long, unless that takes too many events. */
static void lay_out(struct simulation *sim, double run_s, double wanted_failures, double max_events)
{
    const struct ash_goodput_way *way = sim->way;
    double longest_s = max_events / event_rate(sim, run_s),
           total_s = fmin(wanted_failures * failure_gap(way), longest_s);

    sim->window_s = fmin(run_s, total_s / RUNS_MIN);
    if (counts_spares(way) && sim->window_s < way->repair_s && RUNS_LEAST * way->repair_s <= longest_s) {
        sim->window_s = way->repair_s;
        total_s = fmax(total_s, RUNS_LEAST * way->repair_s);
    }
    sim->wanted_runs = (size_t)fmax(RUNS_LEAST, fmin(RUNS_MAX, total_s / sim->window_s + 0.5));
}

/* Count from now on. */
static void start_runs(struct simulation *sim)
{
    sim->runs = 0;
    sim->failures = 0;
    sim->spent = (struct ash_goodput_shares){0};
    sim->run_began = sim->progress;
    sim->run_end = sim->now + sim->window_s;
    sim->end = sim->now + sim->window_s * (double)sim->wanted_runs;
}

/* As many nodes are away at the beginning as later: only the failures that cost one are simulated, for two repairs. */
static void warm_up(struct simulation *sim)
{
    const struct ash_goodput_way *way = sim->way;
    double gap = way->mtbf_s / way->replace_share, now = -2 * way->repair_s;

    if (!counts_spares(way)) return;
    for (uint64_t i = 0;; i++) {
        now -= gap * log1p(-ash_rng_uniform(sim->seed, STREAM_AWAY, i));
        if (now >= 0) return;
        now = repair_node(sim, now);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarise(struct simulation *sim, struct ash_goodput_sim *result)
{
    double mean = 0, spread = 0, count = (double)sim->runs, keep = 1 - sim->way->overhead;
    double linked =
        counts_spares(sim->way) ? fmax(1, sim->way->repair_s / sim->window_s) : 1; /* runs that count as one */

    ash_assert(sim->runs > 1 && sim->window_s > 0); /* a spread needs two */
    for (size_t i = 0; i < sim->runs; i++)
        mean += sim->gains[i] / count;
    for (size_t i = 0; i < sim->runs; i++)
        spread += (sim->gains[i] - mean) * (sim->gains[i] - mean) / (count - 1);
    qsort(sim->gains, sim->runs, sizeof(*sim->gains), by_value);
    result->shares = sim->spent;
    ash_goodput_scale(&result->shares, 1 / (sim->window_s * count));
    result->shares.useful = keep * mean;
    result->shares.overhead = mean - result->shares.useful;
    result->shares.redone = 0;
    result->shares.redone = 1 - mean - result->shares.stall - result->shares.detect - result->shares.restart -
                            result->shares.load - result->shares.waiting;
    result->error = keep * sqrt(spread / count * linked);
    result->low = keep * sim->gains[sim->runs / 20];
    result->high = keep * sim->gains[sim->runs - 1 - sim->runs / 20];
    result->window_s = sim->window_s;
    result->failures = sim->failures;
    result->runs = sim->runs;
    result->events = sim->events;
}

void ash_goodput_simulate(const struct ash_goodput_way *way, double run_s, double wanted_failures, double max_events,
                          uint64_t seed, struct ash_goodput_sim *sim_out)
{
    double gains[RUNS_MAX];
    struct simulation sim = {.way = way, .seed = seed, .gains = gains};

    sim.every_step = way->has_fast && way->fast.stall_s <= 0 && way->fast.lag_s <= 0;
    sim.fast = (struct track){.ready_at = NEVER, .next = way->fast.work_s};
    sim.slow = (struct track){.ready_at = NEVER, .next = way->slow.work_s};
    lay_out(&sim, run_s, wanted_failures, max_events);
    sim.fail_at = draw_gap(&sim);
    warm_up(&sim);
    start_runs(&sim);
    while (sim.runs < sim.wanted_runs)
        advance(&sim);
    *sim_out = (struct ash_goodput_sim){0};
    summarise(&sim, sim_out);
}
