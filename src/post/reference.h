/* reference - a frozen model next to the trained one: the log-probabilities that it gives to examples. */
#ifndef ASH_POST_REFERENCE_H
#define ASH_POST_REFERENCE_H

#include "collective/group.h"
#include "train/data/examples.h"
#include "train/job/job.h"

struct ash_lora;

/* Where an example lies in a sequence. */
struct ash_reference_part {
    size_t example, row, count;
};

/* Options of the frozen model; all borrowed. */
struct ash_reference_opts {
    const struct ash_job *job;
    const char *model_dir;                 /* the frozen model */
    const struct ash_lora *lora;           /* it is the base of these adapters, held as they hold it; NULL: it is not */
    const struct ash_train_source *source; /* sequences of examples: those of step 0, with as many slots */
    /* The parts of a sequence, of which there are data.seq at most; returns how many. */
    size_t (*list)(void *ctx, uint64_t slot, struct ash_reference_part *parts);
    void *ctx;
    size_t count;            /* examples */
    uint64_t hash;           /* of the examples */
    const char *cache_dir;   /* results are kept here, under a hash of model, examples and arithmetic */
    struct ash_group *group; /* ranks that share the work; NULL: alone */
};
/* logps [count]: the sum of the log-probabilities of each example's targets, as job->sft.train_on and
 * truncate leave them (0 for examples left out). Read from cache_dir if they are there. All ranks of the group call
 * it. *was_cached_out: nothing had to be computed. Returns 0 or an error with a sentence. */
int ash_reference_logps(const struct ash_reference_opts *opts, double *logps, bool *was_cached_out,
                        struct ash_err *err);

#endif
