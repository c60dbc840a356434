/* What bounds a plan, and what each thing that money or flags can change would be worth. */
#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct trial {
    struct ash_plan_job job;
    struct ash_gpu gpu;
    struct ash_layout layout;
};

struct list {
    const struct ash_consts *consts;
    const struct ash_plan *plan;
    struct ash_what_if *items;
    size_t count;
};

const char *ash_step_bound(const struct ash_plan_step *step)
{
    const struct ash_step_time *t = &step->time;
    const struct {
        double seconds;
        const char *name;
    } parts[] = {
        {t->compute, "matrix products and attention"},
        {t->memory, "HBM bandwidth (element-wise passes, logits, gradients)"},
        {t->host, "kernel launches from the host"},
        {t->nvlink, "NVLink traffic that compute does not hide"},
        {t->network, "network traffic that compute does not hide"},
        {t->bubble, "idle time in the pipeline"},
        {t->optimizer, "the optimizer"},
        {t->jitter, "waiting for the slowest machine"},
    };
    size_t most = 0;

    for (size_t i = 1; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].seconds > parts[most].seconds) most = i;
    return parts[most].name;
}

static struct trial begin(const struct ash_plan_job *job, const struct ash_plan *plan)
{
    struct trial trial = {.job = *job, .gpu = *job->cluster.machine.gpu, .layout = plan->layout};

    trial.layout.recompute = plan->step.recompute;
    return trial;
}

static void add(struct list *list, struct trial *trial, const char *change)
{
    struct ash_plan_step step;
    struct ash_what_if *item = &list->items[list->count];

    if (list->count == ASH_WHAT_IFS_MAX) return;
    trial->job.cluster.machine.gpu = &trial->gpu;
    if (ash_layout_check(&trial->job, &trial->layout, NULL) < 0) return;
    ash_step_predict(list->consts, &trial->job, &trial->layout, true, &step);
    snprintf(item->change, sizeof(item->change), "%s", change);
    item->tokens_s = step.tokens_s;
    item->gain = step.tokens_s / list->plan->step.tokens_s - 1;
    item->fits = step.fits;
    list->count++;
}

static void add_hardware(struct list *list, const struct ash_plan_job *job)
{
    struct trial trial = begin(job, list->plan);

    trial.job.cluster.machine.net_bandwidth *= 2;
    if (job->cluster.machines > 1) add(list, &trial, "twice the network bandwidth");
    trial = begin(job, list->plan);
    trial.gpu.nvlink_bandwidth *= 2;
    if (job->cluster.domain_gpus > 1) add(list, &trial, "twice the NVLink bandwidth");
    trial = begin(job, list->plan);
    trial.gpu.memory_bandwidth *= 2;
    add(list, &trial, "twice the HBM bandwidth");
    trial = begin(job, list->plan);
    for (int i = 0; i < ASH_PRECISION_COUNT; i++)
        trial.gpu.flops[i] *= 2;
    add(list, &trial, "twice the arithmetic rate");
    trial = begin(job, list->plan);
    trial.job.cluster.domain_gpus = trial.job.cluster.machine.domain_gpus =
        72 < job->cluster.gpus ? 72 : job->cluster.gpus;
    if (job->cluster.domain_gpus < trial.job.cluster.domain_gpus) add(list, &trial, "an NVLink domain of 72 GPUs");
}

static void add_choices(struct list *list, const struct ash_plan_job *job)
{
    struct trial trial = begin(job, list->plan);

    trial.layout.precision = ASH_PRECISION_FP8;
    if (list->plan->layout.precision == ASH_PRECISION_BF16 && trial.gpu.flops[ASH_PRECISION_FP8] > 0)
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
        add(list, &trial, "expert traffic beside another micro-batch's compute");
    trial = begin(job, list->plan);
    trial.job.graphs = true;
    if (list->plan->step.time.host > 0.02 * list->plan->step.time.total)
        add(list, &trial, "launches recorded as graphs");
}

static int by_gain(const void *a, const void *b)
{
    double x = ((const struct ash_what_if *)a)->gain, y = ((const struct ash_what_if *)b)->gain;

    return (x < y) - (x > y);
}

size_t ash_what_if(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_plan *plan,
                   struct ash_what_if what_ifs[ASH_WHAT_IFS_MAX])
{
    struct list list = {.consts = consts, .plan = plan, .items = what_ifs};

    add_hardware(&list, job);
    add_choices(&list, job);
    qsort(what_ifs, list.count, sizeof(*what_ifs), by_gain);
    return list.count;
}
