/* A pipeline schedule simulated event by event. Each rank works through a fixed list (schedule.c), and a piece of work
 * starts when the rank is free and its input has arrived. */
#include "plan/train/pipeline_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "plan/number.h"

#define PLAYED_PIECES 20000 /* of work; longer pipelines repeat themselves and are continued from a shorter one */
#define PLAYED_ROUNDS 4 /* of as many micro-batches as there are stages: the ramps are over and the rhythm is found */

/* A piece of work and its dependencies, so that simulating it is one comparison and one sum. */
struct task {
    double seconds, wait_s;
    const double *needs; /* the end of another piece, wait_s before this may start; NULL: nothing */
    double *ends;        /* where its own end is noted; NULL: not wanted */
    bool joined;         /* with the next */
};

struct play {
    const struct ash_plan_pipeline *p;
    int each;                     /* micro-batches of a line */
    size_t room;                  /* of a rank, in pieces */
    double *done;                 /* [cell][forward, backward][micro-batch]: when it ended, -1: not yet */
    double *free_s;               /* [stage] */
    int *next;                    /* [stage]: index of its next piece of work */
    int *count;                   /* [stage]: of its pieces */
    struct ash_plan_task *pieces; /* [stage][room] */
    struct task *tasks;           /* of the same */
};

static double *end_of(const struct play *play, int cell, bool backward, int micro)
{
    return &play->done[((size_t)cell * 2 + backward) * (size_t)play->each + (size_t)micro];
}

/* Cells are the stages of all lines, in the order in which a micro-batch passes them. */
static struct task task_of(const struct play *play, int stage, const struct ash_plan_task *piece)
{
    const struct ash_plan_pipeline *p = play->p;
    bool dual = p->schedule == ASH_PLAN_DUALPIPE;
    int depth = !dual ? piece->line * p->stages + stage : piece->line == 0 ? stage : p->stages - 1 - stage;
    int cell = dual ? piece->line * p->stages + depth : depth;
    bool last = depth == p->stages * p->chunks - 1;
    struct task task = {.joined = piece->joined};

    switch (piece->kind) {
    case ASH_PLAN_TASK_FORWARD:
        task.seconds = p->forward_s[depth];
        task.needs = depth > 0 ? end_of(play, cell - 1, false, piece->micro) : NULL;
        break;
    case ASH_PLAN_TASK_WEIGHT:
        task.seconds = p->weight_s[depth];
        return task; /* its rank has done the rest before */
    case ASH_PLAN_TASK_INPUT:
        task.seconds = -p->weight_s[depth]; /* fall through */
    case ASH_PLAN_TASK_BACKWARD:
        task.seconds += p->backward_s[depth];
        task.needs = last ? end_of(play, cell, false, piece->micro) : end_of(play, cell + 1, true, piece->micro);
        break;
    }
    task.wait_s = piece->kind == ASH_PLAN_TASK_FORWARD || !last ? p->p2p_s : 0;
    task.ends = end_of(play, cell, piece->kind != ASH_PLAN_TASK_FORWARD, piece->micro);
    return task;
}

/* Do a rank's next piece, or the pair that it begins, where its inputs are there. */
static bool step(struct play *play, int stage, struct ash_plan_pipeline_event *events_out)
{
    size_t first = (size_t)stage * play->room + (size_t)play->next[stage];
    const struct task *tasks = &play->tasks[first];
    int count = tasks[0].joined ? 2 : 1;
    double at = play->free_s[stage], longest = 0, sum = 0, end;

    for (int i = 0; i < count; i++) {
        double arrived = tasks[i].needs != NULL ? *tasks[i].needs : 0;

        if (arrived < 0) return false;
        if (tasks[i].needs != NULL) at = ash_larger(at, arrived + tasks[i].wait_s);
        sum += tasks[i].seconds;
        longest = ash_larger(longest, tasks[i].seconds);
    }
    end = at + (count > 1 ? ash_larger(longest, sum - play->p->saved_s) : sum);
    for (int i = 0; i < count; i++) {
        const struct ash_plan_task *piece = &play->pieces[first + (size_t)i];

        if (tasks[i].ends != NULL) *tasks[i].ends = end;
        if (events_out != NULL)
            events_out[first + (size_t)i] =
                (struct ash_plan_pipeline_event){stage, piece->line, piece->micro, piece->kind, count > 1, at, end};
    }
    play->next[stage] += count;
    play->free_s[stage] = end;
    return true;
}

