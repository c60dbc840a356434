/* ashlar plan train: which layout, how fast, at what cost, and what bounds it. */
#include "cmd/plan/train_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/plan/goodput_priv.h"
#include "cmd/plan/plan_priv.h"
#include "plan/train/timeline.h"

#define STATE_BYTES 14.0 /* of a weight: bf16 2, fp32 master 4, Adam's moments 8 */
#define MACHINE_GB_S 2.0 /* default rate into shared storage */

struct flags {
    const char *model, *cluster, *layout, *svg;
    double tokens, checkpoint_minutes, storage_gb_s, usd_hour;
    int64_t global_batch, seq, top;
    int precision, recompute, zero, stack, tuning, schedules;
    bool json, no_offload, overlap_dispatch, plain_dispatch;
    struct ash_plan_flags plan;
};

static const char *const recomputes[] = {"none", "selective", "full", "fit", NULL};
static const char *const zeros[] = {"any", "0", "1", "2", "3", NULL};
static const char *const stacks[] = {"fused", "captured", "deepseek", "eager", "compiled", "early", "llama3", NULL};
static const char *const schedules[] = {"usual", "zb-h1", "dualpipe", "all", NULL};
static const unsigned schedule_bits[] = {0, 1u << ASH_PLAN_ZB_H1, 1u << ASH_PLAN_DUALPIPE,
                                         1u << ASH_PLAN_ZB_H1 | 1u << ASH_PLAN_DUALPIPE};
