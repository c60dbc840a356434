/* Drawn jobs: sizes in powers of two whose tail is set by the mean, log-normal run times from mean and median, and time
 * limits as people write them. Figures of the clusters: Acme's cluster_summary.csv (CC BY 4.0). */
#include "queue/replay/trace_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"

#define TEAMS 16
#define TEAM_USERS 12
#define SIZES_MAX 16

static const struct ash_trace_model models[] = {
    {"acme", 1414, 122, 5.7, 0.62, 1024},   /* Seren, 2,288 A100 */
    {"helios", 6652, 206, 3.7, 0.66, 2048}, /* four clusters of SenseTime */
    {"philly", 18006, 874, 1.9, 0.93, 128}, /* Microsoft, 2017 */
};

const struct ash_trace_model *ash_trace_model_find(const char *name)
{
    for (size_t i = 0; i < ASH_COUNT(models); i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

/* Shares of sizes 1, 2, 4, ... up to the largest: that of 1 is given, the others fall by ratio. */
static int size_shares(const struct ash_trace_model *model, double ratio, double *shares)
{
    int count = 1 + (int)lround(log2(model->gpus_max));
    double sum = 0, part = 1;

    if (count > SIZES_MAX) count = SIZES_MAX;
    for (int i = 1; i < count; i++, part *= ratio)
        sum += shares[i] = part;
    shares[0] = model->one_gpu_share;
    for (int i = 1; i < count; i++)
        shares[i] *= (1 - model->one_gpu_share) / sum;
    return count;
}

static double mean_size(const double *shares, int count)
{
    double mean = 0;

    for (int i = 0; i < count; i++)
        mean += shares[i] * (double)(1 << i);
    return mean;
}

/* The ratio that gives the mean. */
static int fit_sizes(const struct ash_trace_model *model, double *shares)
{
    double low = 0.01, high = 4;
    int count = 0;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;

        count = size_shares(model, middle, shares);
        if (mean_size(shares, count) < model->gpus_mean)
            low = middle;
        else
            high = middle;
    }
    return count;
}

/* A user's time limit: the next of the usual ones above a multiple of the run time. */
static double limit_of(double run_s, double draw)
{
    static const double usual[] = {900, 3600, 14400, 43200, 86400, 172800, 604800};
    double wanted = run_s * (1 + 3 * draw);

    for (size_t i = 0; i < ASH_COUNT(usual); i++)
        if (wanted <= usual[i]) return usual[i];
    return fmax(run_s, usual[ASH_COUNT(usual) - 1]);
}

static int draw_size(const double *shares, int count, double draw)
{
    for (int i = 0; i + 1 < count; i++) {
        if (draw < shares[i]) return 1 << i;
        draw -= shares[i];
    }
    return 1 << (count - 1);
}

/* Team by a falling weight: the first has most. */
static int draw_team(double draw)
{
    return (int)(TEAMS * draw * draw);
}

static int draw_jobs(const struct ash_trace_model *model, size_t count, double rate, uint64_t seed,
                     struct ash_trace_build *build, struct ash_err *err)
{
    static const char *const classes[] = {"training", "fine-tuning", "experimentation", "inference"};
    double shares[SIZES_MAX], spread = sqrt(2 * log(model->run_mean_s / model->run_median_s)), time_s = 0;
    int sizes = fit_sizes(model, shares), rc = 0;

    for (uint64_t i = 0; i < count && rc == 0; i++) {
        struct ash_trace_job job = {.submit_s = time_s};
        int team = draw_team(ash_rng_uniform(seed, 3, i)), class;
        char queue[24], user[24];

        job.gpus = draw_size(shares, sizes, ash_rng_uniform(seed, 0, i));
        job.run_s = (float)fmin(model->run_median_s * exp(spread * ash_rng_normal(seed, 1, i)), 604800);
        if (job.run_s < 1) job.run_s = 1;
        job.limit_s = (float)limit_of(job.run_s, ash_rng_uniform(seed, 2, i));
        class = job.gpus >= 64 ? 0 : (int)ash_rng_below(seed, 4, i, ASH_COUNT(classes));
        snprintf(queue, sizeof(queue), "team-%d", team);
        snprintf(user, sizeof(user), "user-%d-%d", team, (int)ash_rng_below(seed, 5, i, TEAM_USERS));
        rc = ash_trace_add(build, job, queue, classes[class], user, err);
        time_s -= log(1 - ash_rng_uniform(seed, 6, i)) / rate;
    }
    return rc;
}

/* Mean of the run times as they are drawn: cut at a week. */
static double mean_run(const struct ash_trace_model *model, uint64_t seed)
{
    double spread = sqrt(2 * log(model->run_mean_s / model->run_median_s)), sum = 0;
    const int draws = 100000;

    for (int i = 0; i < draws; i++)
        sum += fmax(1, fmin(model->run_median_s * exp(spread * ash_rng_normal(seed, 1, (uint64_t)i)), 604800));
    return sum / draws;
}

int ash_trace_draw(const struct ash_trace_model *model, size_t count, double busy_gpus, uint64_t seed,
                   struct ash_trace **trace_out, struct ash_err *err)
{
    struct ash_trace_build build;
    int rc = ash_trace_build_open(&build);

    if (rc < 0)
        ash_err_set(err, rc, "out of memory");
    else
        rc = draw_jobs(model, count, busy_gpus / (model->gpus_mean * mean_run(model, seed)), seed, &build, err);
    if (rc >= 0) {
        build.trace->format = model->name;
        ash_trace_keep_names(&build);
    }
    ash_trace_build_close(&build);
    if (rc < 0) {
        ash_trace_close(build.trace);
        return rc;
    }
    *trace_out = build.trace;
    return 0;
}
