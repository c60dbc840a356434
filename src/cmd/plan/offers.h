/* offers - a training job on every kind of machine: its flags, the search, the table. For `ashlar plan
 * machines` and `ashlar plan scaling`. */
#ifndef ASH_CMD_PLAN_OFFERS_H
#define ASH_CMD_PLAN_OFFERS_H

#include "base/json.h"
#include "cmd/plan/plan_priv.h"
#include "plan/train/compare.h"

#define ASH_PLAN_OFFERS_MAX 256

/* The settings of ash_plan_offers_table. */
struct ash_plan_offers_flags {
    struct ash_opt_list machines;
    double days;
    int64_t gpus, global_batch, seq;
    int precision;
    bool unpriced;
};
extern const struct ash_opt_table ash_plan_offers_table;

/* What each machine would take. Large: one to a process. */
struct ash_plan_offers {
    const struct ash_consts *consts;
    struct ash_compare_job job;
    const struct ash_machine *machines[ASH_PLAN_OFFERS_MAX];
    struct ash_compare_row rows[ASH_PLAN_OFFERS_MAX]; /* the best first */
    size_t count;
};

/* Neither or both of --gpus and --days: print an error and return the exit code; else 0. */
int ash_plan_offers_misused(const char *command, const struct ash_plan_offers_flags *flags);
/* Search the job of shape and tokens on all machines that flags name. Returns 0, or an error with a sentence: an
 * unknown machine, no threads. Offers may be used again. */
int ash_plan_offers_find(const struct ash_plan_offers_flags *flags, const struct ash_plan_facts *facts,
                         const struct ash_shape *shape, double tokens, struct ash_plan_offers *offers,
                         struct ash_err *err);
/* The job and a row for each machine. */
void ash_plan_offers_print(const struct ash_plan_offers *offers);
/* An array with an object for each machine; the caller owns it. NULL without memory. */
json_t *ash_plan_offers_encode(const struct ash_plan_offers *offers);

#endif
