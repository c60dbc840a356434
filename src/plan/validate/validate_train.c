/* Rows of published training runs. */
#include "plan/validate/validate_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/validate/row_cluster.h"
#include "plan/validate/row_shape.h"
#include "plan/train/step.h"

#define FLASH_YEAR 2023
#define FUSED_HEAD 128 /* the widest that first kernels of a generation take */
#define WIDE_HEADS_YEAR 2025
#define WIDE_HEADS_MONTH 6
#define ACCUMULATE_UNSTATED 8 /* micro-batches of a step without a pipeline */

static bool says(const char *text, const char *word)
{
    return strcasestr(text, word) != NULL;
}

static enum ash_plan_recompute recompute_of(const char *text)
{
    if (says(text, "not stated") || text[0] == '\0' || says(text, "none set")) return ASH_PLAN_RECOMPUTE_FIT;
    if (says(text, "full") || says(text, "recompute on")) return ASH_PLAN_RECOMPUTE_FULL;
    if (says(text, "none") || strcmp(text, "off") == 0) return ASH_PLAN_RECOMPUTE_NONE;
    return ASH_PLAN_RECOMPUTE_SELECTIVE;
}

/* The number that text starts with, at most what a cluster can have; 0: none. */
static int leading_number(const char *text)
{
    long value = strtol(text, NULL, 10);

    return value < 0 || value > ASH_CLUSTER_GPUS_MAX ? 0 : (int)value;
}

/* Which state is spread, and over how many ranks ("JAX FSDP 128 x DP 4", "shard group 8"). */
static void read_sharding(const char *text, struct ash_layout *layout)
{
    const char *group = strcasestr(text, "shard group ");
    const char *jax = strcasestr(text, "FSDP ");

    layout->zero = 0;
    if (says(text, "ZeRO-1") || says(text, "distributed optimizer")) layout->zero = 1;
    if (says(text, "ZeRO-2") || says(text, "no reshard")) layout->zero = 2;
    if (layout->zero == 0 && (says(text, "FSDP") || says(text, "ZeRO-3") || says(text, "not stated"))) layout->zero = 3;
    if (group != NULL) layout->shard = leading_number(group + strlen("shard group "));
    if (group == NULL && jax != NULL && says(text, " x DP")) layout->shard = leading_number(jax + strlen("FSDP "));
    if (layout->shard >= layout->dp * layout->cp) layout->shard = 0;
}

/* A row that gives no degree for tensor or context parallelism, but a batch too small for data parallelism alone, must
 * have cut its sequences' work: over tp up to 8 first, then over cp. */
static void cut_sequences(const struct ash_csv *csv, size_t i, const struct ash_plan_job *job,
                          struct ash_layout *layout)
{
    double each = job->cluster.gpus / (double)layout->pp;
    bool tp_free = ash_csv_field(csv, i, "tp")[0] == '\0', cp_free = ash_csv_field(csv, i, "cp")[0] == '\0';

    while (tp_free && layout->tp < 8 && each / (layout->tp * layout->cp) > job->global_batch)
        layout->tp *= 2;
    while (cp_free && layout->cp < 1024 && each / (layout->tp * layout->cp) > job->global_batch)
        layout->cp *= 2;
}

/* A whole number from 1 to what a cluster can have. */
static int degree(const struct ash_csv *csv, size_t i, const char *column, double fallback)
{
    return (int)fmin(fmax(1, ash_csv_number(csv, i, column, fallback)), ASH_CLUSTER_GPUS_MAX);
}

/* The pipeline schedule that a row names, if it names one. */
static enum ash_plan_schedule schedule_of(const struct ash_csv *csv, size_t i)
{
    static const char *const columns[] = {"schedule", "framework", "extra"};

    for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++) {
        const char *text = ash_csv_field(csv, i, columns[c]);

        if (says(text, "DualPipe")) return ASH_PLAN_DUALPIPE;
        if (says(text, "zero bubble") || says(text, "zero-bubble") || says(text, "ZB-H1") || says(text, "ZB1P"))
            return ASH_PLAN_ZB_H1;
    }
    return ASH_PLAN_1F1B;
}

