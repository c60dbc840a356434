/* The two-level machine played event by event: snapshots, their arrival, failures that may strike at any moment,
 * repairs of nodes. It knows nothing of the formula, so that the two can be held against each other. */
#include "plan/goodput_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define RUNS_MIN 32
#define RUNS_LEAST 8 /* where runs must be long */
#define RUNS_MAX 4096
#define REPAIRS_MAX 4096 /* nodes away at a time; more cannot be: one more than the spares stops the job */
#define NEVER INFINITY

enum stream { STREAM_GAP = 1, STREAM_LEVEL, STREAM_REPLACE };

/* Progress is in seconds of work. */
struct track {
    double counts;   /* newest snapshot that a failure falls back to */
    double pending;  /* the one on its way */
    double ready_at; /* when it counts; NEVER: none is on its way */
    double next;     /* progress at which the next is taken */
};

struct play {
    const struct ash_goodput_way *way;
    uint64_t seed, draws, failures;
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

static double draw_gap(struct play *play)
{
    return -play->way->mtbf_s * log1p(-ash_rng_uniform(play->seed, STREAM_GAP, play->draws++));
}

/* Time reaches `until` (progress is then what it is now): close the runs that end before it. */
static void pass_time(struct play *play, double until)
{
    while (play->run_end <= until && play->runs < play->wanted_runs) {
        play->gains[play->runs++] = (play->progress - play->run_began) / play->window_s;
        play->run_began = play->progress;
        play->run_end += play->window_s;
    }
    play->now = until;
}

/* Seconds from now until then that lie inside the runs. */
static double inside(const struct play *play, double until)
{
    return fmax(0, fmin(until, play->end) - play->now);
}

static void settle(struct track *track, double now)
{
    if (track->ready_at > now) return;
    track->counts = fmax(track->counts, track->pending);
    track->ready_at = NEVER;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* A broken node goes to repair; where no spare is left the job waits for the first that comes back. */
static void replace_node(struct play *play)
{
    const struct ash_goodput_way *way = play->way;
    double back;

    if (way->spares < 0 || ash_rng_uniform(play->seed, STREAM_REPLACE, play->draws) >= way->replace_share) return;
    while (play->repairs_count > 0 && play->repairs[play->repairs_begin] <= play->now) {
        play->repairs_begin = (play->repairs_begin + 1) % REPAIRS_MAX;
        play->repairs_count--;
    }
    play->repairs[(play->repairs_begin + play->repairs_count++) % REPAIRS_MAX] = play->now + way->repair_s;
    if ((int64_t)play->repairs_count <= way->spares) return;
    back = play->repairs[play->repairs_begin];
    play->spent.waiting += inside(play, back);
    pass_time(play, back);
}

/* Progress falls back to the newest snapshot of the level that answers. */
static void fall_back(struct play *play, bool fast)
{
    double step_s = play->way->fast.work_s;

    settle(&play->slow, play->now);
    settle(&play->fast, play->now);
    if (play->every_step) play->fast.counts = floor(play->progress / step_s + 1e-9) * step_s;
    if (fast) {
        play->progress = play->fast.counts;
        if (play->slow.ready_at < NEVER && play->slow.ready_at - play->way->slow.lag_s > play->now) {
            play->slow.next = play->slow.pending; /* it was still being taken */
            play->slow.ready_at = NEVER;
        }
    } else {
        play->progress = play->slow.counts;
        play->slow.ready_at = NEVER;
        play->slow.next = play->progress + play->way->slow.work_s;
    }
    play->fast.counts = play->progress;
    play->fast.ready_at = NEVER;
    play->fast.next = play->progress + play->way->fast.work_s;
    play->stall_until = play->now;
}

/* One part of a recovery. Returns false where the next failure cuts it short. */
static bool recover_part(struct play *play, double seconds, double *spent)
{
    double until = fmin(play->now + seconds, play->fail_at);

    *spent += inside(play, until);
    pass_time(play, until);
    return until < play->fail_at;
}

static void handle_failure(struct play *play)
{
    const struct ash_goodput_way *way = play->way;
    bool fast = way->has_fast, done = false;

    while (!done && play->runs < play->wanted_runs) {
        const struct ash_goodput_level *level;

        play->failures++;
        if (fast) fast = ash_rng_uniform(play->seed, STREAM_LEVEL, play->draws) < way->cover;
        fall_back(play, fast);
        replace_node(play);
        play->fail_at = play->now + draw_gap(play);
        level = fast ? &way->fast : &way->slow;
        done = recover_part(play, level->detect_s, &play->spent.detect) &&
               recover_part(play, level->restart_s, &play->spent.restart) &&
               recover_part(play, level->load_s, &play->spent.load);
    }
    play->stall_until = play->now;
    settle(&play->slow, play->now); /* a write behind may have ended meanwhile */
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* Share of full speed: background writes take some. */
static double speed(const struct play *play)
{
    double rate = 1;

    if (play->now < play->stall_until) return 0;
    if (play->slow.ready_at < NEVER) rate -= play->way->slow.slowdown;
    if (play->fast.ready_at < NEVER && play->way->has_fast) rate -= play->way->fast.slowdown;
    return rate;
}

static void take_snapshot(struct play *play, struct track *track, const struct ash_goodput_level *level)
{
    if (track->ready_at < NEVER) return; /* the one before is not there yet: this one waits */
    play->stall_until = fmax(play->stall_until, play->now) + level->stall_s;
    track->pending = play->progress;
    track->ready_at = play->stall_until + level->lag_s;
    track->next = play->progress + level->work_s;
    settle(track, play->now);
}

/* When progress will be at `next`, at this speed. */
static double due_at(const struct play *play, const struct track *track, double rate)
{
    if (track->ready_at < NEVER) return NEVER;
    if (play->progress >= track->next - 1e-9) return play->now;
    return rate > 0 ? play->now + (track->next - play->progress) / rate : NEVER;
}

/* A snapshot of level is due, and the next thing that differs (a failure, the end of a run, the other level's turn) is
 * some periods away: what happens until then repeats itself, so let whole periods pass at once. */
static void skip_periods(struct play *play, struct track *track, const struct ash_goodput_level *level,
                         double quiet_until, double other_slowdown)
{
    double slow_rate = 1 - other_slowdown - level->slowdown;
    double rest_s = (level->work_s - slow_rate * level->lag_s) / (1 - other_slowdown);
    double period = level->stall_s + level->lag_s + rest_s, count = floor((quiet_until - play->now) / period) - 1;

    if (rest_s < 0 || !(count >= 1)) return;
    play->progress += count * level->work_s;
    play->spent.stall += count * (period - level->work_s);
    track->counts = play->progress - level->work_s;
    track->next = play->progress;
    pass_time(play, play->now + count * period);
}

/* Until when will nothing but fast snapshots happen? The slow level's next turn comes no earlier than its work allows.
 */
static double quiet_of_fast(const struct play *play)
{
    double until = fmin(play->fail_at, play->run_end);

    if (play->slow.ready_at < NEVER) return fmin(until, play->slow.ready_at);
    return fmin(until, play->now + play->slow.next - play->progress);
}

/* Work until the next event and handle it. */
static void advance(struct play *play)
{
    const struct ash_goodput_way *way = play->way;
    bool events_of_fast = way->has_fast && !play->every_step;
    double rate = speed(play), until = fmin(play->fail_at, play->run_end), fast_due = NEVER, slow_due;

    slow_due = due_at(play, &play->slow, rate);
    if (events_of_fast) fast_due = due_at(play, &play->fast, rate);
    until = fmin(until, fmin(fast_due, slow_due));
    until = fmin(until, fmin(play->slow.ready_at, events_of_fast ? play->fast.ready_at : NEVER));
    if (rate <= 0) until = fmin(until, play->stall_until);
    play->progress += rate * (until - play->now);
    play->spent.stall += (1 - rate) * (until - play->now);
    pass_time(play, until);
    settle(&play->slow, until);
    settle(&play->fast, until);
    if (until == play->fail_at) {
        handle_failure(play);
        return;
    }
    if (until == fast_due) {
        double writing = play->slow.ready_at < NEVER ? way->slow.slowdown : 0;

        if (play->now >= play->stall_until && until != slow_due)
            skip_periods(play, &play->fast, &way->fast, quiet_of_fast(play), writing);
        take_snapshot(play, &play->fast, &way->fast);
    }
    if (until == slow_due) {
        if (!way->has_fast) skip_periods(play, &play->slow, &way->slow, fmin(play->fail_at, play->run_end), 0);
        take_snapshot(play, &play->slow, &way->slow);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* How long the runs are and how many. */
static void lay_out(struct play *play, double run_s, double wanted_failures, double max_events)
{
    const struct ash_goodput_way *way = play->way;
    double events_s = 12 / way->mtbf_s, total_s;

    /* quiet stretches are skipped, but not across the slow level's turns */
    if (way->has_fast) events_s += (play->every_step ? 3 : 7) / way->slow.work_s;
    total_s = fmin(wanted_failures * way->mtbf_s, max_events / events_s);
    play->window_s = fmin(run_s, total_s / RUNS_MIN);
    if (way->spares >= 0 && way->replace_share > 0 && play->window_s < way->repair_s) {
        /* nodes that are away would link shorter runs */
        play->window_s = way->repair_s;
        total_s = fmax(total_s, RUNS_LEAST * way->repair_s);
    }
    play->wanted_runs = (size_t)fmax(RUNS_LEAST, fmin(RUNS_MAX, total_s / play->window_s + 0.5));
}

/* Count from now on. */
static void start_runs(struct play *play)
{
    play->runs = 0;
    play->failures = 0;
    play->spent = (struct ash_goodput_shares){0};
    play->run_began = play->progress;
    play->run_end = play->now + play->window_s;
    play->end = play->now + play->window_s * (double)play->wanted_runs;
}

/* Nobody is away at the beginning: let as many nodes fail as are away later. */
static void warm_up(struct play *play)
{
    size_t runs = play->wanted_runs;
    double window_s = play->window_s;

    if (play->way->spares < 0 || play->way->replace_share <= 0) return;
    play->window_s = 2 * play->way->repair_s;
    play->wanted_runs = 1;
    start_runs(play);
    while (play->runs < play->wanted_runs)
        advance(play);
    play->window_s = window_s;
    play->wanted_runs = runs;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarise(struct play *play, struct ash_goodput_sim *sim)
{
    double mean = 0, spread = 0, count = (double)play->runs, keep = 1 - play->way->overhead;

    for (size_t i = 0; i < play->runs; i++)
        mean += play->gains[i] / count;
    for (size_t i = 0; i < play->runs; i++)
        spread += (play->gains[i] - mean) * (play->gains[i] - mean) / (count - 1);
    qsort(play->gains, play->runs, sizeof(*play->gains), by_value);
    sim->shares = play->spent;
    ash_goodput_scale(&sim->shares, 1 / (play->window_s * count));
    sim->shares.useful = keep * mean;
    sim->shares.overhead = mean - sim->shares.useful;
    sim->shares.redone = 0;
    sim->shares.redone = 1 - mean - sim->shares.stall - sim->shares.detect - sim->shares.restart - sim->shares.load -
                         sim->shares.waiting;
    sim->error = keep * sqrt(spread / count);
    sim->low = keep * play->gains[play->runs / 20];
    sim->high = keep * play->gains[play->runs - 1 - play->runs / 20];
    sim->window_s = play->window_s;
    sim->failures = play->failures;
    sim->runs = play->runs;
}

void ash_goodput_play(const struct ash_goodput_way *way, double run_s, double wanted_failures, double max_events,
                      uint64_t seed, struct ash_goodput_sim *sim_out)
{
    double gains[RUNS_MAX];
    struct play play = {.way = way, .seed = seed, .gains = gains};

    play.every_step = way->has_fast && way->fast.stall_s <= 0 && way->fast.lag_s <= 0;
    play.fast = (struct track){.ready_at = NEVER, .next = way->fast.work_s};
    play.slow = (struct track){.ready_at = NEVER, .next = way->slow.work_s};
    lay_out(&play, run_s, wanted_failures, max_events);
    play.fail_at = draw_gap(&play);
    warm_up(&play);
    start_runs(&play);
    while (play.runs < play.wanted_runs)
        advance(&play);
    *sim_out = (struct ash_goodput_sim){0};
    summarise(&play, sim_out);
}
