/* Shared by the files of `ashlar plan train`. */
#ifndef ASH_CMD_PLAN_TRAIN_PRIV_H
#define ASH_CMD_PLAN_TRAIN_PRIV_H

#include "plan/price.h"
#include "plan/train/search.h"

#define ASH_PLANS_MAX 32

/* Everything that was found out, for both ways to print it. */
struct ash_plan_train_answer {
    struct ash_plan_job job;
    struct ash_search search;
    struct ash_plan plans[ASH_PLANS_MAX];
    struct ash_search_result found; /* count 1 and tried 1 where a layout was given */
    struct ash_what_if what_ifs[ASH_WHAT_IFS_MAX];
    size_t what_if_count;
    struct ash_price price;
    double storage_bytes_s; /* into shared storage, as it was given; 0: it was not */
    double checkpoint_s;    /* seconds of one synchronous checkpoint */
    double checkpoint_every_s;
    double goodput_worst, goodput_best; /* shares of time that failures leave of the best plan; 0: not known */
};

/* Seconds per step that checkpoints add, over all steps. */
double ash_plan_train_checkpoint(const struct ash_plan_train_answer *train, const struct ash_plan_step *step);
/* Print the tables for people. */
void ash_plan_train_print(const struct ash_plan_train_answer *train);
/* Print one JSON object. Returns 0 or a negative errno with the reason in err. */
int ash_plan_train_json(const struct ash_plan_train_answer *train, struct ash_err *err);

#endif
