/* study - the runs of a table, the law that fits them, and intervals of what it predicts. */
#ifndef ASH_POST_SCALING_STUDY_H
#define ASH_POST_SCALING_STUDY_H

#include "base/opts.h"
#include "post/scaling/law.h"

struct ash_scaling_study_opts {
    bool tied;
    double huber, below_params, share;
    int64_t drop_highest, bootstrap, seed;
};
extern const struct ash_opt ash_scaling_study_settings[]; /* of ash_scaling_study_opts */
extern const size_t ash_scaling_study_setting_count;

/* A fit of a file's runs. Zero-initialise, free with ash_scaling_study_fini. */
struct ash_scaling_study {
    struct ash_scaling_run *runs; /* those that were fitted come first */
    size_t count, left_out;       /* left_out ones follow: too large (--below-params) */
    size_t dropped;               /* not among them: the highest losses (--drop-highest) */
    struct ash_scaling_fitted fit;
    struct ash_scaling_law *laws; /* [law_count]: the bootstrap's */
    size_t law_count;
};
/* Read, fit, bootstrap. Returns 0 or an error with a sentence. */
int ash_scaling_study_init(struct ash_scaling_study *study, const struct ash_scaling_study_opts *opts, const char *path,
                           struct ash_err *err);
/* Free the members; also half-built ones. */
void ash_scaling_study_fini(struct ash_scaling_study *study);
/* Where opts->share of the predictions for a run lie: laws of the bootstrap, each with a residual of the fit.
 * Returns 0 or -ENOMEM. */
int ash_scaling_study_interval(const struct ash_scaling_study *study, const struct ash_scaling_study_opts *opts,
                               double params, double tokens, struct ash_scaling_interval *interval_out);

#endif
