/* What a cluster should run. Replicas of all cuts and splits of all sizes are items with a number of GPUs and a rate.
 * The best sum for every number of GPUs (an unbounded knapsack) answers both questions: what all GPUs can do, and how
 * few of them answer the arrivals. */
#include "plan/serve/serve.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"

#define SPLIT_GPUS_MAX 256 /* larger splits are copies of smaller ones, or the whole cluster */
#define SMALLEST_GAIN (1 + 1e-9)

struct table {
    const struct ash_serve_job *job;
    struct ash_serve_part *items;
    size_t item_count;
    double *rates; /* requests/s of the best sum, by GPUs */
    int *chosen;   /* the item that was added last; -1: a GPU more is idle */
    int gpus;
};

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void add_unified(struct table *table, const struct ash_serve_point *point)
{
    table->items[table->item_count++] = (struct ash_serve_part){
        .point = *point, .replicas = 1, .gpus = ash_infer_gpus(&point->infer), .requests_s = point->requests_s};
}

/* The best split of this many GPUs, if it does more than `before` requests/s. Returns its rate, or before. */
static double add_split(struct table *table, const struct ash_consts *consts, const struct ash_serve_kinds *kinds,
                        double gpus, double before)
{
    struct ash_serve_part item = {.is_split = true, .replicas = 1};

    if (!ash_serve_split_find(consts, table->job, kinds, gpus, &item.split)) return before;
    if (!item.split.meets || item.split.requests_s <= before * SMALLEST_GAIN) return before;
    item.gpus = item.split.prompt_replicas * ash_infer_gpus(&item.split.prompt.infer) +
                item.split.decode_replicas * ash_infer_gpus(&item.split.decode.infer);
    item.requests_s = item.split.requests_s;
    table->items[table->item_count++] = item;
    return item.requests_s;
}