static void read_layout(const struct ash_csv *csv, size_t i, const struct ash_plan_job *job, struct ash_layout *layout)
{
    layout->tp = degree(csv, i, "tp", 1);
    layout->pp = degree(csv, i, "pp", 1);
    layout->cp = degree(csv, i, "cp", 1);
    cut_sequences(csv, i, job, layout);
    layout->chunks = degree(csv, i, "vpp", 1);
    if (layout->pp == 1) layout->chunks = 1;
    layout->dp = degree(csv, i, "dp", floor(job->cluster.gpus / ((double)layout->tp * layout->pp * layout->cp)));
    layout->ep = job->shape.sparse_layers > 0 ? degree(csv, i, "ep", 1) : 1;
    layout->etp = degree(csv, i, "etp", layout->ep > 1 ? 1 : layout->tp);
    layout->recompute = recompute_of(ash_csv_field(csv, i, "recompute"));
    layout->precision = ash_row_precision(csv, i, "precision");
    if (layout->pp > 1 && layout->chunks == 1) layout->schedule = schedule_of(csv, i);
    layout->micro_batch = ash_csv_number(csv, i, "mbs", 0) >= 1 ? degree(csv, i, "mbs", 1) : 0;
    read_sharding(ash_csv_field(csv, i, "sharding"), layout);
}

/* Sequences of a step: as the row says; or what the tokens of a step make; or, where only the micro-batch is known,
 * enough of them to fill a pipeline. */
static double global_batch_of(const struct ash_csv *csv, size_t i, double gpus, double seq_tokens)
{
    double gbs = ash_csv_number(csv, i, "gbs", 0), mbs = ash_csv_number(csv, i, "mbs", 0);
    double step_s = ash_csv_number(csv, i, "step_time_s", 0), rate = ash_csv_number(csv, i, "tokens_s_gpu", 0) * gpus;
    double pp = degree(csv, i, "pp", 1), cut = degree(csv, i, "tp", 1) * pp * degree(csv, i, "cp", 1);

    if (gbs > 0) return gbs;
    if (step_s > 0 && rate > 0) return fmax(1, round(step_s * rate / seq_tokens));
    if (mbs >= 1) return mbs * fmax(1, floor(gpus / cut)) * (pp > 1 ? 4 * pp : ACCUMULATE_UNSTATED);
    return 0;
}

/* Heads wider than 128, as latent attention has them, had no fused backward pass on Blackwell before cuDNN 9.11 (June
 * 2025): the frameworks of that time wrote their scores. */
static bool lacks_flash(const struct ash_csv *csv, size_t i, const struct ash_plan_job *job)
{
    const char *date = ash_csv_field(csv, i, "source_date");
    const struct ash_shape *s = &job->shape;
    int year = leading_number(date), month = strlen(date) > 5 ? leading_number(date + 5) : 12;
    bool wide = (s->kv_rank > 0 ? s->nope_dim + s->rope_dim : s->head_dim) > FUSED_HEAD;

    return wide && job->cluster.machine.gpu->generation >= ASH_GENERATION_BLACKWELL && year > 0 &&
           year * 12 + month < WIDE_HEADS_YEAR * 12 + WIDE_HEADS_MONTH;
}

/* Does a row say that it records parts of a layer as graphs? Then it is not one that records whole steps, whatever its
 * release can do. */
static bool records_parts(const char *extra)
{
    return says(extra, "cuda_graph=") && !says(extra, "cuda_graph=full");
}

/* The kind of software; software of the fused kind's name was of the early kind before flash attention came into it. */
static const struct ash_stack *stack_of(const struct ash_csv *csv, size_t i, const struct ash_gpu *gpu)
{
    const struct ash_stack *stack =
        ash_stack_find_on(ash_csv_field(csv, i, "framework"), gpu, ash_row_precision(csv, i, "precision"));
    int year = leading_number(ash_csv_field(csv, i, "source_date"));

    if (stack == ash_stack_find("captured") && records_parts(ash_csv_field(csv, i, "extra")))
        return ash_stack_find("fused");
    return year > 0 && year < FLASH_YEAR && stack == ash_stack_find("fused") ? ash_stack_find("early") : stack;
}

