/* offers: the same training job on every kind of machine, cheapest first. */
#include "cmd/plan/offers.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/table.h"
#include "base/workers.h"
#include "cmd/plan/text.h"
#include "plan/train/parts.h"
#include "plan/price.h"

#define FIELD(name) offsetof(struct ash_plan_offers_flags, name)

static const struct ash_opt offers_opts[] = {
    {"gpus", ASH_OPT_INT, FIELD(gpus), NULL, "GPUs of each offer, in whole machines", 1, ASH_CLUSTER_GPUS_MAX, NULL},
    {"days", ASH_OPT_DOUBLE, FIELD(days), NULL, "days to finish in, instead of --gpus: how many machines that takes",
     0.01, 1e5, NULL},
    {"machines", ASH_OPT_LIST, FIELD(machines), NULL, "machines to compare; all that have a price if not given", 0, 0,
     NULL},
    {"unpriced", ASH_OPT_BOOL, FIELD(unpriced), NULL, "also compare machines without a price", 0, 0, NULL},
    ASH_PLAN_OPT_GLOBAL_BATCH(FIELD(global_batch), "sequences per step, rounded where machines do not divide it"),
    ASH_PLAN_OPT_SEQ(FIELD(seq), "8192"),
    ASH_PLAN_OPT_PRECISION(FIELD(precision)),
};

const struct ash_opt_table ash_plan_offers_table = {
    .section = "", .help = "the machines", .opts = offers_opts, .count = ASH_COUNT(offers_opts)};

int ash_plan_offers_misused(const char *command, const struct ash_plan_offers_flags *flags)
{
    if (flags->gpus > 0 && flags->days > 0) return ash_cmd_misuse(command, "give --gpus or --days, not both");
    if (flags->gpus <= 0 && flags->days <= 0)
        return ash_cmd_misuse(command, "give --gpus or --days: how many GPUs, or in which time");
    return 0;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* Some of the machines: each is a separate search. */
static void compare_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct ash_plan_offers *offers = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        ash_compare(offers->consts, &offers->job, offers->machines[i], &offers->rows[i]);
}

static int choose_machines(const struct ash_plan_offers_flags *flags, const struct ash_plan_facts *facts,
                           struct ash_plan_offers *offers, struct ash_err *err)
{
    offers->count = 0;
    for (size_t i = 0; i < flags->machines.count && offers->count < ASH_PLAN_OFFERS_MAX; i++) {
        int rc = ash_catalog_machine(facts->catalog, flags->machines.items[i], &offers->machines[offers->count], err);

        if (rc < 0) return rc;
        offers->count++;
    }
    for (size_t i = 0; i < ash_catalog_machine_count(facts->catalog) && flags->machines.count == 0; i++) {
        const struct ash_machine *machine = ash_catalog_machine_at(facts->catalog, i);

        if (offers->count < ASH_PLAN_OFFERS_MAX && (flags->unpriced || ash_price_of(machine).usd_hour > 0))
            offers->machines[offers->count++] = machine;
    }
    return 0;
}

static struct ash_compare_job job_of(const struct ash_plan_offers_flags *flags, const struct ash_shape *shape,
                                     double tokens)
{
    return (struct ash_compare_job){
        .job = {.shape = *shape,
                .seq_tokens = (double)flags->seq,
                .global_batch = (double)flags->global_batch,
                .tokens = tokens,
                .dedup_dispatch = true},
        .search = {.precision = flags->precision - 1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1},
        .gpus = (double)flags->gpus,
        .days = flags->days};
}

int ash_plan_offers_find(const struct ash_plan_offers_flags *flags, const struct ash_plan_facts *facts,
                         const struct ash_shape *shape, double tokens, struct ash_plan_offers *offers,
                         struct ash_err *err)
{
    struct ash_workers *workers = NULL;
    int rc = choose_machines(flags, facts, offers, err);

