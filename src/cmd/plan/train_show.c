/* The answer of `ashlar plan train`, as a table for people and as JSON for programs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "cmd/cmd.h"
#include "cmd/plan/text.h"
#include "cmd/plan/train_priv.h"
#include "plan/train/parts.h"

#define DAY_S 86400.0
#define WORTH_A_LINE 0.005 /* of speed */

double ash_plan_train_checkpoint(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    if (train->checkpoint_every_s <= 0) return 0;
    return step->time.total * train->checkpoint_s / train->checkpoint_every_s;
}

/* Seconds of a step with its share of checkpoints. */
static double step_seconds(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return step->time.total + ash_plan_train_checkpoint(train, step);
}

/* What checkpoints leave of a speed. */
static double slowed(const struct ash_plan_train_answer *train, const struct ash_plan_step *step, double rate)
{
    return rate * step->time.total / step_seconds(train, step);
}

static double tokens_s(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return slowed(train, step, step->tokens_s);
}

static double mfu(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return slowed(train, step, step->mfu);
}

/* Of model FLOPs, per GPU. */
static double flops_s(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return tokens_s(train, step) * step->model_flops / train->job.cluster.gpus;
}

static double days(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return train->job.tokens / tokens_s(train, step) / DAY_S;
}

static double dollars(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return days(train, step) * 24 * train->price.usd_hour * train->job.cluster.machines;
}

static double gpu_hours(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return days(train, step) * 24 * train->job.cluster.gpus;
}

/* Days of nothing but steps: what failures and the checkpoints against them are added to. */
static double bare_days(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return train->job.tokens / step->tokens_s / DAY_S;
}

/* Days of the best plan where failures leave this share of the time, checkpoints included. */
static double failing_days(const struct ash_plan_train_answer *train, double goodput)
{
    return bare_days(train, &train->plans[0].step) / goodput;
}

/* Of all GPUs at their limit; 0: not known. */
static double watts(const struct ash_plan_train_answer *train)
{
    return train->job.cluster.machine.gpu->watts * train->job.cluster.gpus;
}

static double watt_hours(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return watts(train) * days(train, step) * 24;
}

static bool fits(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    return step->fits && ash_plan_fits_host(&train->job, &step->memory);
}

/* ---- people ------------------------------------------------------------------------------------------------------ */

static void add_plan(struct ash_table *table, const struct ash_plan_train_answer *train, size_t index)
{
    const struct ash_plan *plan = &train->plans[index];
    const struct ash_plan_step *step = &plan->step;
    char text[128];

    ash_table_row(table, "%zu|%s|%s|%.0f|%.1f|%.0f|%.1f%%|%.3f|%.1f%s", index + 1,
                  ash_layout_text(&plan->layout, text, sizeof(text)), ash_plan_recompute_name(step->recompute),
                  tokens_s(train, step), tokens_s(train, step) / train->job.cluster.gpus, flops_s(train, step) / 1e12,
                  100 * mfu(train, step), step_seconds(train, step), step->memory.total / 1e9,
                  fits(train, step) ? " " : "!");
    if (train->job.tokens > 0) ash_table_cell(table, "%.1f", days(train, step));
    if (train->job.tokens > 0 && train->price.usd_hour > 0) ash_table_cell(table, "%.0f", dollars(train, step));
}

static void print_time(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    struct ash_table table = {.heads = "|>|>", .indent = 4};
    struct ash_step_part parts[ASH_STEP_PARTS];
    double total = step_seconds(train, step);

    printf("  step time %.4f s, %d micro-batch%s per pipeline\n", total, step->micro_batches,
           step->micro_batches == 1 ? "" : "es");
    ash_step_parts(&step->time, ash_plan_train_checkpoint(train, step), parts);
    for (size_t i = 0; i < ASH_STEP_PARTS; i++)
        ash_table_row(&table, "%s|%.4f s|%.1f%%", parts[i].name, parts[i].seconds, 100 * parts[i].seconds / total);
    ash_table_print(&table, stdout);
}