static void read_job(const struct ash_csv *csv, size_t i, double gpus, struct ash_plan_job *job)
{
    const char *extra = ash_csv_field(csv, i, "extra");

    job->seq_tokens = ash_csv_number(csv, i, "seq_len", 0);
    job->global_batch = global_batch_of(csv, i, gpus, job->seq_tokens);
    job->tuning = says(ash_csv_field(csv, i, "task"), "lora") ? ASH_TUNING_LORA : ASH_TUNING_ALL;
    job->stack = stack_of(csv, i, job->cluster.machine.gpu);
    job->dedup_dispatch = !says(extra, "NCCL alltoall") && (!says(extra, "[preset") || says(extra, "dispatcher="));
    job->overlap_dispatch = says(extra, "overlap=on") || says(extra, "a2a_overlap") || says(extra, "DualPipe");
    job->recompute_some = true;
    job->no_flash = lacks_flash(csv, i, job);
    job->graphs = says(extra, "cuda_graph=full"); /* graphs of parts of a layer leave the host as busy as before */
}

/* An unstated micro-batch is the best one that divides and fits. */
static void predict(const struct ash_validate_context *context, const struct ash_plan_job *job,
                    struct ash_layout *layout, struct ash_plan_step *step_out)
{
    double each = job->global_batch / layout->dp;
    struct ash_plan_step step;

    if (layout->micro_batch > 0) {
        ash_step_predict(context->consts, job, layout, true, step_out);
        return;
    }
    for (int size = 1; size == 1 || (size <= 16 && fmod(each, size) == 0); size *= 2) {
        layout->micro_batch = size;
        ash_step_predict(context->consts, job, layout, true, &step);
        if (size == 1 || (step.fits && step.tokens_s > step_out->tokens_s)) *step_out = step;
    }
}

/* GPUs in all, as the row says or as its degrees multiply to. */
static double gpus_of(const struct ash_csv *csv, size_t i)
{
    double product = ash_csv_number(csv, i, "dp", 0);

    product *= degree(csv, i, "tp", 1) * (double)degree(csv, i, "pp", 1) * degree(csv, i, "cp", 1);
    return ash_csv_number(csv, i, "n_gpus", product);
}

/* Tokens per second and GPU, in whichever of three ways the row has them. */
static double measured_of(const struct ash_csv *csv, size_t i, const struct ash_plan_job *job, double gpus)
{
    double rate = ash_csv_number(csv, i, "tokens_s_gpu", 0), total = ash_csv_number(csv, i, "tokens_s_total", 0);
    double step_s = ash_csv_number(csv, i, "step_time_s", 0);

    if (rate > 0) return rate;
    if (total > 0) return total / gpus;
    return step_s > 0 ? job->global_batch * job->seq_tokens / step_s / gpus : 0;
}

int ash_validate_training(const struct ash_validate_context *context, size_t index, struct ash_validate_row *row)
{
    const struct ash_csv *csv = context->csv;
    struct ash_plan_job job = {0};
    struct ash_layout layout = {0};
    struct ash_plan_step step = {0};
    double gpus = gpus_of(csv, index);
    struct ash_err err = {0};

    if (ash_row_shape(csv, index, &job.shape, &err) < 0 ||
        ash_row_cluster(context->catalog, csv, index, gpus, &job.cluster, &err) < 0)
        return ash_validate_refuse(row, "%.150s", err.text);
    row->kind = ash_validate_kind(&job.shape);
    read_job(csv, index, gpus, &job);
    if (!(job.seq_tokens >= 1 && job.seq_tokens <= 1e9))
        return ash_validate_refuse(row, "the row has no sequence length");
    if (!(job.global_batch >= 1 && job.global_batch <= 1e9))
        return ash_validate_refuse(row, "the row has no global batch");
    read_layout(csv, index, &job, &layout);
    if ((double)layout.tp * layout.pp * layout.cp > gpus)
        return ash_validate_refuse(row, "tp %d * pp %d * cp %d are more than its GPUs", layout.tp, layout.pp,
                                   layout.cp);
    row->measured = measured_of(csv, index, &job, gpus);
    if (!(row->measured > 0)) return ash_validate_refuse(row, "the row has neither tokens per second nor a step time");
    predict(context, &job, &layout, &step);
    row->expected = step.tokens_s_gpu;
    row->fits = step.fits;
    return 0;
}
