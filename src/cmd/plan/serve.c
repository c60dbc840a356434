/* ashlar plan serve: how to serve a model on given machines, how fast, and for how much. */
#include "cmd/plan/plan_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/plan/serve_priv.h"
#include "plan/price.h"

static const char *const precisions[] = {"bf16", "fp8", "fp4", NULL};

struct flags {
    const char *model, *cluster, *svg;
    struct ash_plan_flags plan;
    int weights, cache;
    int64_t in_tokens, out_tokens, thinking, samples, verify, tp, pp, ep, attn_dp, show;
    double qps, ttft_ms, itl_ms, usd_gpu_hour;
    bool json;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt serve_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    ASH_PLAN_OPT_CLUSTER(FIELD(cluster)),
    {"in", ASH_OPT_INT, FIELD(in_tokens), "1024", "tokens of a prompt", 1, 1e8, NULL},
    {"out", ASH_OPT_INT, FIELD(out_tokens), "512", "tokens of an answer", 1, 1e8, NULL},
    {"thinking", ASH_OPT_INT, FIELD(thinking), "0", "tokens of thinking before each answer", 0, 1e8, NULL},
    {"samples", ASH_OPT_INT, FIELD(samples), "1", "answers per request, from one prompt", 1, 1e5, NULL},
    {"verify", ASH_OPT_INT, FIELD(verify), "0", "verifier passes over each answer", 0, 1e3, NULL},
    {"qps", ASH_OPT_DOUBLE, FIELD(qps), NULL, "requests per second that must be answered", 0, 1e9, NULL},
    {"ttft-ms", ASH_OPT_DOUBLE, FIELD(ttft_ms), NULL, "milliseconds to the first token at most", 0, 1e9, NULL},
    {"itl-ms", ASH_OPT_DOUBLE, FIELD(itl_ms), NULL, "milliseconds between tokens at most", 0, 1e9, NULL},
    {"weights", ASH_OPT_CHOICE, FIELD(weights), "bf16", "precision of the weights", 0, 0, precisions},
    {"cache", ASH_OPT_CHOICE, FIELD(cache), "bf16", "precision of the key/value cache", 0, 0, precisions},
    {"tp", ASH_OPT_INT, FIELD(tp), "0", "GPUs that share each matrix; 0: search", 0, 1024, NULL},
    {"pp", ASH_OPT_INT, FIELD(pp), "0", "stages of a pipeline; 0: search", 0, 1024, NULL},
    {"ep", ASH_OPT_INT, FIELD(ep), "0", "GPUs that share the experts; 0: search", 0, 1024, NULL},
    {"attn-dp", ASH_OPT_INT, FIELD(attn_dp), "0", "groups that requests are split among for attention; 0: search", 0,
     1024, NULL},
    {"usd-gpu-hour", ASH_OPT_DOUBLE, FIELD(usd_gpu_hour), NULL, "dollars per GPU-hour, instead of the catalog's", 0,
     1e4, NULL},
    {"show", ASH_OPT_INT, FIELD(show), "6", "layouts of a replica to print", 1, ASH_SERVE_POINTS_MAX, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
    {"svg", ASH_OPT_STRING, FIELD(svg), NULL, "draw throughput over latency into this file", 0, 0, NULL},
};
static const struct ash_opt_table serve_table = {"", "flags", serve_opts, ASH_COUNT(serve_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan serve --model NAME|DIR --cluster COUNTxNAME [flags]",
    .about =
        "Searches how to cut a replica of the model (tp, pp, experts, attention by requests) and how many requests to\n"
        "run together, within limits on the time to the first token and between tokens. Prints throughput,\n"
        "latency, room for caches and dollars per million output tokens, compares unified replicas with replicas\n"
        "of their own for prompts, and recommends one. Several answers per request, verifier passes and long\n"
        "thinking are counted with what they share.",
    .examples =
        "  ashlar plan serve --model llama-3.1-70b --cluster 2xp5.48xlarge --weights fp8 --cache fp8 --itl-ms 40\n"
        "  ashlar plan serve --model deepseek-v3 --cluster 8xp5en.48xlarge --weights fp8 --in 4000 --out 1000 --qps "
        "40\n"
        "  ashlar plan serve --model qwen3-32b --cluster 8xH200 --samples 8 --verify 1 --thinking 8000 --json",
};

static int fill_job(const struct flags *flags, const struct ash_catalog *catalog, struct ash_serve_job *job,
                    struct ash_err *err)
{
    const struct ash_machine *machine;
    int rc = ash_shape_find(flags->model, &job->shape, err);

    if (rc == 0) rc = ash_cluster_parse(catalog, flags->cluster, &job->cluster, err);
    if (rc < 0) return rc;
    machine = &job->cluster.machine;
    job->weights = job->compute = (enum ash_gpu_precision)flags->weights;
    if (machine->gpu->flops[job->compute] <= 0) job->compute = ASH_GPU_BF16; /* weights are widened */
    job->cache = (enum ash_gpu_precision)flags->cache;
    job->in_tokens = (double)flags->in_tokens;
    job->answer_tokens = (double)flags->out_tokens;
    job->thinking_tokens = (double)flags->thinking;
    job->samples = (double)flags->samples;
    job->verify_passes = (double)flags->verify;
    job->ttft_limit_s = flags->ttft_ms * 1e-3;
    job->itl_limit_s = flags->itl_ms * 1e-3;
    job->arrivals_s = flags->qps;
    job->usd_gpu_hour = flags->usd_gpu_hour > 0 ? flags->usd_gpu_hour : ash_price_gpu_hour(machine);
    job->tp = (int)flags->tp;
    job->pp = (int)flags->pp;
    job->ep = (int)flags->ep;
    job->attn_dp = (int)flags->attn_dp;
    return 0;
}

/* The best cut from one request to as many as fit. */
static void fill_curve(struct ash_serve_answer *answer)
{
    const struct ash_infer *infer = &answer->points[0].infer;
    double most = fmin(floor(answer->points[0].capacity), answer->consts.infer_batch * fmax(1, infer->attn_dp));
    double batch = answer->job.samples;

    while (answer->curve_count + 1 < ASH_SERVE_CURVE_MAX) {
        bool last = batch >= most;

        ash_serve_evaluate(&answer->consts, &answer->job, infer, last ? most : batch,
                           &answer->curve[answer->curve_count++]);
        if (last) return;
        batch *= 2;
    }
}

static int solve(const struct flags *flags, const struct ash_consts *consts, struct ash_serve_answer *answer,
                 struct ash_err *err)
{
    const struct ash_serve_job *job = &answer->job;
    int rc = ash_serve_check(consts, job, err);

    if (rc < 0) return rc;
    answer->consts = *consts;
    answer->count = ash_serve_search(&answer->consts, job, answer->points, ASH_SERVE_POINTS_MAX);
    if (answer->count == 0) return ash_err_set(err, -EINVAL, "%s does not fit into this cluster", job->shape.name);
    if (!(answer->points[0].tokens_s > 0 && isfinite(answer->points[0].tokens_s)))
        return ash_err_set(err, -EINVAL,
                           "these constants (--set) leave no speed: `ashlar plan constants` lists the usual");
    answer->shown = answer->count < (size_t)flags->show ? answer->count : (size_t)flags->show;
    ash_serve_kinds_find(consts, job, answer->points, answer->count, &answer->kinds);
    answer->has_split = ash_serve_split_find(consts, job, &answer->kinds, job->cluster.gpus, &answer->split);
    if (answer->has_split)
        answer->ratio_count = ash_serve_ratios(consts, job, &answer->split, answer->ratios, ASH_SERVE_RATIOS_MAX);
    fill_curve(answer);
    rc = ash_serve_advise(consts, job, answer->points, answer->count, &answer->kinds, &answer->advice);
    return rc < 0 ? ash_err_set(err, rc, "no memory for a plan of %d GPUs", job->cluster.gpus) : 0;
}

static int print(const struct flags *flags, const struct ash_serve_answer *answer, struct ash_err *err)
{
    int rc = flags->svg != NULL ? ash_serve_draw(answer, flags->svg, err) : 0;

    if (rc < 0) return rc;
    if (!flags->json) {
        ash_serve_print_table(answer);
        return 0;
    }
    return ash_serve_print_json(answer, err);
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_serve_answer answer; /* large; one command per process */
    const struct flags *flags = ctx;
    int rc = fill_job(flags, facts->catalog, &answer.job, err);

    (void)word;
    if (rc == 0) rc = solve(flags, &facts->consts, &answer, err);
    return rc == 0 ? print(flags, &answer, err) : rc;
}

/* Flags that are missing: the exit code, or 0. */
static int misused(const void *ctx, const struct ash_opts *opts)
{
    const struct flags *flags = ctx;

    (void)opts;
    if (flags->model != NULL && flags->cluster != NULL) return 0;
    return ash_cmd_misuse("plan serve",
                          "say which model (--model llama-3.1-70b) and which machines (--cluster 8xH200)");
}

/* What other programs call the flags of this one. */
static const struct {
    const char *name, *here;
} foreign_flags[] = {
    {"--prompt", "--in"},      {"--prompt-tokens", "--in"}, {"--input-len", "--in"},      {"--isl", "--in"},
    {"--input", "--in"},       {"--output-len", "--out"},   {"--osl", "--out"},           {"--output", "--out"},
    {"--max-tokens", "--out"}, {"--gpus", "--cluster"},     {"--rate", "--qps"},          {"--request-rate", "--qps"},
    {"--kv-cache", "--cache"}, {"--dtype", "--weights"},    {"--precision", "--weights"},
};

static const char *flag_here(const char *word)
{
    size_t length = strcspn(word, "=");

    for (size_t i = 0; i < ASH_COUNT(foreign_flags); i++)
        if (strlen(foreign_flags[i].name) == length && strncmp(foreign_flags[i].name, word, length) == 0)
            return foreign_flags[i].here;
    return NULL;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};

    for (int i = 1; i < argc; i++)
        if (flag_here(argv[i]) != NULL)
            return ash_cmd_misuse("plan serve", "there is no %.*s: here it is %s", (int)strcspn(argv[i], "="), argv[i],
                                  flag_here(argv[i]));

    return ash_plan_run(&(struct ash_plan_question){&usage, &serve_table, &flags, &flags.plan, misused, answer_it},
                        argc, argv);
}

const struct ash_cmd ash_cmd_plan_serve = {"serve", "how to serve a model on given machines, how fast, for how much",
                                           run};