/* Do as much as can be done on one rank now; true when anything was. */
static bool advance(struct play *play, int stage, struct ash_plan_pipeline_event *events_out)
{
    bool moved = false;

    while (play->next[stage] < play->count[stage] && step(play, stage, events_out))
        moved = true;
    return moved;
}

static double last_end(const struct play *play)
{
    double end = 0;

    for (int stage = 0; stage < play->p->stages; stage++)
        end = ash_larger(end, play->free_s[stage]);
    return end;
}

static void close_play(struct play *play)
{
    free(play->done);
    free(play->free_s);
    free(play->next);
    free(play->pieces);
    free(play->tasks);
}

/* List and link the pieces of all ranks. */
static void set_tasks(struct play *play)
{
    for (int stage = 0; stage < play->p->stages; stage++) {
        size_t first = (size_t)stage * play->room;

        play->count[stage] = ash_plan_pipeline_order(play->p, stage, &play->pieces[first]);
        for (int i = 0; i < play->count[stage]; i++)
            play->tasks[first + (size_t)i] = task_of(play, stage, &play->pieces[first + (size_t)i]);
    }
}

static int open_play(const struct ash_plan_pipeline *pipeline, struct play *play)
{
    size_t stages = (size_t)pipeline->stages, ends;
    bool dual = pipeline->schedule == ASH_PLAN_DUALPIPE;

    *play = (struct play){.p = pipeline, .each = pipeline->micro_batches / (dual ? 2 : 1)};
    play->room = ash_plan_pipeline_events(pipeline);
    ends = 2 * stages * (size_t)pipeline->chunks * (size_t)pipeline->micro_batches;
    play->done = malloc(ends * sizeof(*play->done));
    play->free_s = calloc(stages, sizeof(*play->free_s));
    play->next = calloc(2 * stages, sizeof(*play->next));
    play->pieces = malloc(stages * play->room * sizeof(*play->pieces));
    play->tasks = malloc(stages * play->room * sizeof(*play->tasks));
    if (play->done == NULL || play->free_s == NULL || play->next == NULL || play->pieces == NULL || play->tasks == NULL)
        return -ENOMEM;
    play->count = play->next + stages;
    for (size_t i = 0; i < ends; i++)
        play->done[i] = -1;
    set_tasks(play);
    return 0;
}

/* Every piece of work, in the order in which it can be done. */
static double play_all(const struct ash_plan_pipeline *pipeline, struct ash_plan_pipeline_event *events_out)
{
    struct play play;
    bool moved = true;
    double end = open_play(pipeline, &play);

    while (moved && end >= 0) {
        moved = false;
        for (int stage = 0; stage < pipeline->stages; stage++)
            if (advance(&play, stage, events_out)) moved = true;
    }
    if (end >= 0) end = last_end(&play);
    close_play(&play);
    return end;
}

/* After its ramps a pipeline takes the same time for every further round of micro-batches: simulate two lengths and
 * extrapolate at the rate of their difference. */
static double play_and_continue(const struct ash_plan_pipeline *pipeline)
{
    struct ash_plan_pipeline some = *pipeline, more;
    int left = pipeline->micro_batches % pipeline->stages;
    double short_s, long_s, rounds;

    some.micro_batches = PLAYED_ROUNDS * pipeline->stages + left;
    more = some;
    more.micro_batches += pipeline->stages;
    short_s = play_all(&some, NULL);
    long_s = play_all(&more, NULL);
    if (short_s < 0 || long_s < 0) return -ENOMEM;
    rounds = (double)(pipeline->micro_batches - more.micro_batches) / pipeline->stages;
    return long_s + rounds * (long_s - short_s);
}