static void print_memory(const struct ash_plan_train_answer *train, const struct ash_step_memory *m)
{
    printf(
        "  memory per GPU %.1f GB of %.1f GB usable: weights %.1f, gradients %.1f, optimizer %.1f, activations %.1f, "
        "buffers %.1f\n",
        m->total / 1e9, m->capacity / 1e9, m->weights / 1e9, m->gradients / 1e9, m->optimizer / 1e9,
        m->activations / 1e9, m->buffers / 1e9);
    if (m->host > 0) printf("  host memory per GPU %.1f GB\n", m->host / 1e9);
    if (m->total > m->capacity)
        printf("  IT DOES NOT FIT: recompute more, spread state wider (zero=3), raise tp or pp, or lower mbs\n");
    if (!ash_plan_fits_host(&train->job, m))
        printf("  IT DOES NOT FIT into the %.0f GB of a host: take more machines, or no offload\n",
               train->job.cluster.machine.host_bytes / 1e9);
}

static void print_power(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    char power[ASH_PLAN_TEXT_BYTES], energy[ASH_PLAN_TEXT_BYTES];

    if (watts(train) <= 0) return;
    printf("  GPUs draw up to %s", ash_plan_text_watts(watts(train), power));
    if (train->job.tokens > 0) printf(", %s in all", ash_plan_text_energy(watt_hours(train, step), energy));
    printf("\n");
}

/* GPU-hours, and what failures and checkpoints make of the days. */
static void print_budget(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    char hours[ASH_PLAN_TEXT_BYTES], low[ASH_PLAN_TEXT_BYTES], high[ASH_PLAN_TEXT_BYTES];

    if (train->job.tokens <= 0) return;
    printf("  without failures and checkpoints %.1f days, %s GPU-hours", bare_days(train, step),
           ash_plan_text_count(bare_days(train, step) * 24 * train->job.cluster.gpus, hours));
    if (train->goodput_best > 0) {
        double best = failing_days(train, train->goodput_best), worst = failing_days(train, train->goodput_worst);
        double usd_day = train->price.usd_hour * train->job.cluster.machines * 24;

        printf("; with both (ashlar plan goodput) %.1f to %.1f days", best, worst);
        if (usd_day > 0)
            printf(", %s to %s USD", ash_plan_text_count(best * usd_day, low),
                   ash_plan_text_count(worst * usd_day, high));
    }
    printf("\n");
}

static void print_head(const struct ash_plan_train_answer *train)
{
    const struct ash_plan_job *job = &train->job;
    const struct ash_machine *machine = &job->cluster.machine;
    char params[ASH_PLAN_TEXT_BYTES], active[ASH_PLAN_TEXT_BYTES];

    printf("%s: %s parameters (%s active) on %d x %s = %d %s, %.0f sequence%s of %.0f tokens per step\n",
           job->shape.name, ash_plan_text_count(ash_shape_params(&job->shape), params),
           ash_plan_text_count(ash_shape_active_params(&job->shape), active), job->cluster.machines, machine->name,
           job->cluster.gpus, machine->gpu->name, job->global_batch, ash_plan_plural(job->global_batch),
           job->seq_tokens);
    if (train->found.tried > 1) printf("%zu layouts, %zu fit\n", train->found.tried, train->found.fitting);
    printf("\n");
}

static void print_plans(const struct ash_plan_train_answer *train)
{
    const char *days = train->job.tokens > 0 ? "|>days" : "";
    const char *price = train->job.tokens <= 0 || train->price.usd_hour <= 0 ? ""
                        : train->price.reserved                              ? "|>USD (block)"
                                                                             : "|>USD";
    struct ash_table table = {0};
    char heads[128];

    snprintf(heads, sizeof(heads), ">|layout|recompute|>tokens/s|>per GPU|>TFLOPs|>MFU|>step s|>GB %s%s", days, price);
    table.heads = heads;
    for (size_t i = 0; i < train->found.count; i++)
        add_plan(&table, train, i);
    ash_table_print(&table, stdout);
}

