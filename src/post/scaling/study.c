/* study: the runs of a table, the law that fits them, and how sure it is. */
#include "post/scaling/study.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/csv.h"
#include "base/rng.h"

#define STREAM_RESIDUALS 2
#define FIELD(name) offsetof(struct ash_scaling_study_opts, name)

const struct ash_opt ash_scaling_study_settings[] = {
    {"tied", ASH_OPT_BOOL, FIELD(tied), "false", "one exponent for parameters and tokens: best for few or small runs",
     0, 0, NULL},
    {"below_params", ASH_OPT_DOUBLE, FIELD(below_params), "0",
     "fit only runs with fewer parameters, and compare the others; 0: all", 0, 1e18, NULL},
    {"drop_highest", ASH_OPT_INT, FIELD(drop_highest), "0", "leave out this many runs, those with the highest losses",
     0, 1e9, NULL},
    {"huber", ASH_OPT_DOUBLE, FIELD(huber), "1e-3", "residuals of ln loss beyond it count linearly", 1e-12, 1e3, NULL},
    {"bootstrap", ASH_OPT_INT, FIELD(bootstrap), "400", "fits of resampled runs, for intervals", 20, 100000, NULL},
    {"share", ASH_OPT_DOUBLE, FIELD(share), "0.95", "of the bootstrap that an interval covers", 0.5, 0.999, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "of the bootstrap", 0, 1e18, NULL},
};
const size_t ash_scaling_study_setting_count = ASH_COUNT(ash_scaling_study_settings);

static int compare_losses(const void *a, const void *b)
{
    const struct ash_scaling_run *x = a, *y = b;

    return x->loss < y->loss ? -1 : x->loss > y->loss;
}

static int read_runs(struct ash_scaling_study *study, const char *path, struct ash_err *err)
{
    struct ash_csv *csv = NULL;
    int rc = ash_csv_load(path, &csv, err);

    if (rc < 0) return rc;
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        static const char *const columns[] = {"params", "tokens", "loss"};

        if (!ash_csv_has(csv, columns[i]))
            rc = ash_err_set(err, -EINVAL, "%s has no column '%s': params, tokens and loss are needed", path,
                             columns[i]);
    }
    if (rc == 0) study->runs = calloc(ash_csv_rows(csv) + 1, sizeof(*study->runs));
    if (rc == 0 && study->runs == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for %s", path);
    for (size_t i = 0; rc == 0 && i < ash_csv_rows(csv); i++) {
        struct ash_scaling_run *run = &study->runs[study->count++];

        run->params = ash_csv_number(csv, i, "params", NAN);
        run->tokens = ash_csv_number(csv, i, "tokens", NAN);
        run->loss = ash_csv_number(csv, i, "loss", NAN);
        if (!(run->params >= 1 && run->tokens >= 1 && run->loss > 0))
            rc =
                ash_err_set(err, -EINVAL, "%s, run %zu: params, tokens and loss must be positive numbers", path, i + 1);
    }
    ash_csv_close(csv);
    return rc;
}

/* Runs that are fitted first, by loss; then those that are too large. */
static void choose_runs(struct ash_scaling_study *study, const struct ash_scaling_study_opts *opts)
{
    size_t kept = 0;

    qsort(study->runs, study->count, sizeof(*study->runs), compare_losses);
    study->dropped = (size_t)opts->drop_highest < study->count ? (size_t)opts->drop_highest : study->count;
    study->count -= study->dropped;
    for (size_t i = 0; opts->below_params > 0 && i < study->count; i++) {
        struct ash_scaling_run run = study->runs[i];

        if (run.params >= opts->below_params) continue;
        memmove(&study->runs[kept + 1], &study->runs[kept], (i - kept) * sizeof(run));
        study->runs[kept++] = run;
    }
    if (opts->below_params > 0) {
        study->left_out = study->count - kept;
        study->count = kept;
    }
}

int ash_scaling_study_init(struct ash_scaling_study *study, const struct ash_scaling_study_opts *opts, const char *path,
                           struct ash_err *err)
{
    struct ash_scaling_opts fit = {.is_tied = opts->tied, .huber = opts->huber, .seed = (uint64_t)opts->seed};
    int rc = read_runs(study, path, err);

    if (rc < 0) return rc;
    choose_runs(study, opts);
    rc = ash_scaling_fit(study->runs, study->count, &fit, &study->fit, err);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", path);
    study->law_count = (size_t)opts->bootstrap;
    study->laws = calloc(study->law_count, sizeof(*study->laws));
    if (study->laws == NULL ||
        ash_scaling_bootstrap(study->runs, study->count, &fit, &study->fit, study->laws, study->law_count) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a bootstrap");
    return 0;
}

void ash_scaling_study_fini(struct ash_scaling_study *study)
{
    free(study->runs);
    free(study->laws);
    *study = (struct ash_scaling_study){0};
}

int ash_scaling_study_interval(const struct ash_scaling_study *study, const struct ash_scaling_study_opts *opts,
                               double params, double tokens, struct ash_scaling_interval *interval_out)
{
    double *losses = calloc(study->law_count, sizeof(*losses));

    if (losses == NULL) return -ENOMEM;
    for (size_t i = 0; i < study->law_count; i++) {
        const struct ash_scaling_run *run =
            &study->runs[ash_rng_below((uint64_t)opts->seed, STREAM_RESIDUALS, i, study->count)];
        double residual = run->loss / ash_scaling_loss(&study->fit.law, run->params, run->tokens);

        losses[i] = residual * ash_scaling_loss(&study->laws[i], params, tokens);
    }
    *interval_out = ash_scaling_middle(losses, study->law_count, opts->share);
    free(losses);
    return 0;
}
