/* What the files of search share: the state of one search, and its enumeration. */
#ifndef ASH_PLAN_SEARCH_PRIV_H
#define ASH_PLAN_SEARCH_PRIV_H

#include "plan/train/search.h"

#define ASH_CANDIDATES_MAX 48 /* that are simulated in the end */

struct ash_search_state {
    const struct ash_consts *consts;
    const struct ash_plan_job *job;
    const struct ash_search *search;
    struct ash_plan_layer_memo *memo;
    struct ash_plan best[ASH_CANDIDATES_MAX]; /* descending */
    size_t best_count, best_max;
    struct ash_search_result result;
    double floor_tokens_s; /* plans that are not faster are of no use */
    double stretch;        /* of what a step does: the wait for the slowest machine */
    double gathers_s;      /* of one micro-batch of this cut */
    bool offload;
    bool only_count; /* memory is asked, time is not */
    bool full;       /* the leanest plain pipeline of this cut did not fit: what needs more is only counted */
    bool skipped;    /* layouts were skipped, because nothing of them could be kept */
};

/* Predict every layout of state->job that may be among the best and keep those: without offload and, where nothing fits
 * so or optimizer state is heavy, with it. Adds to state->result. */
void ash_search_enumerate(struct ash_search_state *state);

#endif