/* A batch that GPUs do not divide leaves them unequal: another one near it may be faster. */
static void print_rounding(const struct ash_plan_train_answer *train)
{
    double gpus = train->job.cluster.gpus, batch = train->job.global_batch, rounded = ceil(batch / gpus) * gpus;

    if (batch < gpus || rounded == batch) return;
    printf("note: %.0f sequences are no multiple of %.0f GPUs; --global-batch %.0f may be faster\n", batch, gpus,
           rounded);
}

static void print_what_ifs(const struct ash_plan_train_answer *train)
{
    struct ash_table table = {.heads = "|>|", .indent = 4};
    char own[128], other[128];

    ash_layout_text(&train->plans[0].layout, own, sizeof(own));
    for (size_t i = 0; i < train->what_if_count; i++) {
        const struct ash_what_if *item = &train->what_ifs[i];

        if (fabs(item->gain) < WORTH_A_LINE) continue;
        ash_layout_text(&item->layout, other, sizeof(other));
        ash_table_row(&table, "%s|%+.1f%%|%s%s", item->change, 100 * item->gain, item->fits ? "" : "does not fit  ",
                      strcmp(own, other) != 0 ? other : "");
    }
    ash_table_print(&table, stdout);
}

/* Do the plans differ in precision? */
static bool is_mixed(const struct ash_plan_train_answer *train)
{
    for (size_t i = 1; i < train->found.count; i++)
        if (train->plans[i].layout.precision != train->plans[0].layout.precision) return true;
    return false;
}

void ash_plan_train_print(const struct ash_plan_train_answer *train)
{
    const struct ash_plan_job *job = &train->job;
    const struct ash_layout *first = &train->plans[0].layout;
    const struct ash_plan_step *best = &train->plans[0].step;

    print_head(train);
    print_plans(train);
    printf(
        "    TFLOPs per GPU and MFU: causal attention, nothing recomputed counts; MFU of the %s peak, %.0f TFLOPs%s\n",
        ash_plan_precision_name(first->precision), job->cluster.machine.gpu->flops[first->precision] / 1e12,
        is_mixed(train) ? " (of each row's precision)" : "");
    print_rounding(train);
    printf("\n%s\n", train->found.tried > 1 ? "best layout" : "this layout");
    print_time(train, best);
    print_memory(train, &best->memory);
    print_budget(train, best);
    print_power(train, best);
    if (job->tokens > 0 && train->price.usd_hour <= 0)
        printf("  no price is known for %s: --usd-hour gives one\n", job->cluster.machine.name);
    printf("  bound by %s; what would change that:\n",
           ash_step_bound(&best->time, ash_plan_train_checkpoint(train, best)));
    print_what_ifs(train);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *layout_json(const struct ash_layout *l)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b}", "dp", l->dp, "tp", l->tp,
                     "pp", l->pp, "vpp", l->chunks, "schedule", ash_plan_schedule_name(l->schedule), "cp", l->cp, "ep",
                     l->ep, "etp", l->etp, "zero", l->zero, "shard", l->shard, "mbs", l->micro_batch, "precision",
                     ash_plan_precision_name(l->precision), "offload", l->offload);
}

static json_t *time_json(const struct ash_plan_train_answer *train, const struct ash_plan_step *step)
{
    struct ash_step_part parts[ASH_STEP_PARTS];
    json_t *json = json_object();

    ash_step_parts(&step->time, ash_plan_train_checkpoint(train, step), parts);
    for (size_t i = 0; i < ASH_STEP_PARTS; i++)
        json_object_set_new(json, parts[i].key, json_real(parts[i].seconds));
    json_object_set_new(json, "total", json_real(step_seconds(train, step)));
    return json;
}

