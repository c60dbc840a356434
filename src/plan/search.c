/* The search is plain enumeration: the space of sensible layouts is some ten thousand, a prediction takes microseconds,
 * and memory is asked first because most layouts fail there. */
#include "plan/search.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 48 /* that are simulated in the end */
#define STAGES_MAX 64
#define MICRO_BATCH_MAX 16
#define UNEVEN_MAX 1.15 /* layers of the fullest stage over the mean */

struct hunt {
    const struct ash_consts *consts;
    const struct ash_plan_job *job;
    const struct ash_search *search;
    struct ash_plan best[CANDIDATES_MAX]; /* descending */
    size_t best_count;
    struct ash_search_result result;
    bool offload;
};

static int by_speed(const void *a, const void *b)
{
    double x = ((const struct ash_plan *)a)->step.tokens_s, y = ((const struct ash_plan *)b)->step.tokens_s;

    return (x < y) - (x > y);
}

/* Insert into the descending list, pushing the slowest out. */
static void keep(struct hunt *hunt, const struct ash_plan *plan)
{
    size_t at = hunt->best_count;

    if (at == CANDIDATES_MAX) {
        if (hunt->best[at - 1].step.tokens_s >= plan->step.tokens_s) return;
        at--;
    } else {
        hunt->best_count++;
    }
    while (at > 0 && hunt->best[at - 1].step.tokens_s < plan->step.tokens_s) {
        hunt->best[at] = hunt->best[at - 1];
        at--;
    }
    hunt->best[at] = *plan;
}

/* ---- the innermost choices --------------------------------------------------------------------------------------- */

static void try_layout(struct hunt *hunt, struct ash_layout layout, struct ash_plan *best)
{
    struct ash_step_memory least;
    struct ash_plan plan = {.layout = layout};
    enum ash_plan_recompute leanest = layout.recompute == ASH_PLAN_RECOMPUTE_FIT
                                          ? ASH_PLAN_RECOMPUTE_FULL
                                          : layout.recompute; /* of what is allowed */

    if (ash_layout_check(hunt->job, &plan.layout, NULL) < 0) return;
    hunt->result.tried++;
    ash_step_memory(hunt->consts, hunt->job, &plan.layout, leanest, &least);
    if (least.total < hunt->result.least_bytes) hunt->result.least_bytes = least.total;
    if (least.total > least.capacity) return;
    hunt->result.fitting++;
    ash_step_predict(hunt->consts, hunt->job, &plan.layout, false, &plan.step);
    if (plan.step.tokens_s > best->step.tokens_s) *best = plan;
}

/* Does such a pipeline spread the layers evenly enough? The embedding and the output may count as layers. */
static bool is_even(double layers, double stages)
{
    double fullest = ceil(layers / stages);

    return fmod(layers + 2, stages) == 0 || fullest / (layers / stages) <= UNEVEN_MAX;
}

static void try_chunks(struct hunt *hunt, struct ash_layout layout, struct ash_plan *best)
{
    static const int chunks[] = {2, 3, 4, 5, 6, 8, 10, 12, 16, 20};
    double layers = hunt->job->shape.layers;

    layout.chunks = 1;
    try_layout(hunt, layout, best);
    if (layout.pp == 1) return;
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        double stages = (double)layout.pp * chunks[i];

        if (stages > layers || (fmod(layers, stages) != 0 && fmod(layers + 2, stages) != 0)) continue;
        layout.chunks = chunks[i];
        try_layout(hunt, layout, best);
    }
}

static void try_batches(struct hunt *hunt, struct ash_layout layout)
{
    struct ash_plan best = {0};
    double each = hunt->job->global_batch / layout.dp;

    for (int size = 1; size <= MICRO_BATCH_MAX && size <= each; size *= 2) {
        layout.micro_batch = size;
        if (fmod(each, size) == 0) try_chunks(hunt, layout, &best);
    }
    if (best.step.tokens_s > 0) keep(hunt, &best);
}

static void try_precisions(struct hunt *hunt, struct ash_layout layout)
{
    const struct ash_gpu *gpu = hunt->job->cluster.machine.gpu;

    for (int p = ASH_PRECISION_BF16; p <= ASH_PRECISION_FP4; p++) {
        bool wanted = hunt->search->precision < 0 ? p <= ASH_PRECISION_FP8 : p == hunt->search->precision;

        if (!wanted || gpu->flops[p] <= 0) continue;
        layout.precision = (enum ash_precision)p;
        try_batches(hunt, layout);
    }
}

/* ---- ways to cut the GPUs ---------------------------------------------------------------------------------------- */