    if (rc == 0) rc = ash_workers_open(0, &workers, err);
    if (rc < 0) return rc;
    offers->consts = &facts->consts;
    offers->job = job_of(flags, shape, tokens);
    ash_workers_run(workers, offers->count, 1, compare_range, offers);
    ash_workers_close(workers);
    qsort(offers->rows, offers->count, sizeof(offers->rows[0]), ash_compare_by_worth);
    return 0;
}

/* ---- people ------------------------------------------------------------------------------------------------------ */

static void add_row(struct ash_table *table, const struct ash_compare_row *row, double batch)
{
    const struct ash_cluster *cluster = &row->job.cluster;
    const struct ash_plan_step *step = &row->plan.step;
    char layout[128], price[24] = "-", own[32] = "", power[ASH_PLAN_TEXT_BYTES] = "-";

    if (!row->found) {
        ash_table_row(table, "%s|%s", cluster->machine.name, row->reason);
        return;
    }
    if (row->usd > 0) snprintf(price, sizeof(price), "%.0f%s", row->usd, row->reserved_price ? "*" : "");
    if (row->watts > 0) ash_plan_text_watts(row->watts, power);
    if (row->job.global_batch != batch) snprintf(own, sizeof(own), ", batch %.0f", row->job.global_batch);
    ash_table_row(table, "%s|%d|%d|%.1f|%s|%s|%.0f|%.1f|%.1f%%|%s%s", cluster->machine.name, cluster->machines,
                  cluster->gpus, row->days, price, power, step->tokens_s, step->tokens_s_gpu, 100 * step->mfu,
                  ash_layout_text(&row->plan.layout, layout, sizeof(layout)), own);
    ash_table_row(table, "|bound by %s", ash_step_bound(&step->time, 0));
}

void ash_plan_offers_print(const struct ash_plan_offers *offers)
{
    const struct ash_plan_job *job = &offers->job.job;
    struct ash_table table = {.heads = "machine|>machines|>GPUs|>days|>USD|>power|>tokens/s|>per GPU|>MFU|layout"};
    char params[ASH_PLAN_TEXT_BYTES], active[ASH_PLAN_TEXT_BYTES], tokens[ASH_PLAN_TEXT_BYTES];

    printf("%s: %s parameters (%s active), %s tokens, %.0f sequence%s of %.0f per step, no checkpoints or failures\n\n",
           job->shape.name, ash_plan_text_count(ash_shape_params(&job->shape), params),
           ash_plan_text_count(ash_shape_active_params(&job->shape), active), ash_plan_text_count(job->tokens, tokens),
           job->global_batch, ash_plan_plural(job->global_batch), job->seq_tokens);
    for (size_t i = 0; i < offers->count; i++)
        add_row(&table, &offers->rows[i], job->global_batch);
    ash_table_print(&table, stdout);
    printf("MFU of the peak of the layout's precision; * is the price of a capacity block\n");
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode_row(const struct ash_compare_row *row)
{
    const struct ash_cluster *cluster = &row->job.cluster;
    const struct ash_plan_step *step = &row->plan.step;
    char layout[128];

    if (!row->found)
        return json_pack("{s:s, s:b, s:s}", "machine", cluster->machine.name, "found", 0, "reason", row->reason);
    return json_pack("{s:s, s:b, s:i, s:i, s:f, s:f, s:f, s:f, s:b, s:f, s:f, s:f, s:f, s:f, s:s, s:s}", "machine",
                     cluster->machine.name, "found", 1, "machines", cluster->machines, "gpus", cluster->gpus,
                     "global_batch", row->job.global_batch, "days", row->days, "usd", row->usd, "usd_hour",
                     row->usd_hour, "reserved_price", (int)row->reserved_price, "gpu_watts", row->watts, "tokens_s",
                     step->tokens_s, "tokens_s_gpu", step->tokens_s_gpu, "mfu", step->mfu, "memory_bytes",
                     step->memory.total, "layout", ash_layout_text(&row->plan.layout, layout, sizeof(layout)),
                     "bound_by", ash_step_bound(&step->time, 0));
}

json_t *ash_plan_offers_encode(const struct ash_plan_offers *offers)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < offers->count; i++)
        json_array_append_new(rows, encode_row(&offers->rows[i]));
    return rows;
}
