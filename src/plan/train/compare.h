/* compare - the same training job on different machines: how many, how long, for how much. For who decides what to
 * rent or buy. */
#ifndef ASH_PLAN_COMPARE_H
#define ASH_PLAN_COMPARE_H

#include "plan/train/search.h"

struct ash_compare_job {
    struct ash_plan_job job; /* its cluster is filled in, and its batch rounded where machines do not divide it */
    struct ash_search search;
    double gpus; /* that each offer has at least, in whole machines; 0: what `days` asks for */
    double days; /* to be done in */
};

/* One kind of machine. */
struct ash_compare_row {
    struct ash_plan_job job; /* with the cluster and the batch that were taken */
    struct ash_plan plan;    /* the fastest; nothing where !found */
    bool found;
    char reason[ASH_ERR_TEXT_BYTES]; /* why not, where !found */
    double days;
    double usd_hour;     /* of all machines; 0: no price is known */
    bool reserved_price; /* it is a capacity block's */
    double usd, watts;   /* of the whole run (0: unknown); of all GPUs at their limit (0: unknown) */
};

/* The best plan on machines of this kind: with gpus, or the fewest machines (doubled until they do) that need no more
 * than days. job->job.tokens must be set. Never fails: what cannot be says so in reason. */
void ash_compare(const struct ash_consts *consts, const struct ash_compare_job *job, const struct ash_machine *machine,
                 struct ash_compare_row *row_out);
/* For qsort: those that were found first, cheaper ones first, those without a price last by days. */
int ash_compare_by_worth(const void *a, const void *b);

#endif
