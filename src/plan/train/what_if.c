/* What each thing that money or flags can change would be worth. */
#include "plan/train/search.h"

#include <stdlib.h>

#include "base/assert.h"

#define WIDE_DOMAIN 72  /* GPUs of the largest NVLink domain on offer */
#define CHUNKS_MAX 20   /* of a pipeline that are tried */
#define HOST_SHARE 0.02 /* of a step that launches must take for graphs to be worth a line */

struct trial {
    struct ash_plan_job job;
    struct ash_gpu gpu;
    struct ash_layout layout;
};

struct list {
    const struct ash_consts *consts;
    const struct ash_search *search; /* NULL: hardware is changed under the same layout */
    const struct ash_plan *plan;
    struct ash_what_if *items;
    size_t count;
};

static struct trial begin(const struct ash_plan_job *job, const struct ash_plan *plan)
{
    struct trial trial = {.job = *job, .gpu = *job->cluster.machine.gpu, .layout = plan->layout};

    trial.layout.recompute = plan->step.recompute;
    return trial;
}

static void add_plan(struct list *list, const struct ash_plan *plan, const char *change)
{
    if (list->count == ASH_WHAT_IFS_MAX) return;
    list->items[list->count++] = (struct ash_what_if){.change = change,
                                                      .layout = plan->layout,
                                                      .tokens_s = plan->step.tokens_s,
                                                      .gain = plan->step.tokens_s / list->plan->step.tokens_s - 1,
                                                      .fits = plan->step.fits};
}

/* The plan's layout under the trial's job, if it is possible. */
static void add(struct list *list, struct trial *trial, const char *change)
{
    struct ash_plan plan = {.layout = trial->layout};

    trial->job.cluster.machine.gpu = &trial->gpu;
    if (ash_layout_check(&trial->job, &plan.layout, NULL) < 0) return;
    ash_step_predict(list->consts, &trial->job, &plan.layout, true, &plan.step);
    add_plan(list, &plan, change);
}

/* The plan's own layout for the trial's hardware, if it is faster than the one that a search found. */
static void prefer_own(const struct list *list, const struct trial *trial, struct ash_plan *best)
{
    struct ash_plan own = {.layout = trial->layout};

    own.layout.dp = 0; /* whatever the other degrees leave */
    if (ash_layout_check(&trial->job, &own.layout, NULL) < 0) return;
    ash_step_predict(list->consts, &trial->job, &own.layout, true, &own.step);
    if (own.step.fits && ash_plan_fits_host(&trial->job, &own.step.memory) && own.step.tokens_s > best->step.tokens_s)
        *best = own;
}

/* The best layout for the trial's hardware, which is at least the plan's own. */
static void add_searched(struct list *list, struct trial *trial, const char *change)
{
    struct ash_search_result result;
    struct ash_search wanted;
    struct ash_plan best;

    if (list->search == NULL) {
        add(list, trial, change);
        return;
    }
    wanted = *list->search;
    wanted.uncounted = true;
    wanted.hint = &list->plan->layout;
    trial->job.cluster.machine.gpu = &trial->gpu;
    if (ash_search_run(list->consts, &trial->job, &wanted, &best, 1, &result, NULL) < 0) return;
    prefer_own(list, trial, &best);
    add_plan(list, &best, change);
}

static void add_rates(struct list *list, const struct ash_plan_job *job)
{
    struct trial trial = begin(job, list->plan);

    trial.job.cluster.machine.net_bandwidth *= 2;
    if (job->cluster.machines > 1) add_searched(list, &trial, "twice the network bandwidth");
    trial = begin(job, list->plan);
    trial.gpu.nvlink_bandwidth *= 2;
    if (job->cluster.domain_gpus > 1) add_searched(list, &trial, "twice the NVLink bandwidth");
    trial = begin(job, list->plan);
    trial.gpu.memory_bandwidth *= 2;
    add_searched(list, &trial, "twice the HBM bandwidth");
    trial = begin(job, list->plan);
    for (int i = 0; i < ASH_GPU_PRECISIONS; i++)
        trial.gpu.flops[i] *= 2;
    add_searched(list, &trial, "twice the arithmetic rate");
}

static void add_sizes(struct list *list, const struct ash_plan_job *job)
{
    struct trial trial = begin(job, list->plan);

    trial.job.cluster.domain_gpus = trial.job.cluster.machine.domain_gpus =
        WIDE_DOMAIN < job->cluster.gpus ? WIDE_DOMAIN : job->cluster.gpus;
    if (job->cluster.domain_gpus < trial.job.cluster.domain_gpus)
        add_searched(list, &trial, "an NVLink domain of 72 GPUs");
    if (list->search == NULL) return; /* what follows is nothing to a fixed layout */
    trial = begin(job, list->plan);
    trial.gpu.memory_bytes *= 2;
    add_searched(list, &trial, "twice the memory per GPU");
    trial = begin(job, list->plan);
    trial.job.cluster.machines *= 2;
    trial.job.cluster.gpus *= 2;
    if (trial.job.cluster.gpus <= ASH_CLUSTER_GPUS_MAX && job->cluster.gpus >= job->cluster.machine.gpus)
        add_searched(list, &trial, "twice the machines, the same batch");
}