double ash_plan_pipeline_run(const struct ash_plan_pipeline *pipeline, struct ash_plan_pipeline_event *events_out)
{
    double pieces;

    if (ash_plan_pipeline_refuses(pipeline->schedule, pipeline->stages, pipeline->chunks, pipeline->micro_batches) !=
        NULL)
        return -EINVAL;
    pieces = (double)pipeline->stages * (double)ash_plan_pipeline_events(pipeline);
    if (events_out != NULL || pieces <= PLAYED_PIECES ||
        pipeline->micro_batches / pipeline->stages <= PLAYED_ROUNDS + 1)
        return play_all(pipeline, events_out);
    return play_and_continue(pipeline);
}

/* ---- by formula -------------------------------------------------------------------------------------------------- */

int ash_plan_pipeline_pairs(const struct ash_plan_pipeline *pipeline)
{
    if (pipeline->schedule != ASH_PLAN_DUALPIPE) return 0;
    return pipeline->micro_batches - 3 * pipeline->stages / 2 + 1;
}

/* Seconds of all stages: forward, backward and of that gradients of weights, and those of the busiest rank. */
struct work {
    double forward, backward, weight, busiest;
};

static struct work work_of(const struct ash_plan_pipeline *p)
{
    struct work work = {0};

    for (int stage = 0; stage < p->stages; stage++) {
        double one = 0;

        for (int v = stage; v < p->stages * p->chunks; v += p->stages) {
            work.forward += p->forward_s[v];
            work.backward += p->backward_s[v];
            if (p->weight_s != NULL) work.weight += p->weight_s[v];
            one += p->forward_s[v] + p->backward_s[v];
        }
        if (p->schedule == ASH_PLAN_DUALPIPE) { /* half of each of two stages */
            int other = p->stages - 1 - stage;
            one = (one + p->forward_s[other] + p->backward_s[other]) / 2;
        }
        work.busiest = fmax(work.busiest, one);
    }
    return work;
}

double ash_plan_pipeline_estimate(const struct ash_plan_pipeline *p)
{
    struct work work = work_of(p);
    double each = 1.0 / p->stages / p->chunks, forward = work.forward * each, backward = work.backward * each;
    double weight = work.weight * each, busy = work.busiest * p->micro_batches, hops = 2 * p->p2p_s;

    if (p->schedule == ASH_PLAN_ZB_H1) backward = fmax(-forward, backward - 2 * weight);
    if (p->schedule != ASH_PLAN_DUALPIPE) return busy + (p->stages - 1) * (forward + backward + hops);
    return busy - ash_plan_pipeline_pairs(p) * p->saved_s + (p->stages - 1) * hops +
           (p->stages / 2.0 - 1) * fmax(0, forward + 2 * backward - p->saved_s - 3 * weight);
}

double ash_plan_pipeline_least(const struct ash_plan_pipeline *p)
{
    bool split = p->schedule == ASH_PLAN_ZB_H1;
    double ramp = 0, least = 0;

    if (p->schedule == ASH_PLAN_DUALPIPE)
        return work_of(p).busiest * p->micro_batches - p->micro_batches * p->saved_s; /* at best all are pairs */
    for (int stage = 0; stage < p->stages; stage++) {
        double one = 0;

        for (int v = stage; v < p->stages * p->chunks; v += p->stages)
            one += p->forward_s[v] + p->backward_s[v];
        least = ash_larger(least, ramp + one * p->micro_batches);
        /* where gradients of weights can wait, a rank may end after the backward passes of those before it */
        ramp += p->forward_s[stage] + p->p2p_s + (split ? 0 : p->backward_s[stage] + p->p2p_s);
    }
    return least;
}
