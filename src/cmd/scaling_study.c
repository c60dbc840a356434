/* scaling_study: the runs of a table, the law that fits them, and how sure it is. */
#include "cmd/scaling_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "plan/validate/csv.h"

#define STREAM_RESIDUALS 2
#define FIELD(name) offsetof(struct ash_scaling_flags, name)

const struct ash_opt ash_scaling_opts[] = {
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
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};
const size_t ash_scaling_opt_count = ASH_COUNT(ash_scaling_opts);

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
static void choose_runs(struct ash_scaling_study *study, const struct ash_scaling_flags *flags)
{
    size_t kept = 0;

    qsort(study->runs, study->count, sizeof(*study->runs), compare_losses);
    study->dropped = (size_t)flags->drop_highest < study->count ? (size_t)flags->drop_highest : study->count;
    study->count -= study->dropped;
    for (size_t i = 0; flags->below_params > 0 && i < study->count; i++) {
        struct ash_scaling_run run = study->runs[i];

        if (run.params >= flags->below_params) continue;
        memmove(&study->runs[kept + 1], &study->runs[kept], (i - kept) * sizeof(run));
        study->runs[kept++] = run;
    }
    if (flags->below_params > 0) {
        study->left_out = study->count - kept;
        study->count = kept;
    }
}

int ash_scaling_study_init(struct ash_scaling_study *study, const struct ash_scaling_flags *flags, const char *path,
                           struct ash_err *err)
{
    struct ash_scaling_opts opts = {.is_tied = flags->tied, .huber = flags->huber, .seed = (uint64_t)flags->seed};
    int rc = read_runs(study, path, err);

    if (rc < 0) return rc;
    choose_runs(study, flags);
    rc = ash_scaling_fit(study->runs, study->count, &opts, &study->fit, err);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", path);
    study->law_count = (size_t)flags->bootstrap;
    study->laws = calloc(study->law_count, sizeof(*study->laws));
    if (study->laws == NULL ||
        ash_scaling_bootstrap(study->runs, study->count, &opts, &study->fit, study->laws, study->law_count) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a bootstrap");
    return 0;
}

void ash_scaling_study_fini(struct ash_scaling_study *study)
{
    free(study->runs);
    free(study->laws);
    *study = (struct ash_scaling_study){0};
}

int ash_scaling_study_interval(const struct ash_scaling_study *study, const struct ash_scaling_flags *flags,
                               double params, double tokens, struct ash_scaling_interval *interval_out)
{
    double *losses = calloc(study->law_count, sizeof(*losses));

    if (losses == NULL) return -ENOMEM;
    for (size_t i = 0; i < study->law_count; i++) {
        const struct ash_scaling_run *run =
            &study->runs[ash_rng_below((uint64_t)flags->seed, STREAM_RESIDUALS, i, study->count)];
        double residual = run->loss / ash_scaling_loss(&study->fit.law, run->params, run->tokens);

        losses[i] = residual * ash_scaling_loss(&study->laws[i], params, tokens);
    }
    *interval_out = ash_scaling_middle(losses, study->law_count, flags->share);
    free(losses);
    return 0;
}
