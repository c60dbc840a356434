/* A pipeline schedule played event by event. Each rank works through a fixed list (warm-up forwards, then one forward
 * and one backward in turn, then the remaining backwards; with chunks in Megatron's interleaved order), and a piece of
 * work starts when the rank is free and what it needs has arrived. */
#include "plan/train/pipeline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define PLAYED_PIECES 20000 /* of work; longer pipelines repeat themselves and are continued from a shorter one */
#define PLAYED_ROUNDS 4 /* of as many micro-batches as there are stages: the ramps are over and the rhythm is found */

struct play {
    const struct ash_pipeline *p;
    double *done[2]; /* [backward][virtual stage * micro_batches + micro batch]: when it ended, -1: not yet */
    double *free_s;  /* [stage] */
    int *next;       /* [stage]: index of its next piece of work */
};

static int virtual_stages(const struct ash_pipeline *p)
{
    return p->stages * p->chunks;
}

/* Forwards that a rank does before its first backward. */
static int warm_up(const struct ash_pipeline *p, int stage)
{
    int total = p->chunks * p->micro_batches, count;

    count = p->chunks == 1 ? p->stages - stage - 1 : (p->stages - stage - 1) * 2 + (p->chunks - 1) * p->stages;
    return count < total ? count : total;
}

/* The index-th forward (or backward) of any rank: chunk by chunk in groups of `stages` micro-batches. */
static void nth(const struct ash_pipeline *p, int index, bool backward, int *chunk_out, int *micro_out)
{
    int group = index / (p->stages * p->chunks), first = group * p->stages;
    int width = p->micro_batches - first < p->stages ? p->micro_batches - first : p->stages;
    int within = index - first * p->chunks;

    *chunk_out = within / width;
    *micro_out = first + within % width;
    if (backward) *chunk_out = p->chunks - 1 - *chunk_out;
}

/* What is the index-th piece of work of a stage? */
static void work_at(const struct ash_pipeline *p, int stage, int index, bool *backward_out, int *chunk_out,
                    int *micro_out)
{
    int total = p->chunks * p->micro_batches, warm = warm_up(p, stage), steady = 2 * (total - warm);
    int order;

    if (index < warm) {
        *backward_out = false;
        order = index;
    } else if (index < warm + steady) {
        *backward_out = (index - warm) % 2 == 1;
        order = *backward_out ? (index - warm) / 2 : warm + (index - warm) / 2;
    } else {
        *backward_out = true;
        order = (total - warm) + index - warm - steady;
    }
    nth(p, order, *backward_out, chunk_out, micro_out);
}

/* When the input of a piece of work is there, or -1. */
static double ready(const struct play *play, int stage, bool backward, int chunk, int micro)
{
    const struct ash_pipeline *p = play->p;
    int v = chunk * p->stages + stage, last = virtual_stages(p) - 1;
    double before;

    if (!backward) {
        if (v == 0) return 0;
        before = play->done[0][(v - 1) * p->micro_batches + micro];
        return before < 0 ? -1 : before + p->p2p_s;
    }
    if (play->done[0][v * p->micro_batches + micro] < 0) return -1;
    if (v == last) return play->done[0][v * p->micro_batches + micro];
    before = play->done[1][(v + 1) * p->micro_batches + micro];
    return before < 0 ? -1 : before + p->p2p_s;
}

/* Do as much as can be done on one rank now; true when anything was. */
static bool advance(struct play *play, int stage, struct ash_pipeline_event *events_out)
{
    const struct ash_pipeline *p = play->p;
    int total = 2 * p->chunks * p->micro_batches;
    bool moved = false;

    while (play->next[stage] < total) {
        bool backward;
        int chunk, micro, v;
        double at, end;

        work_at(p, stage, play->next[stage], &backward, &chunk, &micro);
        at = ready(play, stage, backward, chunk, micro);
        if (at < 0) break;
        v = chunk * p->stages + stage;
        if (at < play->free_s[stage]) at = play->free_s[stage];
        end = at + (backward ? p->backward_s[v] : p->forward_s[v]);
        play->done[backward ? 1 : 0][v * p->micro_batches + micro] = end;
        play->free_s[stage] = end;
        if (events_out != NULL)
            events_out[stage * total + play->next[stage]] =
                (struct ash_pipeline_event){stage, chunk, micro, backward, at, end};
        play->next[stage]++;
        moved = true;
    }
    return moved;
}

static double last_end(const struct play *play)
{
    double end = 0;

    for (int stage = 0; stage < play->p->stages; stage++)
        if (play->free_s[stage] > end) end = play->free_s[stage];
    return end;
}

/* Every piece of work, in the order in which it can be done. */
static double play_all(const struct ash_pipeline *pipeline, struct ash_pipeline_event *events_out)
{
    struct play play = {.p = pipeline};
    size_t cells;
    bool moved = true;
    double end = -ENOMEM;

    cells = (size_t)virtual_stages(pipeline) * (size_t)pipeline->micro_batches;
    play.done[0] = malloc(2 * cells * sizeof(double));
    play.free_s = calloc((size_t)pipeline->stages, sizeof(double));
    play.next = calloc((size_t)pipeline->stages, sizeof(int));
    if (play.done[0] != NULL && play.free_s != NULL && play.next != NULL) {
        play.done[1] = play.done[0] + cells;
        for (size_t i = 0; i < 2 * cells; i++)
            play.done[0][i] = -1;
        while (moved) {
            moved = false;
            for (int stage = 0; stage < pipeline->stages; stage++)
                if (advance(&play, stage, events_out)) moved = true;
        }
        end = last_end(&play);
    }
    free(play.done[0]);
    free(play.free_s);
    free(play.next);
    return end;
}

/* After its ramps a pipeline takes the same time for every further round of micro-batches: play two lengths and go on
 * at the rate of their difference. */
static double play_and_continue(const struct ash_pipeline *pipeline)
{
    struct ash_pipeline some = *pipeline, more;
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

double ash_pipeline_run(const struct ash_pipeline *pipeline, struct ash_pipeline_event *events_out)
{
    double pieces;

    if (pipeline->stages < 1 || pipeline->chunks < 1 || pipeline->micro_batches < 1) return -EINVAL;
    pieces = 2.0 * pipeline->stages * pipeline->chunks * pipeline->micro_batches;
    if (events_out != NULL || pieces <= PLAYED_PIECES ||
        pipeline->micro_batches / pipeline->stages <= PLAYED_ROUNDS + 1)
        return play_all(pipeline, events_out);
    return play_and_continue(pipeline);
}