static const char *const tunings[] = {"all", "lora", NULL};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt train_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    ASH_PLAN_OPT_CLUSTER(FIELD(cluster)),
    {"tokens", ASH_OPT_DOUBLE, FIELD(tokens), NULL, "tokens to train on (15T, 15e12); without it no days and dollars",
     1, 1e18, NULL},
    ASH_PLAN_OPT_GLOBAL_BATCH(FIELD(global_batch), "sequences per step"),
    ASH_PLAN_OPT_SEQ(FIELD(seq), "8192"),
    {"layout", ASH_OPT_STRING, FIELD(layout), NULL,
     "evaluate this layout: tp=8,pp=4,vpp=5,zero=1,..., or as the table prints it: 'tp8 pp4x5 zero1'", 0, 0, NULL},
    {"schedules", ASH_OPT_CHOICE, FIELD(schedules), "usual",
     "pipeline schedules to try; usual is 1F1B and interleaved, which every framework has", 0, 0, schedules},
    ASH_PLAN_OPT_PRECISION(FIELD(precision)),
    {"recompute", ASH_OPT_CHOICE, FIELD(recompute), "fit", "activations to recompute; fit is the least that fits", 0, 0,
     recomputes},
    {"zero", ASH_OPT_CHOICE, FIELD(zero), "any",
     "ZeRO stage: what data-parallel ranks share (0 nothing ... 3 everything, as FSDP)", 0, 0, zeros},
    {"no-offload", ASH_OPT_BOOL, FIELD(no_offload), NULL, "never put optimizer state into host memory", 0, 0, NULL},
    {"stack", ASH_OPT_CHOICE, FIELD(stack), "fused", "kind of software that runs it (docs/planning.md)", 0, 0, stacks},
    {"tuning", ASH_OPT_CHOICE, FIELD(tuning), "all", "weights that are trained", 0, 0, tunings},
    {"overlap-dispatch", ASH_OPT_BOOL, FIELD(overlap_dispatch), NULL,
     "expert traffic overlaps with another micro-batch's compute (dualpipe does so by itself)", 0, 0, NULL},
    {"plain-dispatch", ASH_OPT_BOOL, FIELD(plain_dispatch), NULL,
     "a token crosses the network once per expert, not once per machine", 0, 0, NULL},
    {"checkpoint-minutes", ASH_OPT_DOUBLE, FIELD(checkpoint_minutes), "60", "minutes between checkpoints; 0: none", 0,
     1e6, NULL},
    {"storage-gb-s", ASH_OPT_DOUBLE, FIELD(storage_gb_s), NULL,
     "GB/s into shared storage; without it checkpoints write 2 per machine", 1e-3, 1e6, NULL},
    {"usd-hour", ASH_OPT_DOUBLE, FIELD(usd_hour), NULL, "dollars per machine and hour instead of the catalog's", 0, 1e6,
     NULL},
    {"top", ASH_OPT_INT, FIELD(top), "5", "layouts to show", 1, ASH_PLANS_MAX, NULL},
    {"svg", ASH_OPT_STRING, FIELD(svg), NULL, "draw the best layout's step into this file", 0, 0, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table train_table = {
    .section = "", .help = "flags", .opts = train_opts, .count = ASH_COUNT(train_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan train --model DIR|NAME --cluster COUNTxMACHINE [flags]",
    .about = "Searches every way to spread a training job over a cluster (data, sharded, tensor, sequence, pipeline,\n"
             "context and expert parallelism, micro-batch, recomputation, precision, offload) and prints the best:\n"
             "memory per GPU, step time by part, tokens per second, days, dollars, watts, what bounds it and what\n"
             "would change that. How far predictions are from measurements: ashlar plan validate, docs/planning.md.",
    .examples = "  ashlar plan train --model llama-3.1-70b --cluster 64xp5.48xlarge --tokens 2e12\n"
                "  ashlar plan train --model deepseek-v3 --cluster 32xp6-b200.48xlarge --seq 4096 --json\n"
                "  ashlar plan train --model llama-3-8b --cluster p5.48xlarge --layout tp=2,mbs=2 --svg step.svg",
};

/* ---- flags ------------------------------------------------------------------------------------------------------- */

/* Check flags that are missing or contradict each other: the exit code, or 0. */
static int misused(const void *ctx, const struct ash_opts *opts)
{
    const struct flags *flags = ctx;

    if (flags->model == NULL || flags->cluster == NULL)
        return ash_cmd_misuse("plan train",
                              "say which model (--model llama-3.1-70b) and which machines (--cluster 64xp5.48xlarge)");
    if (flags->layout != NULL && ash_opts_is_set(opts, "top"))
        return ash_cmd_misuse("plan train", "--top counts layouts of a search, and --layout gives the only one");
    if (flags->layout != NULL && flags->schedules > 0)
        return ash_cmd_misuse("plan train",
                              "--schedules is for a search: in a layout write schedule=zb-h1 or dualpipe");
    return 0;
}

/* Flags about experts are for models that have some. */
static int check_experts(const struct flags *flags, const struct ash_shape *shape, struct ash_err *err)
{
    if (shape->sparse_layers > 0 || (!flags->overlap_dispatch && !flags->plain_dispatch)) return 0;
    return ash_err_set(err, -EINVAL, "%s has no experts: --overlap-dispatch and --plain-dispatch mean nothing for it",
                       shape->name);
}

static int read_job(const struct flags *flags, const struct ash_catalog *catalog, struct ash_plan_job *job,
                    struct ash_err *err)
{
    int rc = ash_shape_find(flags->model, &job->shape, err);

    if (rc == 0) rc = check_experts(flags, &job->shape, err);
    if (rc == 0) rc = ash_cluster_parse(catalog, flags->cluster, &job->cluster, err);
    if (rc < 0) return rc;
    job->seq_tokens = (double)flags->seq;
    job->global_batch = (double)flags->global_batch;
    job->tokens = flags->tokens;
    job->tuning = flags->tuning == 1 ? ASH_TUNING_LORA : ASH_TUNING_ALL;
    job->stack = ash_stack_find(stacks[flags->stack]);
    job->dedup_dispatch = !flags->plain_dispatch;
    job->overlap_dispatch = flags->overlap_dispatch;
    return 0;
}

static void read_prices(const struct flags *flags, struct ash_plan_train_answer *train)
{
    double storage = flags->storage_gb_s > 0 ? flags->storage_gb_s : MACHINE_GB_S * train->job.cluster.machines;

    train->price = ash_price_of(&train->job.cluster.machine);
    if (flags->usd_hour > 0) train->price = (struct ash_price){.usd_hour = flags->usd_hour};
    train->storage_bytes_s = flags->storage_gb_s * 1e9;
    train->checkpoint_every_s = flags->checkpoint_minutes * 60;
    train->checkpoint_s = ash_shape_params(&train->job.shape) * STATE_BYTES / (storage * 1e9);
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

/* A layout's text may repeat the flags, but not contradict them. */
static int check_agreement(const struct flags *flags, const struct ash_layout *layout, struct ash_err *err)
{
    const struct {
        bool given;
        const char *flag;
        int asked, written;
    } parts[] = {
        {flags->precision > 0, "precision", flags->precision - 1, (int)layout->precision},
        {flags->recompute != ASH_PLAN_RECOMPUTE_FIT, "recompute", flags->recompute, (int)layout->recompute},
        {flags->zero > 0, "zero", flags->zero - 1, layout->zero},
        {flags->no_offload, "no-offload", false, layout->offload},
    };

    for (size_t i = 0; i < ASH_COUNT(parts); i++)
        if (parts[i].given && parts[i].asked != parts[i].written)
            return ash_err_set(err, -EINVAL, "--%s contradicts --layout %s: give one of them", parts[i].flag,
                               flags->layout);
    return 0;
}

static int evaluate_given(const struct ash_consts *consts, const struct flags *flags,
                          struct ash_plan_train_answer *train, struct ash_err *err)
{
    struct ash_layout layout = {.tp = 1, .pp = 1, .cp = 1, .ep = 1, .chunks = 1, .zero = 1, .micro_batch = 1};
    int rc;

    layout.recompute = (enum ash_plan_recompute)flags->recompute;
    if (flags->precision > 0) layout.precision = (enum ash_gpu_precision)(flags->precision - 1);
    if (flags->zero > 0) layout.zero = flags->zero - 1;
    rc = ash_layout_parse(flags->layout, &layout, err);
    if (rc == 0) rc = check_agreement(flags, &layout, err);
    if (rc == 0) rc = ash_layout_check(&train->job, &layout, err);
    if (rc < 0) return rc;
    train->plans[0].layout = layout;
    ash_step_predict(consts, &train->job, &layout, true, &train->plans[0].step);
    train->found = (struct ash_search_result){.count = 1, .tried = 1, .fitting = train->plans[0].step.fits};
    return 0;
}

static int find_plans(const struct ash_consts *consts, const struct flags *flags, struct ash_plan_train_answer *train,
                      struct ash_err *err)
{
    struct ash_search *search = &train->search;

    if (flags->layout != NULL) return evaluate_given(consts, flags, train, err);
    *search = (struct ash_search){.precision = flags->precision - 1,
                                  .recompute = flags->recompute,
                                  .zero = flags->zero - 1,
                                  .no_offload = flags->no_offload,
                                  .schedules = schedule_bits[flags->schedules]};
    if (search->precision >= 0 && train->job.cluster.machine.gpu->flops[search->precision] <= 0)
        return ash_err_set(err, -EINVAL, "%s has no %s arithmetic; bf16 works", train->job.cluster.machine.gpu->name,
                           ash_plan_precisions[flags->precision]);
    return ash_search_run(consts, &train->job, search, train->plans, (size_t)flags->top, &train->found, err);
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_plan_train_answer found; /* large; one command per process */
    struct ash_plan_train_answer *train = &found;
    const struct flags *flags = ctx;
    const struct ash_plan *best = &train->plans[0];
    int rc = read_job(flags, facts->catalog, &train->job, err);

    (void)word;
    if (rc < 0) return rc;
    read_prices(flags, train);
    rc = find_plans(&facts->consts, flags, train, err);
    if (rc < 0) return rc;
    rc = ash_goodput_estimate(&train->job.shape, &train->job.cluster, best->step.time.total, train->storage_bytes_s,
                              &train->goodput_worst, &train->goodput_best, NULL);
    if (rc < 0) train->goodput_best = 0; /* a job that plan goodput refuses has no such line */
    rc = 0;
    train->what_if_count = ash_what_if_list(&facts->consts, &train->job, flags->layout == NULL ? &train->search : NULL,
                                            best, train->what_ifs);
    if (flags->svg != NULL)
        rc = ash_timeline_write(&facts->consts, &train->job, best, ash_plan_train_checkpoint(train, &best->step),
                                flags->svg, err);
    if (rc < 0) return rc;
    if (flags->json) return ash_plan_train_json(train, err);
    ash_plan_train_print(train);
    return 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};

    return ash_plan_run(&(struct ash_plan_question){&usage, &train_table, &flags, &flags.plan, misused, answer_it},
                        argc, argv);
}

const struct ash_cmd ash_cmd_plan_train = {"train", "search layouts of a training job: memory, time, cost, bounds",
                                           run};
