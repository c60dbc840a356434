/* reference - a frozen model beside the trained one: the log-probabilities that it gives to examples. */
#ifndef ASH_POST_REFERENCE_H
#define ASH_POST_REFERENCE_H

#include "collective/group.h"
#include "train/data/examples.h"
#include "train/job/job.h"

/* logps [ash_examples_count]: the sum of the log-probabilities of each example's targets, as job->sft.train_on and
 * truncate leave them (0 for what is left out). model_dir: the frozen model's folder. They are kept in cache_dir under
 * a hash of model, examples and precision, and read from there the next time. Ranks of group (NULL: alone) share the
 * work; all call it. *was_cached_out: nothing had to be computed. Returns 0 or an error with a sentence. */
int ash_reference_logps(const struct ash_job *job, const char *model_dir, const struct ash_examples *examples,
                        struct ash_packed *packed, const char *cache_dir, struct ash_group *group, double *logps,
                        bool *was_cached_out, struct ash_err *err);

#endif