/* The fastest interleaving of a given pipeline other than its own. */
static void add_chunks(struct list *list, const struct ash_plan_job *job)
{
    struct ash_plan best = {0};

    for (int chunks = 1; chunks <= CHUNKS_MAX && list->plan->layout.pp > 1; chunks++) {
        struct ash_plan plan = {.layout = list->plan->layout};

        plan.layout.chunks = chunks;
        plan.layout.schedule = ASH_PLAN_1F1B;
        if (chunks == list->plan->layout.chunks && list->plan->layout.schedule == ASH_PLAN_1F1B) continue;
        if (ash_layout_check(job, &plan.layout, NULL) < 0) continue;
        ash_step_predict(list->consts, job, &plan.layout, true, &plan.step);
        if (plan.step.fits && plan.step.tokens_s > best.step.tokens_s) best = plan;
    }
    if (best.step.tokens_s > 0) add_plan(list, &best, "another interleaving of the pipeline (vpp)");
}

/* Neighbours of a given layout, which cost nothing; a search has tried them. */
static void add_neighbours(struct list *list, const struct ash_plan_job *job)
{
    struct trial trial;

    if (list->search != NULL) return;
    add_chunks(list, job);
    trial = begin(job, list->plan);
    trial.layout.pp *= 2;
    trial.layout.dp = 0;
    trial.layout.recompute = ASH_PLAN_RECOMPUTE_FIT;
    add(list, &trial, "twice the pipeline stages (pp)");
    trial = begin(job, list->plan);
    trial.layout.pp /= 2;
    trial.layout.dp = 0;
    trial.layout.recompute = ASH_PLAN_RECOMPUTE_FIT;
    if (trial.layout.pp <= 1) trial.layout.chunks = 1;
    if (trial.layout.pp >= 1) add(list, &trial, "half the pipeline stages (pp)");
    trial = begin(job, list->plan);
    trial.layout.micro_batch /= 2;
    if (trial.layout.micro_batch >= 1) add(list, &trial, "half the micro-batch");
}

static void add_choices(struct list *list, const struct ash_plan_job *job)
{
    struct trial trial = begin(job, list->plan);

    trial.layout.precision = ASH_GPU_FP8;
    if (list->plan->layout.precision == ASH_GPU_BF16 && trial.gpu.flops[ASH_GPU_FP8] > 0)
        add(list, &trial, "fp8 matrix products");
    trial = begin(job, list->plan);
    trial.layout.recompute = ASH_PLAN_RECOMPUTE_NONE;
    if (list->plan->step.recompute != ASH_PLAN_RECOMPUTE_NONE)
        add(list, &trial, "no recomputation (more memory per GPU)");
    trial = begin(job, list->plan);
    trial.layout.micro_batch *= 2;
    add(list, &trial, "twice the micro-batch");
    trial = begin(job, list->plan);
    trial.job.global_batch *= 2;
    add(list, &trial, "twice the global batch");
    trial = begin(job, list->plan);
    trial.job.overlap_dispatch = true;
    if (job->shape.sparse_layers > 0 && list->plan->layout.ep > 1 && !job->overlap_dispatch)
        add(list, &trial, "expert traffic overlapped with another micro-batch's compute");
    trial = begin(job, list->plan);
    trial.job.graphs = true;
    if (list->plan->step.time.host > HOST_SHARE * list->plan->step.time.total)
        add(list, &trial, "launches recorded as graphs");
}

static int by_gain(const void *a, const void *b)
{
    double x = ((const struct ash_what_if *)a)->gain, y = ((const struct ash_what_if *)b)->gain;

    return (x < y) - (x > y);
}

size_t ash_what_if_list(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_search *search, const struct ash_plan *plan,
                        struct ash_what_if what_ifs[ASH_WHAT_IFS_MAX])
{
    struct list list = {.consts = consts, .search = search, .plan = plan, .items = what_ifs};

    ash_assert(plan->layout.dp >= 1);
    add_rates(&list, job);
    add_sizes(&list, job);
    add_choices(&list, job);
    add_neighbours(&list, job);
    qsort(what_ifs, list.count, sizeof(*what_ifs), by_gain);
    return list.count;
}
