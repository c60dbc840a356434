/* jobs usage - hours and dollars of jobs by team, user or job, from what accounting tells and what runs wrote into
 * their ledgers. */
#ifndef ASH_CMD_JOBS_USAGE_H
#define ASH_CMD_JOBS_USAGE_H

#include <stddef.h>
#include <stdint.h>
#include "orchestrate/job/usage.h"
#include "train/run/bill.h"

enum ash_usage_by { ASH_USAGE_BY_TEAM, ASH_USAGE_BY_USER, ASH_USAGE_BY_JOB };

#define ASH_USAGE_KINDS (ASH_BILL_KINDS + 1)
#define ASH_USAGE_UNKNOWN ASH_BILL_KINDS /* a job without a ledger that this machine sees */

/* Hours of nodes, their GPUs, and cents. Parts add up to the total, and groups to all. */
struct ash_usage_sum {
    const char *key, *name, *user, *team; /* borrowed from the list; "": all, or several */
    size_t jobs;
    double node_hours[ASH_USAGE_KINDS], gpu_hours[ASH_USAGE_KINDS];
    int64_t cents[ASH_USAGE_KINDS];
    double all_node_hours, all_gpu_hours;
    int64_t all_cents;
    size_t unpriced; /* entries without a price */
};

struct ash_usage_rates {
    double usd_gpu;  /* dollars an hour of a GPU; 0: by usd_node */
    double usd_node; /* ... of a node; 0: as jobs themselves say */
};

/* Sort the list, read ledgers, and sum up in groups, those with most hours first. The caller frees *sums_out; total_out
 * is of all. Returns 0 or -ENOMEM. */
int ash_usage_sum_up(struct ash_usage_list *list, enum ash_usage_by by, const struct ash_usage_rates *rates,
                     struct ash_usage_sum **sums_out, size_t *count_out, struct ash_usage_sum *total_out);
/* "productive" and so on; "unknown". */
const char *ash_usage_kind_name(size_t kind);

#endif
