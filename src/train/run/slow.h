/* slow - is this rank slower than its peers, and for how long? Every rank has its own work of a step (waits subtracted)
 * and the sum of all, and decides for itself. Only a lasting difference counts. One owner thread. */
#ifndef ASH_TRAIN_RUN_SLOW_H
#define ASH_TRAIN_RUN_SLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_SLOW_STEPS 5 /* one after the other, until a rank is named */

/* Zero-initialise for each epoch. */
struct ash_slow_watch {
    double usual;       /* this rank's work as a multiple of its peers', where stages are uneven */
    size_t steps;       /* seen */
    size_t slow_steps;  /* the last ones, one after the other, that were slow */
    double times, mean; /* of those: the last one's multiple; their mean */
};

/* A rank's work with `own` of a step's grains, as if all ranks had equally many: where they do not come out even, some
 * have one more. own 0: not known, own_s as it is. */
double ash_slow_even(double own_s, size_t own, size_t grains, size_t ranks);
/* A step is done: own_s seconds of this rank's work, sum_s of all `ranks`. is_uneven: ranks have different work (stages
 * of a pipeline), so the first steps are the baseline. Returns whether this rank is to be named now: after
 * ASH_SLOW_STEPS slow steps, and again after each 100 more. */
bool ash_slow_watch_add(struct ash_slow_watch *watch, double own_s, double sum_s, size_t ranks, bool is_uneven);

#endif