static json_t *memory_json(const struct ash_step_memory *m)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "weights", m->weights, "gradients", m->gradients,
                     "optimizer", m->optimizer, "activations", m->activations, "buffers", m->buffers, "total", m->total,
                     "capacity", m->capacity, "host", m->host);
}

static json_t *plan_json(const struct ash_plan_train_answer *train, const struct ash_plan *plan)
{
    const struct ash_plan_step *step = &plan->step;
    json_t *json = json_pack(
        "{s:o, s:s, s:i, s:b, s:o, s:o, s:f, s:f, s:f, s:f, s:s}", "layout", layout_json(&plan->layout), "recompute",
        ash_plan_recompute_name(step->recompute), "micro_batches", step->micro_batches, "fits", fits(train, step),
        "memory_bytes", memory_json(&step->memory), "step_s", time_json(train, step), "tokens_s", tokens_s(train, step),
        "tokens_s_gpu", tokens_s(train, step) / train->job.cluster.gpus, "flops_s_gpu", flops_s(train, step), "mfu",
        mfu(train, step), "bound_by", ash_step_bound(&step->time, ash_plan_train_checkpoint(train, step)));

    if (json == NULL || train->job.tokens <= 0) return json;
    json_object_set_new(json, "days", json_real(days(train, step)));
    json_object_set_new(json, "gpu_hours", json_real(gpu_hours(train, step)));
    if (train->price.usd_hour > 0) json_object_set_new(json, "usd", json_real(dollars(train, step)));
    if (watts(train) > 0) json_object_set_new(json, "gpu_mwh", json_real(watt_hours(train, step) / 1e6));
    return json;
}

static json_t *what_if_json(const struct ash_plan_train_answer *train, const struct ash_what_if *item)
{
    return json_pack("{s:s, s:f, s:f, s:b, s:o}", "change", item->change, "tokens_s",
                     slowed(train, &train->plans[0].step, item->tokens_s), "gain", item->gain, "fits", item->fits,
                     "layout", layout_json(&item->layout));
}

/* Days of the best plan with failures, best and worst way to keep state; null where they are not known. */
static json_t *failures_json(const struct ash_plan_train_answer *train)
{
    if (train->job.tokens <= 0 || train->goodput_best <= 0) return json_null();
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "bare_days", bare_days(train, &train->plans[0].step), "best_days",
                     failing_days(train, train->goodput_best), "worst_days", failing_days(train, train->goodput_worst),
                     "best_goodput", train->goodput_best, "worst_goodput", train->goodput_worst);
}

int ash_plan_train_json(const struct ash_plan_train_answer *train, struct ash_err *err)
{
    const struct ash_plan_job *job = &train->job;
    json_t *plans = json_array(), *what_ifs = json_array();

    for (size_t i = 0; i < train->found.count; i++)
        json_array_append_new(plans, plan_json(train, &train->plans[i]));
    for (size_t i = 0; i < train->what_if_count; i++)
        json_array_append_new(what_ifs, what_if_json(train, &train->what_ifs[i]));
    return ash_cmd_print_json(
        json_pack("{s:s, s:f, s:f, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:I, s:I, s:o, s:o, s:o}", "model",
                  job->shape.name, "params", ash_shape_params(&job->shape), "active_params",
                  ash_shape_active_params(&job->shape), "machine", job->cluster.machine.name, "machines",
                  job->cluster.machines, "gpus", job->cluster.gpus, "global_batch", job->global_batch, "seq",
                  job->seq_tokens, "gpu_watts", watts(train), "usd_hour", train->price.usd_hour * job->cluster.machines,
                  "layouts_tried", (json_int_t)train->found.tried, "layouts_fitting", (json_int_t)train->found.fitting,
                  "plans", plans, "what_if", what_ifs, "with_failures", failures_json(train)),
        err);
}