static void try_sharding(struct hunt *hunt, struct ash_layout layout)
{
    static const int stages[] = {1, 3};
    int copies = layout.dp * layout.cp;

    if (copies == 1) {
        layout.zero = 0;
        if (hunt->search->zero <= 0) try_precisions(hunt, layout);
        return;
    }
    for (int i = 0; i < 2; i++) {
        int zero = hunt->search->zero >= 0 ? hunt->search->zero : stages[i];

        if (hunt->search->zero >= 0 && i > 0) break;
        if (zero == 3 && layout.pp > 1 && hunt->search->zero != 3) continue; /* gathers again for every micro-batch */
        layout.zero = zero;
        try_precisions(hunt, layout);
    }
}

static void try_experts(struct hunt *hunt, struct ash_layout layout)
{
    int experts = (int)hunt->job->shape.experts, ranks = layout.tp * layout.cp * layout.dp;

    layout.ep = 1;
    layout.etp = layout.tp;
    try_sharding(hunt, layout);
    if (hunt->job->shape.sparse_layers == 0) return;
    layout.etp = 1;
    for (int ep = 2; ep <= experts && ep <= ranks; ep++) {
        if (experts % ep != 0 || ranks % ep != 0) continue;
        layout.ep = ep;
        try_sharding(hunt, layout);
    }
}

static void try_degrees(struct hunt *hunt, int tp, int pp, int cp)
{
    struct ash_layout layout = {.tp = tp, .pp = pp, .cp = cp, .offload = hunt->offload};
    int gpus = hunt->job->cluster.gpus;

    layout.recompute = (enum ash_plan_recompute)hunt->search->recompute;
    layout.dp = gpus / (tp * pp * cp);
    if (layout.dp > hunt->job->global_batch || fmod(hunt->job->global_batch, layout.dp) != 0) return;
    try_experts(hunt, layout);
}

static void enumerate(struct hunt *hunt)
{
    const struct ash_shape *s = &hunt->job->shape;
    int gpus = hunt->job->cluster.gpus, domain = hunt->job->cluster.domain_gpus;

    for (int tp = 1; tp <= domain && tp <= s->heads; tp *= 2) {
        if (gpus % tp != 0 || fmod(s->heads, tp) != 0) continue;
        for (int pp = 1; pp <= STAGES_MAX && pp <= s->layers; pp++) {
            if (gpus / tp % pp != 0 || !is_even(s->layers, pp)) continue;
            for (int cp = 1; cp <= 32 && (cp == 1 || hunt->job->seq_tokens / cp >= 2048); cp *= 2)
                if (gpus / tp / pp % cp == 0) try_degrees(hunt, tp, pp, cp);
        }
    }
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static int nothing_found(const struct hunt *hunt, struct ash_err *err)
{
    const struct ash_plan_job *job = hunt->job;
    const struct ash_machine *machine = &job->cluster.machine;
    double capacity = machine->gpu->memory_bytes * hunt->consts->memory_usable;

    if (hunt->result.tried == 0)
        return ash_err_set(err, -EINVAL,
                           "no layout divides %d GPUs and a global batch of %.0f sequences: make one a multiple of the "
                           "other",
                           job->cluster.gpus, job->global_batch);
    return ash_err_set(
        err, -ENOSPC,
        "%s does not fit: the leanest of %zu layouts needs %.1f GB of %.1f GB per GPU; about %.0f GPUs of "
        "this kind would do",
        job->shape.name, hunt->result.tried, hunt->result.least_bytes / 1e9, capacity / 1e9,
        machine->gpus * ceil(job->cluster.gpus * hunt->result.least_bytes / capacity * 1.1 / machine->gpus));
}

int ash_search(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_search *search,
               struct ash_plan *plans, size_t max, struct ash_search_result *result_out, struct ash_err *err)
{
    struct hunt *hunt = calloc(1, sizeof(*hunt));
    int rc = 0;

    if (hunt == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    hunt->consts = consts;
    hunt->job = job;
    hunt->search = search;
    hunt->result.least_bytes = INFINITY;
    enumerate(hunt);
    if (hunt->result.fitting == 0 && !search->no_offload && job->tuning == ASH_TUNING_ALL) {
        hunt->offload = true;
        enumerate(hunt);
    }
    for (size_t i = 0; i < hunt->best_count; i++)
        ash_step_predict(consts, job, &hunt->best[i].layout, true, &hunt->best[i].step);
    qsort(hunt->best, hunt->best_count, sizeof(hunt->best[0]), by_speed);
    if (hunt->best_count == 0) rc = nothing_found(hunt, err);
    hunt->result.count = hunt->best_count < max ? hunt->best_count : max;
    memcpy(plans, hunt->best, hunt->result.count * sizeof(*plans));
    *result_out = hunt->result;
    free(hunt);
    return rc;
}
