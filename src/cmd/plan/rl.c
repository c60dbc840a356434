/* ashlar plan rl: can training and sampling share one cluster, and how? */
#include "cmd/plan/plan_priv.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/table.h"
#include "cmd/plan/rl_run.h"
#include "plan/price.h"
#include "plan/rl/rl.h"

struct flags {
    const char *model, *cluster, *run;
    int64_t procs, prompts, samples, in_tokens, out_tokens, thinking, verify;
    int weights, cache, precision;
    double usd_gpu_hour;
    bool json;
    struct ash_plan_flags plan;
};

static const char *const serve_precisions[] = {"bf16", "fp8", "fp4", NULL};
static const char *const train_precisions[] = {"any", "bf16", "fp8", "fp4", NULL};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt rl_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    ASH_PLAN_OPT_CLUSTER(FIELD(cluster)),
    {"run", ASH_OPT_STRING, FIELD(run), NULL,
     "a run of ashlar rl with rollout.mode=apart: how its processes should be divided, from its own seconds", 0, 0,
     NULL},
    {"procs", ASH_OPT_INT, FIELD(procs), "0", "with --run: processes to divide; 0: as many as it has", 0, 1e6, NULL},
    {"prompts", ASH_OPT_INT, FIELD(prompts), "512", "prompts of one step", 1, 1e7, NULL},
    {"samples", ASH_OPT_INT, FIELD(samples), "8", "answers to each prompt", 1, 1e5, NULL},
    {"in", ASH_OPT_INT, FIELD(in_tokens), "1024", "tokens of a prompt", 1, 1e8, NULL},
    {"out", ASH_OPT_INT, FIELD(out_tokens), "2048", "tokens of an answer", 1, 1e8, NULL},
    {"thinking", ASH_OPT_INT, FIELD(thinking), "0", "tokens of thinking before each answer", 0, 1e8, NULL},
    {"verify", ASH_OPT_INT, FIELD(verify), "0", "verifier passes over each answer", 0, 1e3, NULL},
    {"weights", ASH_OPT_CHOICE, FIELD(weights), "bf16", "precision of the samplers' weights", 0, 0, serve_precisions},
    {"cache", ASH_OPT_CHOICE, FIELD(cache), "bf16", "precision of the samplers' caches", 0, 0, serve_precisions},
    {"precision", ASH_OPT_CHOICE, FIELD(precision), "bf16", "precision of the trainer's matrix products", 0, 0,
     train_precisions},
    {"usd-gpu-hour", ASH_OPT_DOUBLE, FIELD(usd_gpu_hour), NULL, "dollars per GPU-hour, instead of the catalog's", 0,
     1e4, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table rl_table = {
    .section = "", .help = "flags", .opts = rl_opts, .count = ASH_COUNT(rl_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan rl --model DIR|NAME --cluster COUNTxMACHINE | --run DIR [flags]",
    .about = "Reinforcement learning samples answers, scores them and trains on them. Compares taking turns on all\n"
             "machines with giving each side its own, in several proportions: seconds of sampling, training and of\n"
             "handing new weights over, and what moving a machine from one side to the other costs. Of a run that\n"
             "samples and trains in different processes, --run reads the seconds that it has measured.",
    .examples =
        "  ashlar plan rl --model qwen3-32b --cluster 16xp5.48xlarge --prompts 512 --samples 16 --thinking 8000\n"
        "  ashlar plan rl --model deepseek-v3 --cluster 64xp5en.48xlarge --weights fp8 --json\n"
        "  ashlar plan rl --run runs/rl-apart",
};

/* ---- people ------------------------------------------------------------------------------------------------------ */

static const char *limit_of(const struct ash_rl_split *split)
{
    if (split->turns) return "in turns";
    return split->train_s > split->sample_s ? "samplers wait" : "the trainer waits";
}

static void add_split(struct ash_table *table, const struct ash_rl_split *split, bool best)
{
    char cut[32], layout[128];

    ash_table_row(table, "%d|%d|%.1f|%.1f|%.1f|%.1f|%s|%.0f x %s; %s%s", split->train_machines, split->sample_machines,
                  split->sample_s, split->train_s, split->handover_s + split->swap_s, split->step_s, limit_of(split),
                  split->replicas, ash_serve_cut(&split->point.infer, cut, sizeof(cut)),
                  ash_layout_text(&split->plan.layout, layout, sizeof(layout)), best ? "  best" : "");
}

static void print_table(const struct ash_rl_job *job, const struct ash_rl *rl)
{
    const struct ash_serve_job *serve = &job->serve;
    const struct ash_rl_split *best = &rl->splits[rl->best];
    struct ash_table table = {.heads = ">training|>sampling|>sample s|>train s|>between s|>step s||samplers; trainer"};

    printf("%s on %d x %s: %g prompts of %g tokens a step, %g answers of %g to each\n\n", serve->shape.name,
           serve->cluster.machines, serve->cluster.machine.name, job->prompts, serve->in_tokens, serve->samples,
           serve->thinking_tokens + serve->answer_tokens);
    for (size_t i = 0; i < rl->count; i++)
        add_split(&table, &rl->splits[i], i == rl->best);
    ash_table_print(&table, stdout);
    printf("machines in the first two columns; between: new weights to the samplers%s\n",
           best->swap_s > 0 ? ", and the trainer's state to host memory and back" : "");
    if (serve->samples > 1)
        printf("reading each prompt once for its %g answers saves %.0f %% of the samplers' time\n", serve->samples,
               100 * rl->reuse_share);
    if (serve->cluster.machines > 1)
        printf("a machine that samples can be taken at once: answers of at most %.0f s are begun again\n"
               "a machine that joins or leaves the trainer moves its share of the state: %.1f s\n",
               rl->leave_s, rl->move_s);
    printf("verdict: %s, %.1f s a step", best->turns ? "take turns on all machines" : "give each side its own machines",
           best->step_s);
    if (best->usd_step > 0) printf(", $%.2f", best->usd_step);
    printf("%s\n", best->turns ? "" : "; answers are one step older than the weights");
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode_split(const struct ash_rl_split *split)
{
    char cut[32], layout[128];

    return json_pack("{s:i, s:i, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:f, s:s}", "train_machines",
                     split->train_machines, "sample_machines", split->sample_machines, "turns", (int)split->turns,
                     "sample_s", split->sample_s, "train_s", split->train_s, "handover_s", split->handover_s, "swap_s",
                     split->swap_s, "step_s", split->step_s, "usd_step", split->usd_step, "sampler",
                     ash_serve_cut(&split->point.infer, cut, sizeof(cut)), "replicas", split->replicas, "trainer",
                     ash_layout_text(&split->plan.layout, layout, sizeof(layout)));
}

static json_t *encode(const struct ash_rl_job *job, const struct ash_rl *rl)
{
    json_t *splits = json_array();

    for (size_t i = 0; i < rl->count; i++)
        json_array_append_new(splits, encode_split(&rl->splits[i]));
    return json_pack("{s:s, s:s, s:i, s:o, s:i, s:f, s:f, s:f}", "model", job->serve.shape.name, "machine",
                     job->serve.cluster.machine.name, "machines", job->serve.cluster.machines, "splits", splits, "best",
                     (int)rl->best, "prompt_reuse_share", rl->reuse_share, "leave_s", rl->leave_s, "move_s",
                     rl->move_s);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int fill_job(const struct flags *flags, const struct ash_catalog *catalog, struct ash_rl_job *job,
                    struct ash_err *err)
{
    struct ash_serve_job *serve = &job->serve;
    int rc = ash_shape_find(flags->model, &serve->shape, err);

    if (rc == 0) rc = ash_cluster_parse(catalog, flags->cluster, &serve->cluster, err);
    if (rc < 0) return rc;
    serve->weights = serve->compute = (enum ash_gpu_precision)flags->weights;
    if (serve->cluster.machine.gpu->flops[serve->compute] <= 0) serve->compute = ASH_GPU_BF16;
    serve->cache = (enum ash_gpu_precision)flags->cache;
    serve->in_tokens = (double)flags->in_tokens;
    serve->answer_tokens = (double)flags->out_tokens;
    serve->thinking_tokens = (double)flags->thinking;
    serve->samples = (double)flags->samples;
    serve->verify_passes = (double)flags->verify;
    serve->usd_gpu_hour = flags->usd_gpu_hour > 0 ? flags->usd_gpu_hour : ash_price_gpu_hour(&serve->cluster.machine);
    job->prompts = (double)flags->prompts;
    job->search =
        (struct ash_search){.precision = flags->precision - 1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    return 0;
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    const struct flags *flags = ctx;
    struct ash_rl_job job = {0};
    struct ash_rl rl;
    int rc;

    (void)word;
    if (flags->run != NULL) return ash_plan_rl_run(flags->run, flags->procs, flags->json, err);
    rc = fill_job(flags, facts->catalog, &job, err);
    if (rc == 0) rc = ash_rl_plan(&facts->consts, &job, &rl, err);
    if (rc < 0) return rc;
    if (flags->json) return ash_cmd_print_json(encode(&job, &rl), err);
    print_table(&job, &rl);
    return 0;
}

/* Flags that are missing: the exit code, or 0. */
static int misused(const void *ctx, const struct ash_opts *opts)
{
    const struct flags *flags = ctx;

    (void)opts;
    if (flags->run != NULL || (flags->model != NULL && flags->cluster != NULL)) return 0;
    return ash_cmd_misuse(
        "plan rl", "say which model (--model qwen3-32b) and which machines (--cluster 16xp5.48xlarge), or which run "
                   "(--run DIR)");
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};

    return ash_plan_run(&(struct ash_plan_question){&usage, &rl_table, &flags, &flags.plan, misused, answer_it}, argc,
                        argv);
}

const struct ash_cmd ash_cmd_plan_rl = {"rl", "can training and sampling share one cluster, and in which proportion",
                                        run};
