/* ashlar plan machines: the same training job on every kind of machine, cheapest first. */
#include "cmd/plan/plan_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/workers.h"
#include "cmd/plan/text.h"
#include "plan/train/compare.h"
#include "plan/train/parts.h"
#include "plan/price.h"

#define ROWS_MAX 256

struct flags {
    const char *model;
    struct ash_opt_list machines;
    double tokens, days;
    int64_t gpus, global_batch, seq;
    int precision;
    bool json, unpriced;
    struct ash_plan_flags plan;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt machines_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    {.name = "tokens",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(tokens),
     .help = "tokens to train on (15T, 15e12)",
     .min = 1,
     .max = 1e18},
    {.name = "gpus",
     .type = ASH_OPT_INT,
     .offset = FIELD(gpus),
     .help = "GPUs of each offer, in whole machines",
     .min = 1,
     .max = ASH_CLUSTER_GPUS_MAX},
    {.name = "days",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(days),
     .help = "days to finish in, instead of --gpus: how many machines that takes",
     .min = 0.01,
     .max = 1e5},
    {.name = "machines",
     .type = ASH_OPT_LIST,
     .offset = FIELD(machines),
     .help = "machines to compare; all that have a price if not given"},
    {.name = "unpriced",
     .type = ASH_OPT_BOOL,
     .offset = FIELD(unpriced),
     .help = "also compare machines without a price"},
    ASH_PLAN_OPT_GLOBAL_BATCH(FIELD(global_batch), "sequences per step, rounded where machines do not divide it"),
    ASH_PLAN_OPT_SEQ(FIELD(seq), "8192"),
    ASH_PLAN_OPT_PRECISION(FIELD(precision)),
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table machines_table = {
    .section = "", .help = "flags", .opts = machines_opts, .count = ASH_COUNT(machines_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan machines --model DIR|NAME --tokens N (--gpus N | --days X) [flags]",
    .about = "Searches the best layout of a training job on every kind of machine, with as many GPUs each, or with as\n"
             "many machines as finish in time, and prints what each would take: layout, days, dollars, kilowatts, and\n"
             "what holds it back. Cheapest first. `ashlar plan train` says more about one of them.",
    .examples = "  ashlar plan machines --model llama-3.1-70b --tokens 2e12 --days 30\n"
                "  ashlar plan machines --model deepseek-v3 --tokens 1e12 --gpus 1024 --seq 4096 --global-batch 4096\n"
                "  ashlar plan machines --model mine --tokens 1e11 --days 7 --machines p5.48xlarge,rack --catalog "
                "mine.yaml",
};

struct comparison {
    const struct ash_consts *consts;
    struct ash_compare_job job;
    const struct ash_machine *machines[ROWS_MAX];
    struct ash_compare_row rows[ROWS_MAX]; /* of each */
    size_t count;
};

/* ---- people ------------------------------------------------------------------------------------------------------ */

static void print_row(const struct ash_compare_row *row, double batch)
{
    const struct ash_cluster *cluster = &row->job.cluster;
    const struct ash_plan_step *step = &row->plan.step;
    char layout[128], price[24] = "-", power[ASH_PLAN_TEXT_BYTES] = "-";

    if (!row->found) {
        printf("%-20s %s\n", cluster->machine.name, row->reason);
        return;
    }
    if (row->usd > 0) snprintf(price, sizeof(price), "%.0f%s", row->usd, row->reserved_price ? "*" : "");
    if (row->watts > 0) ash_plan_text_watts(row->watts, power);
    printf("%-20s %8d %7d %9.1f %12s %8s %10.0f %8.1f %5.1f%%  %s", cluster->machine.name, cluster->machines,
           cluster->gpus, row->days, price, power, step->tokens_s, step->tokens_s_gpu, 100 * step->mfu,
           ash_layout_text(&row->plan.layout, layout, sizeof(layout)));
    if (row->job.global_batch != batch) printf(", batch %.0f", row->job.global_batch);
    printf("\n%-20s bound by %s\n", "", ash_step_bound(&step->time, 0));
}

static void print_table(const struct comparison *answer)
{
    const struct ash_plan_job *job = &answer->job.job;
    char params[ASH_PLAN_TEXT_BYTES], active[ASH_PLAN_TEXT_BYTES], tokens[ASH_PLAN_TEXT_BYTES];

    printf("%s: %s parameters (%s active), %s tokens, %.0f sequence%s of %.0f per step, no checkpoints or failures\n\n",
           job->shape.name, ash_plan_text_count(ash_shape_params(&job->shape), params),
           ash_plan_text_count(ash_shape_active_params(&job->shape), active), ash_plan_text_count(job->tokens, tokens),
           job->global_batch, ash_plan_plural(job->global_batch), job->seq_tokens);
    printf("%-20s %8s %7s %9s %12s %8s %10s %8s %6s  %s\n", "machine", "machines", "GPUs", "days", "USD", "power",
           "tokens/s", "per GPU", "MFU", "layout");
    for (size_t i = 0; i < answer->count; i++)
        print_row(&answer->rows[i], job->global_batch);
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

static json_t *encode(const struct comparison *answer)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < answer->count; i++)
        json_array_append_new(rows, encode_row(&answer->rows[i]));
    return json_pack("{s:s, s:f, s:o}", "model", answer->job.job.shape.name, "tokens", answer->job.job.tokens,
                     "machines", rows);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int fill_job(const struct flags *flags, struct ash_compare_job *job, struct ash_err *err)
{
    job->job.seq_tokens = (double)flags->seq;
    job->job.global_batch = (double)flags->global_batch;
    job->job.tokens = flags->tokens;
    job->job.dedup_dispatch = true;
    job->search =
        (struct ash_search){.precision = flags->precision - 1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    job->gpus = (double)flags->gpus;
    job->days = flags->days;
    return ash_shape_find(flags->model, &job->job.shape, err);
}

/* Some of the machines: each is a search of its own. */
static void compare_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct comparison *answer = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        ash_compare(answer->consts, &answer->job, answer->machines[i], &answer->rows[i]);
}

static int choose_machines(const struct flags *flags, const struct ash_plan_facts *facts, struct comparison *answer,
                           struct ash_err *err)
{
    for (size_t i = 0; i < flags->machines.count && answer->count < ROWS_MAX; i++) {
        int rc = ash_catalog_machine(facts->catalog, flags->machines.items[i], &answer->machines[answer->count], err);

        if (rc < 0) return rc;
        answer->count++;
    }
    for (size_t i = 0; i < ash_catalog_machine_count(facts->catalog) && flags->machines.count == 0; i++) {
        const struct ash_machine *machine = ash_catalog_machine_at(facts->catalog, i);

        if (answer->count < ROWS_MAX && (flags->unpriced || ash_price_of(machine).usd_hour > 0))
            answer->machines[answer->count++] = machine;
    }
    return 0;
}

static int compare_all(const struct flags *flags, const struct ash_plan_facts *facts, struct comparison *answer,
                       struct ash_err *err)
{
    struct ash_workers *workers = NULL;
    int rc = choose_machines(flags, facts, answer, err);

    if (rc == 0) rc = ash_workers_open(0, &workers, err);
    if (rc < 0) return rc;
    answer->consts = &facts->consts;
    ash_workers_run(workers, answer->count, 1, compare_range, answer);
    ash_workers_close(workers);
    qsort(answer->rows, answer->count, sizeof(answer->rows[0]), ash_compare_by_worth);
    return 0;
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct comparison answer; /* large; one command per process */
    const struct flags *flags = ctx;
    int rc = fill_job(flags, &answer.job, err);

    (void)word;
    if (rc == 0) rc = compare_all(flags, facts, &answer, err);
    if (rc < 0) return rc;
    if (flags->json) return ash_cmd_print_json(encode(&answer), err);
    print_table(&answer);
    return 0;
}

/* Flags that are missing or mean nothing together: the exit code, or 0. */
static int misused(const void *ctx, const struct ash_opts *opts)
{
    const struct flags *flags = ctx;

    (void)opts;
    if (flags->model == NULL || flags->tokens <= 0)
        return ash_cmd_misuse("plan machines", "say which model (--model llama-3.1-70b) and how many tokens (--tokens "
                                               "2e12)");
    if (flags->gpus > 0 && flags->days > 0) return ash_cmd_misuse("plan machines", "give --gpus or --days, not both");
    if (flags->gpus <= 0 && flags->days <= 0)
        return ash_cmd_misuse("plan machines", "give --gpus or --days: how many GPUs, or in which time");
    return 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};

    return ash_plan_run(&(struct ash_plan_question){&usage, &machines_table, &flags, &flags.plan, misused, answer_it},
                        argc, argv);
}

const struct ash_cmd ash_cmd_plan_machines = {"machines", "which machines for a training job: days and dollars of each",
                                              run};
