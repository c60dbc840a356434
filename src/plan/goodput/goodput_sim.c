/* The two-level machine played event by event: snapshots, their arrival, failures that may strike at any moment,
 * repairs of nodes. It knows nothing of the formula, so that the two can be held against each other. */
#include "plan/goodput/goodput_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define RUNS_MIN 32
#define RUNS_LEAST 8 /* where runs must be long */
#define RUNS_MAX 4096
#define REPAIRS_MAX 4096 /* nodes away at a time; more cannot be: one more than the spares stops the job */
#define FAR_PERIODS 1000 /* quiet ones of both levels, from which on they are counted instead of played */
#define NEVER INFINITY

enum stream { STREAM_GAP = 1, STREAM_LEVEL, STREAM_REPLACE, STREAM_AWAY };

/* Progress is in seconds of work. */
struct track {
    double counts;   /* newest snapshot that a failure falls back to */
    double pending;  /* the one on its way */
    double ready_at; /* when it counts; NEVER: none is on its way */
    double next;     /* progress at which the next is taken */
};

struct play {
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

/* A node breaks at `now`. Returns when the job can go on: at once with a spare, else when the first node is back. */
static double repair_node(struct play *play, double now)
{
    while (play->repairs_count > 0 && play->repairs[play->repairs_begin] <= now) {
        play->repairs_begin = (play->repairs_begin + 1) % REPAIRS_MAX;
        play->repairs_count--;
    }
    play->repairs[(play->repairs_begin + play->repairs_count++) % REPAIRS_MAX] = now + play->way->repair_s;
    return (int64_t)play->repairs_count <= play->way->spares ? now : play->repairs[play->repairs_begin];
}

static bool counts_spares(const struct ash_goodput_way *way)
{
    return way->spares >= 0 && way->replace_share > 0;
}

/* Some failures cost a node. */
static void replace_node(struct play *play)
{
    double back;

    if (!counts_spares(play->way) ||
        ash_rng_uniform(play->seed, STREAM_REPLACE, play->draws) >= play->way->replace_share)
        return;
    back = repair_node(play, play->now);
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
        play->events++;
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

/* The same for both levels together, where the slow one's turns follow each other so closely that playing a quiet
 * stretch would take too long. Copies keep their distance in progress; what two slow-downs at once would take is
 * neglected. Returns whether anything was skipped: then copies that were due are behind. */
static bool skip_far(struct play *play, double quiet_until)
{
    const struct ash_goodput_level *fast = &play->way->fast, *slow = &play->way->slow;
    double fast_pause = fast->stall_s + fast->slowdown * fast->lag_s;
    double slow_pause = slow->stall_s + slow->slowdown * slow->lag_s;
    double period = slow->work_s * (1 + fast_pause / fast->work_s) + slow_pause;
    double stalled = fmax(0, play->stall_until - play->now); /* by a copy that is being taken */
    double count = floor((quiet_until - play->now - stalled) / period) - 1, work = count * slow->work_s, copies, pauses;

    if (!(count >= FAR_PERIODS)) return false;
    copies = fmax(0, floor((play->progress + work - play->fast.next) / fast->work_s) + 1);
    pauses = stalled + count * slow_pause + copies * fast_pause;
    if (play->now + work + pauses > quiet_until) return false;
    play->progress += work;
    play->spent.stall += pauses;
    play->slow.counts = play->progress - slow->work_s;
    play->slow.next = play->progress;
    play->fast.next += copies * fast->work_s;
    play->fast.counts = fmax(play->fast.counts, play->fast.next - fast->work_s);
    play->fast.ready_at = NEVER;
    pass_time(play, play->now + work + pauses);
    return true;
}

/* Work until the next event and handle it. */
static void advance(struct play *play)
{
    const struct ash_goodput_way *way = play->way;
    bool events_of_fast = way->has_fast && !play->every_step;
    double rate = speed(play), until = fmin(play->fail_at, play->run_end), fast_due = NEVER, slow_due;

    play->events++;
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
    if (until == slow_due && events_of_fast && skip_far(play, fmin(play->fail_at, play->run_end))) fast_due = NEVER;
    if (until == fast_due) {
        double writing = play->slow.ready_at < NEVER ? way->slow.slowdown : 0;

        if (play->now >= play->stall_until && until != slow_due)
            skip_periods(play, &play->fast, &way->fast, quiet_of_fast(play), writing);
        take_snapshot(play, &play->fast, &way->fast);
    }
    if (until == slow_due) {
        if (!events_of_fast) skip_periods(play, &play->slow, &way->slow, fmin(play->fail_at, play->run_end), 0);
        take_snapshot(play, &play->slow, &way->slow);
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
static double event_rate(const struct play *play, double run_s)
{
    const struct ash_goodput_way *way = play->way;
    double gap = failure_gap(way), rate = 12 / gap;

    if (way->has_fast && !play->every_step) rate += fmin(7 / way->slow.work_s, 7 * FAR_PERIODS * (1 / gap + 1 / run_s));
    return rate;
}

/* How long the runs are and how many. Nodes that are away link runs that are shorter than a repair: they are made as
 * long, unless that takes too many events. */
static void lay_out(struct play *play, double run_s, double wanted_failures, double max_events)
{
    const struct ash_goodput_way *way = play->way;
    double longest_s = max_events / event_rate(play, run_s),
           total_s = fmin(wanted_failures * failure_gap(way), longest_s);

    play->window_s = fmin(run_s, total_s / RUNS_MIN);
    if (counts_spares(way) && play->window_s < way->repair_s && RUNS_LEAST * way->repair_s <= longest_s) {
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

/* As many nodes are away at the beginning as later: only the failures that cost one are played, for two repairs. */
static void warm_up(struct play *play)
{
    const struct ash_goodput_way *way = play->way;
    double gap = way->mtbf_s / way->replace_share, now = -2 * way->repair_s;

    if (!counts_spares(way)) return;
    for (uint64_t i = 0;; i++) {
        now -= gap * log1p(-ash_rng_uniform(play->seed, STREAM_AWAY, i));
        if (now >= 0) return;
        now = repair_node(play, now);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarise(struct play *play, struct ash_goodput_sim *sim)
{
    double mean = 0, spread = 0, count = (double)play->runs, keep = 1 - play->way->overhead;
    double linked =
        counts_spares(play->way) ? fmax(1, play->way->repair_s / play->window_s) : 1; /* runs that count as one */

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
    sim->error = keep * sqrt(spread / count * linked);
    sim->low = keep * play->gains[play->runs / 20];
    sim->high = keep * play->gains[play->runs - 1 - play->runs / 20];
    sim->window_s = play->window_s;
    sim->failures = play->failures;
    sim->runs = play->runs;
    sim->events = play->events;
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
