/* ashlar plan audit: is the NVLink domain the right size for a mixture-of-experts model? */
#include "cmd/plan/plan_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/file.h"
#include "cmd/plan/audit_priv.h"

#define EXPERTS_MAX 4096
#define ROUTING_MAX_BYTES ((size_t)1 << 20)

static const char *const precisions[] = {"bf16", "fp8", "fp4", NULL};

struct flags {
    const char *model, *cluster, *layout, *stack, *routing, *rack, *svg;
    struct ash_plan_flags plan;
    int64_t ep, seq, global_batch, micro_batch;
    int precision;
    double share;
    bool two_level, fp8_dispatch, overlap, json, check;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt audit_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    ASH_PLAN_OPT_CLUSTER(FIELD(cluster)),
    {"ep", ASH_OPT_INT, FIELD(ep), NULL, "GPUs that share the experts", 1, 4096, NULL},
    {"layout", ASH_OPT_STRING, FIELD(layout), NULL, "tp=8,pp=8,...; without it the fastest tp and pp that fit", 0, 0,
     NULL},
    {"stack", ASH_OPT_STRING, FIELD(stack), "captured",
     "software that trains: captured, fused, compiled, eager, or its name", 0, 0, NULL},
    ASH_PLAN_OPT_SEQ(FIELD(seq), "4096"),
    {"global-batch", ASH_OPT_INT, FIELD(global_batch), "0", "sequences of a step; 0: 16 micro-batches per replica", 0,
     1e8, NULL},
    {"micro-batch", ASH_OPT_INT, FIELD(micro_batch), NULL, "sequences of a rank and pass; 1 if not given", 1, 1e5,
     NULL},
    {"precision", ASH_OPT_CHOICE, FIELD(precision), "bf16", "precision of matrix products", 0, 0, precisions},
    {"two-level", ASH_OPT_BOOL, FIELD(two_level), NULL, "today's dispatch crosses to a domain once per token", 0, 0,
     NULL},
    {"fp8-dispatch", ASH_OPT_BOOL, FIELD(fp8_dispatch), NULL, "today's dispatch sends fp8", 0, 0, NULL},
    {"overlap", ASH_OPT_BOOL, FIELD(overlap), NULL, "dispatch overlaps with another micro-batch's compute", 0, 0, NULL},
    {"routing", ASH_OPT_STRING, FIELD(routing), NULL, "file with the tokens that chose each expert, measured", 0, 0,
     NULL},
    {"rack", ASH_OPT_STRING, FIELD(rack), "u-p6e-gb200x72", "machine with a larger domain to compare with", 0, 0, NULL},
    {"share", ASH_OPT_DOUBLE, FIELD(share), "0.1", "exposed share of the step up to which it fits", 0.001, 0.9, NULL},
    {"check", ASH_OPT_BOOL, FIELD(check), NULL, "only compare predictions with published measurements", 0, 0, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
    {"svg", ASH_OPT_STRING, FIELD(svg), NULL, "draw the exposed share over EP into this file", 0, 0, NULL},
};
static const struct ash_opt_table audit_table = {"", "flags", audit_opts, ASH_COUNT(audit_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan audit --model NAME|DIR --cluster COUNTxNAME --ep N [flags]\n"
                "ashlar plan audit --check",
    .about = "Says which share of the traffic between tokens and experts leaves the NVLink domain, what it costs per\n"
             "step, how that grows with the number of GPUs that share the experts, which limits apply, what would\n"
             "change it, and at which network bandwidth the answer flips.",
    .examples = "  ashlar plan audit --model deepseek-v3 --cluster 32xp6-b300.48xlarge --layout tp=1,pp=8 --ep 32 "
                "--micro-batch 4\n"
                "  ashlar plan audit --model qwen3-235b-a22b --cluster 8xp5.48xlarge --ep 32 --overlap --json\n"
                "  ashlar plan audit --check",
};

/* ---- input ------------------------------------------------------------------------------------------------------- */

/* Reads the file of --routing into counts, which the job then borrows. */
static int fill_routing(const struct flags *flags, double *counts, struct ash_audit_job *job, struct ash_err *err)
{
    size_t size = 0, experts = (size_t)job->job.shape.experts;
    char *text = NULL;
    int rc;

    if (flags->routing == NULL) return 0;
    if (experts > EXPERTS_MAX) return ash_err_set(err, -EINVAL, "more than %d experts", EXPERTS_MAX);
    rc = ash_file_read(flags->routing, ROUTING_MAX_BYTES, &text, &size, err);
    if (rc == 0) rc = ash_audit_routing(text, flags->routing, experts, counts, err);
    free(text);
    if (rc == 0) job->counts = counts;
    return rc;
}

/* A layout's text may repeat the flags, but not contradict them. */
static int check_agreement(const struct flags *flags, const struct ash_layout *layout, struct ash_err *err)
{
    if (flags->ep > 0 && layout->ep != flags->ep)
        return ash_err_set(err, -EINVAL, "--ep %d and ep=%d in --layout disagree: give one", (int)flags->ep,
                           layout->ep);
    if (flags->micro_batch > 0 && layout->micro_batch != flags->micro_batch)
        return ash_err_set(err, -EINVAL, "--micro-batch %d and mbs=%d in --layout disagree: give one",
                           (int)flags->micro_batch, layout->micro_batch);
    return 0;
}

static int fill_layout(const struct flags *flags, const struct ash_consts *consts, struct ash_audit_job *job,
                       struct ash_err *err)
{
    double batch = (double)flags->global_batch;
    int rc;

    job->layout = (struct ash_layout){.tp = 1,
                                      .pp = 1,
                                      .cp = 1,
                                      .ep = flags->ep > 0 ? (int)flags->ep : 1,
                                      .etp = 1,
                                      .chunks = 1,
                                      .zero = 1,
                                      .micro_batch = flags->micro_batch > 0 ? (int)flags->micro_batch : 1,
                                      .recompute = ASH_PLAN_RECOMPUTE_FIT,
                                      .precision = (enum ash_gpu_precision)flags->precision};
    if (flags->layout == NULL) return ash_audit_choose(consts, job, batch, err);
    rc = ash_layout_parse(flags->layout, &job->layout, err);
    if (rc == 0) rc = check_agreement(flags, &job->layout, err);
    return rc < 0 ? rc : ash_audit_given(job, batch, err);
}

static int fill_rack(const struct flags *flags, const struct ash_catalog *catalog, struct ash_audit_job *job,
                     struct ash_err *err)
{
    const struct ash_machine *machine = NULL;
    int rc = ash_catalog_machine(catalog, flags->rack, &machine, err);

    if (rc < 0) return rc;
    job->rack.machine = *machine; /* part of a rack, or several: the NVLink domain is what counts */
    job->rack.gpus = job->job.cluster.gpus;
    job->rack.machines = (job->rack.gpus + machine->gpus - 1) / machine->gpus;
    job->rack.domain_gpus = machine->domain_gpus < job->rack.gpus ? machine->domain_gpus : job->rack.gpus;
    return 0;
}

static int fill_job(const struct flags *flags, const struct ash_plan_facts *facts, double *counts,
                    struct ash_audit_job *job, struct ash_err *err)
{
    int rc = ash_shape_find(flags->model, &job->job.shape, err);

    if (rc == 0) rc = ash_cluster_parse(facts->catalog, flags->cluster, &job->job.cluster, err);
    if (rc < 0) return rc;
    job->job.seq_tokens = (double)flags->seq;
    job->job.stack = ash_stack_find(flags->stack);
    job->job.overlap_dispatch = flags->overlap;
    job->two_level = job->job.dedup_dispatch = flags->two_level;
    job->fp8_dispatch = flags->fp8_dispatch;
    job->fits_share = flags->share;
    rc = fill_layout(flags, &facts->consts, job, err);
    if (rc == 0) rc = fill_routing(flags, counts, job, err);
    if (rc == 0) rc = fill_rack(flags, facts->catalog, job, err);
    return rc;
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_audit_answer found; /* large; one command per process */
    static double counts[EXPERTS_MAX];
    struct ash_audit_answer *answer = &found;
    const struct flags *flags = ctx;
    int rc;

    (void)word;
    if (flags->check) return ash_audit_print_check(&facts->consts, facts->catalog, flags->json, err);
    answer->consts = facts->consts;
    rc = fill_job(flags, facts, counts, &answer->job, err);
    if (rc == 0) rc = ash_audit_run(&answer->consts, &answer->job, &answer->audit, err);
    if (rc == 0 && flags->svg != NULL) rc = ash_audit_draw(answer, flags->svg, err);
    if (rc < 0) return rc;
    if (flags->json) return ash_audit_print_json(answer, err);
    ash_audit_print_table(answer);
    return 0;
}

/* Flags that are missing or mean nothing together: the exit code, or 0. */
static int misused(const void *ctx, const struct ash_opts *opts)
{
    const struct flags *flags = ctx;

    (void)opts;
    if (flags->check) {
        if (flags->model == NULL && flags->cluster == NULL) return 0;
        return ash_cmd_misuse("plan audit", "--check takes neither model nor cluster: it predicts what was published");
    }
    if (flags->model == NULL || flags->cluster == NULL || (flags->ep == 0 && flags->layout == NULL))
        return ash_cmd_misuse("plan audit", "say which model (--model deepseek-v3), which machines (--cluster "
                                            "32xp6-b300.48xlarge) and how many GPUs share the experts (--ep 32)");
    return 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};

    return ash_plan_run(&(struct ash_plan_question){&usage, &audit_table, &flags, &flags.plan, misused, answer_it},
                        argc, argv);
}

const struct ash_cmd ash_cmd_plan_audit = {"audit", "is the NVLink domain the right size for a model with experts",
                                           run};