static void add_splits(struct table *table, const struct ash_consts *consts, const struct ash_serve_kinds *kinds)
{
    double most = ash_min(table->gpus, SPLIT_GPUS_MAX), rate = 0;

    for (double gpus = 2; gpus <= most; gpus++)
        rate = add_split(table, consts, kinds, gpus, rate);
    if (table->gpus > most) add_split(table, consts, kinds, table->gpus, rate);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void fill(struct table *table)
{
    table->rates[0] = 0;
    table->chosen[0] = -1;
    for (int gpus = 1; gpus <= table->gpus; gpus++) {
        table->rates[gpus] = table->rates[gpus - 1];
        table->chosen[gpus] = -1;
        for (size_t i = 0; i < table->item_count; i++) {
            int rest = gpus - (int)table->items[i].gpus;
            double rate = rest >= 0 ? table->rates[rest] + table->items[i].requests_s : 0;

            if (rate <= table->rates[gpus] * SMALLEST_GAIN) continue;
            table->rates[gpus] = rate;
            table->chosen[gpus] = (int)i;
        }
    }
}

static bool is_same_cut(const struct ash_infer *a, const struct ash_infer *b)
{
    return a->tp == b->tp && a->pp == b->pp && a->ep == b->ep && a->attn_dp == b->attn_dp;
}

static bool is_same_kind(const struct ash_serve_part *a, const struct ash_serve_part *b)
{
    if (a->is_split != b->is_split) return false;
    if (!a->is_split) return is_same_cut(&a->point.infer, &b->point.infer);
    return is_same_cut(&a->split.prompt.infer, &b->split.prompt.infer) &&
           is_same_cut(&a->split.decode.infer, &b->split.decode.infer);
}

/* Add copies of an item; those of the same kind are one part. */
static void add_part(struct ash_serve_plan *plan, const struct ash_serve_part *item, double copies)
{
    struct ash_serve_part *part = plan->parts;

    while (part < plan->parts + plan->count && !is_same_kind(part, item))
        part++;
    if (part == plan->parts + plan->count) {
        if (plan->count == ASH_SERVE_PARTS_MAX) return; /* the GPUs of more kinds than that stay idle */
        *part = *item;
        part->replicas = part->gpus = part->requests_s = 0;
        part->split.prompt_replicas = part->split.decode_replicas = part->split.requests_s = part->split.tokens_s = 0;
        plan->count++;
    }
    part->replicas += copies * item->replicas;
    part->gpus += copies * item->gpus;
    part->requests_s += copies * item->requests_s;
    part->split.prompt_replicas += copies * item->split.prompt_replicas;
    part->split.decode_replicas += copies * item->split.decode_replicas;
    part->split.ttft_s = fmax(part->split.ttft_s, item->split.ttft_s);
    part->split.itl_s = fmax(part->split.itl_s, item->split.itl_s);
}

/* Copies of the best sum of this many GPUs. */
static void add_sum(const struct table *table, int gpus, double copies, struct ash_serve_plan *plan)
{
    while (gpus > 0) {
        int item = table->chosen[gpus];

        if (item >= 0) add_part(plan, &table->items[item], copies);
        gpus -= item >= 0 ? (int)table->items[item].gpus : 1;
    }
}

/* What follows from the parts. Whole machines are rented. */
static void sum_up(const struct ash_serve_job *job, bool meets, struct ash_serve_plan *plan)
{
    plan->meets = meets;
    for (size_t i = 0; i < plan->count; i++) {
        plan->gpus += plan->parts[i].gpus;
        plan->requests_s += plan->parts[i].requests_s;
    }
    plan->tokens_s = plan->requests_s * (job->thinking_tokens + job->answer_tokens) * job->samples;
    plan->machines = fmax(plan->machines, ceil(plan->gpus / job->cluster.machine.gpus));
    plan->usd_hour = job->usd_gpu_hour * plan->machines * job->cluster.machine.gpus;
    if (plan->tokens_s > 0) plan->usd_million = plan->usd_hour / 3600 / plan->tokens_s * 1e6;
}

/* ---- the answers ------------------------------------------------------------------------------------------------- */

/* The fewest GPUs with this rate, which the table reaches. */
static int fewest(const struct table *table, double requests_s)
{
    int gpus = 0;

    while (gpus < table->gpus && table->rates[gpus] < requests_s * (1 - 1e-9))
        gpus++;
    return gpus;
}

/* What the arrivals need; of more than the cluster can, as many clusters as that takes. */
static void find_needed(const struct table *table, bool meets, struct ash_serve_plan *plan)
{
    double arrivals = table->job->arrivals_s, most = table->rates[table->gpus];
    double copies = floor(arrivals / most * (1 + 1e-9));

    if (arrivals <= 0 || most <= 0) return;
    if (arrivals <= most) copies = 0;
    if (copies > 0) add_sum(table, table->gpus, copies, plan);
    add_sum(table, fewest(table, arrivals - copies * most), 1, plan);
    sum_up(table->job, meets, plan);
    plan->usd_million *= plan->requests_s / arrivals;
}

static int open_table(struct table *table, size_t count)
{
    table->items = calloc(count + SPLIT_GPUS_MAX + 1, sizeof(*table->items));
    table->rates = calloc((size_t)table->gpus + 1, sizeof(*table->rates));
    table->chosen = calloc((size_t)table->gpus + 1, sizeof(*table->chosen));
    return table->items != NULL && table->rates != NULL && table->chosen != NULL ? 0 : -ENOMEM;
}

static double split_gain(const struct ash_consts *consts, const struct ash_serve_job *job,
                         const struct ash_serve_kinds *kinds, const struct ash_serve_point *best)
{
    double unified = floor((double)job->cluster.gpus / ash_infer_gpus(&best->infer)) * best->tokens_s;
    struct ash_serve_split split;

    return ash_serve_split_find(consts, job, kinds, job->cluster.gpus, &split) ? split.tokens_s / unified - 1 : 0;
}

int ash_serve_advise(const struct ash_consts *consts, const struct ash_serve_job *job,
                     const struct ash_serve_point *points, size_t count, const struct ash_serve_kinds *kinds,
                     struct ash_serve_advice *advice_out)
{
    struct table table = {.job = job, .gpus = job->cluster.gpus};
    int rc = open_table(&table, count);
    bool meets;

    ash_assert(count > 0);
    if (rc == 0) {
        for (size_t i = 0; i < count; i++)
            if (points[i].meets) add_unified(&table, &points[i]);
        add_splits(&table, consts, kinds);
        meets = table.item_count > 0;
        if (!meets) add_unified(&table, &points[0]); /* the nearest */
        fill(&table);
        *advice_out = (struct ash_serve_advice){.split_gain = split_gain(consts, job, kinds, &points[0])};
        add_sum(&table, table.gpus, 1, &advice_out->whole);
        advice_out->whole.machines = job->cluster.machines;
        sum_up(job, meets, &advice_out->whole);
        find_needed(&table, meets, &advice_out->needed);
    }
    free(table.items);
    free(table.rates);
    free(table.chosen);
    return rc;
}
