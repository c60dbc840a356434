/* ashlar plan audit: is the NVLink domain the right size for a mixture-of-experts model? */
#include "cmd/plan_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "cmd/plan_audit_priv.h"

#define EXPERTS_MAX 4096
#define ROUTING_MAX_BYTES ((size_t)1 << 20)

static const char *const precisions[] = {"bf16", "fp8", "fp4", NULL};

struct flags {
    const char *model, *cluster, *layout, *stack, *routing, *rack, *svg;
    struct ash_opt_list catalog, set;
    int64_t ep, seq, global_batch, micro_batch;
    int precision;
    double share;
    bool two_level, fp8_dispatch, overlap, json, check;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt audit_opts[] = {
    {"model", ASH_OPT_STRING, FIELD(model), NULL, "a well-known model (deepseek-v3) or a model folder", 0, 0, NULL},
    {"cluster", ASH_OPT_STRING, FIELD(cluster), NULL, "machines: 32xp6-b300.48xlarge", 0, 0, NULL},
    {"ep", ASH_OPT_INT, FIELD(ep), NULL, "GPUs that share the experts", 1, 4096, NULL},
    {"layout", ASH_OPT_STRING, FIELD(layout), NULL, "tp=8,pp=8,...; without it the fastest tp and pp that fit", 0, 0,
     NULL},
    {"stack", ASH_OPT_STRING, FIELD(stack), "captured",
     "software that trains: captured, fused, compiled, eager, or its name", 0, 0, NULL},
    {"seq", ASH_OPT_INT, FIELD(seq), "4096", "tokens of a sequence", 1, 1e8, NULL},
    {"global-batch", ASH_OPT_INT, FIELD(global_batch), "0", "sequences of a step; 0: 16 micro-batches per replica", 0,
     1e8, NULL},
    {"micro-batch", ASH_OPT_INT, FIELD(micro_batch), "1", "sequences of a rank and pass", 1, 1e5, NULL},
    {"precision", ASH_OPT_CHOICE, FIELD(precision), "bf16", "of the matrix products", 0, 0, precisions},
    {"two-level", ASH_OPT_BOOL, FIELD(two_level), NULL, "today's dispatch crosses to a domain once per token", 0, 0,
     NULL},
    {"fp8-dispatch", ASH_OPT_BOOL, FIELD(fp8_dispatch), NULL, "today's dispatch sends fp8", 0, 0, NULL},
    {"overlap", ASH_OPT_BOOL, FIELD(overlap), NULL, "dispatch runs beside another micro-batch's compute", 0, 0, NULL},
    {"routing", ASH_OPT_STRING, FIELD(routing), NULL, "file with the tokens that chose each expert, measured", 0, 0,
     NULL},
    {"rack", ASH_OPT_STRING, FIELD(rack), "u-p6e-gb200x72", "machine with a larger domain to compare with", 0, 0, NULL},
    {"share", ASH_OPT_DOUBLE, FIELD(share), "0.1", "exposed share of the step up to which it fits", 0.001, 0.9, NULL},
    {"catalog", ASH_OPT_LIST, FIELD(catalog), NULL, "files with machines of your own", 0, 0, NULL},
    {"set", ASH_OPT_TEXTS, FIELD(set), NULL, "a constant of the cost model, name=value", 0, 0, NULL},
    {"check", ASH_OPT_BOOL, FIELD(check), NULL, "only show predictions beside published measurements", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
    {"svg", ASH_OPT_STRING, FIELD(svg), NULL, "draw the exposed share over EP into this file", 0, 0, NULL},
};
static const struct ash_opt_table audit_table = {"", "flags", audit_opts, ASH_COUNT(audit_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan audit --model NAME|DIR --cluster COUNTxNAME --ep N [flags]\n"
                "ashlar plan audit --check",
    .about = "Says which share of the traffic between tokens and experts leaves the NVLink domain, what it costs per "
             "step, how\n"
             "that grows with the number of GPUs that share the experts, which limits will bite, what would change it, "
             "and at\n"
             "which network bandwidth the answer flips.",
    .examples = "  ashlar plan audit --model deepseek-v3 --cluster 32xp6-b300.48xlarge --layout tp=1,pp=8 --ep 32 "
                "--micro-batch 4\n"
                "  ashlar plan audit --model qwen3-235b-a22b --cluster 8xp5.48xlarge --ep 32 --overlap --json\n"
                "  ashlar plan audit --check",
};

/* ---- input ------------------------------------------------------------------------------------------------------- */

/* Numbers with anything between them; as many as there are experts. */
static int read_routing(const char *path, size_t experts, double *counts, struct ash_err *err)
{
    size_t size = 0, found = 0;
    char *text = NULL, *at;
    int rc = ash_file_read(path, ROUTING_MAX_BYTES, &text, &size, err);

    if (rc < 0) return rc;
    for (at = text; *at != '\0' && rc == 0;) {
        char *end = NULL;
        double value = strtod(at, &end);

        if (end == at) {
            at++;
            continue;
        }
        if (!(value >= 0 && value < 1e18))
            rc = ash_err_set(err, -EINVAL, "%s: '%.20s' is not a count of tokens", path, at);
        else if (found < experts)
            counts[found] = value;
        found++;
        at = end;
    }
    free(text);
    if (rc == 0 && found != experts)
        rc = ash_err_set(err, -EINVAL, "%s has %zu counts, the model has %zu experts", path, found, experts);
    return rc;
}

/* The batch that gives every replica 16 micro-batches, unless one was asked for. */
static void set_batch(const struct flags *flags, struct ash_audit_job *job, const struct ash_layout *layout)
{
    double dp = (double)job->job.cluster.gpus / ((double)layout->tp * layout->pp * layout->cp);

    job->job.global_batch = (double)flags->global_batch;
    if (flags->global_batch == 0) job->job.global_batch = fmax(1, dp) * layout->micro_batch * 16;
}

/* The fastest tp and pp that fit; what fits nowhere is answered with the least memory. */
static int choose_layout(const struct flags *flags, const struct ash_consts *consts, struct ash_audit_job *job,
                         struct ash_err *err)
{
    double fastest = -1, smallest = INFINITY;
    bool found = false;

    for (int tp = 1; tp <= 8; tp *= 2) {
        for (int pp = 1; pp <= 64; pp *= 2) {
            struct ash_layout layout = job->layout;
            struct ash_plan_step step;

            layout.tp = tp;
            layout.pp = pp;
            layout.dp = 0;
            set_batch(flags, job, &layout);
            if (ash_layout_check(&job->job, &layout, err) < 0) continue;
            ash_step_predict(consts, &job->job, &layout, false, &step);
            if (step.fits ? step.tokens_s <= fastest : fastest > 0 || step.memory.total >= smallest) continue;
            if (step.fits) fastest = step.tokens_s;
            smallest = step.memory.total;
            job->layout = layout;
            found = true;
        }
    }
    if (!found) return err->code != 0 ? err->code : -EINVAL;
    set_batch(flags, job, &job->layout);
    return 0;
}

/* The degrees that divide both the experts and the GPUs, for the message. */
static int refuse_degree(const struct ash_audit_job *job, int64_t ep, struct ash_err *err)
{
    char degrees[160] = "";
    size_t used = 0;

    for (int d = 1; d <= job->job.shape.experts && d <= job->job.cluster.gpus && used + 8 < sizeof(degrees); d++)
        if (fmod(job->job.shape.experts, d) == 0 && job->job.cluster.gpus % d == 0)
            used += (size_t)snprintf(degrees + used, sizeof(degrees) - used, "%s%d", used > 0 ? ", " : "", d);
    return ash_err_set(err, -EINVAL, "--ep %d does not divide the %g experts of %s and %d GPUs: %s do", (int)ep,
                       job->job.shape.experts, job->job.shape.name, job->job.cluster.gpus, degrees);
}

static int fill_layout(const struct flags *flags, const struct ash_consts *consts, struct ash_audit_job *job,
                       struct ash_err *err)
{
    int rc;

    if (flags->ep > 0 &&
        (fmod(job->job.shape.experts, (double)flags->ep) != 0 || job->job.cluster.gpus % flags->ep != 0))
        return refuse_degree(job, flags->ep, err);

    job->layout = (struct ash_layout){.tp = 1,
                                      .pp = 1,
                                      .cp = 1,
                                      .ep = flags->ep > 0 ? (int)flags->ep : 1,
                                      .etp = 1,
                                      .chunks = 1,
                                      .zero = 1,
                                      .micro_batch = (int)flags->micro_batch,
                                      .recompute = ASH_PLAN_RECOMPUTE_FIT,
                                      .precision = (enum ash_precision)flags->precision};
    if (flags->layout == NULL) return choose_layout(flags, consts, job, err);
    if ((rc = ash_layout_parse(flags->layout, &job->layout, err)) < 0) return rc;
    if (flags->ep > 0 && job->layout.ep != flags->ep)
        return ash_err_set(err, -EINVAL, "--ep %d and ep=%d in --layout disagree: give one", (int)flags->ep,
                           job->layout.ep);
    set_batch(flags, job, &job->layout);
    return ash_layout_check(&job->job, &job->layout, err);
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

static int fill_job(const struct flags *flags, const struct ash_catalog *catalog, double *counts,
                    struct audit_answer *answer, struct ash_err *err)
{
    struct ash_audit_job *job = &answer->job;
    int rc = ash_shape_find(flags->model, &job->job.shape, err);

    if (rc == 0) rc = ash_cluster_parse(catalog, flags->cluster, &job->job.cluster, err);
    if (rc < 0) return rc;
    if (job->job.shape.sparse_layers <= 0)
        return ash_err_set(err, -EINVAL,
                           "%s has no experts, so nothing is dispatched: audit a mixture-of-experts model",
                           job->job.shape.name);
    job->job.seq_tokens = (double)flags->seq;
    job->job.stack = ash_stack_find(flags->stack);
    job->job.overlap_dispatch = flags->overlap;
    job->two_level = job->job.dedup_dispatch = flags->two_level;
    job->fp8_dispatch = flags->fp8_dispatch;
    job->fits_share = flags->share;
    if (flags->routing != NULL) {
        if (job->job.shape.experts > EXPERTS_MAX) return ash_err_set(err, -EINVAL, "more than %d experts", EXPERTS_MAX);
        if ((rc = read_routing(flags->routing, (size_t)job->job.shape.experts, counts, err)) < 0) return rc;
        job->counts = counts;
    }
    if ((rc = fill_rack(flags, catalog, job, err)) < 0) return rc;
    return fill_layout(flags, &answer->consts, job, err);
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static int answer_it(const struct flags *flags, const struct ash_catalog *catalog, struct audit_answer *answer,
                     struct ash_err *err)
{
    static double counts[EXPERTS_MAX];
    int rc;

    if (flags->check) {
        ash_audit_print_check(&answer->consts, catalog);
        return 0;
    }
    rc = fill_job(flags, catalog, counts, answer, err);
    if (rc == 0) rc = ash_audit_run(&answer->consts, &answer->job, &answer->audit, err);
    if (rc == 0 && flags->svg != NULL) rc = ash_audit_draw(answer, flags->svg, err);
    if (rc < 0) return rc;
    if (!flags->json) {
        ash_audit_print_table(answer);
        return 0;
    }
    rc = ash_audit_print_json(answer);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static int respond(const struct flags *flags)
{
    struct audit_answer *answer = NULL;
    struct ash_catalog *catalog = NULL;
    struct ash_err err = {0};
    int rc;

    if (!flags->check && (flags->model == NULL || flags->cluster == NULL || (flags->ep == 0 && flags->layout == NULL)))
        return ash_cmd_misuse("plan audit", "say which model (--model deepseek-v3), which machines (--cluster "
                                            "32xp6-b300.48xlarge) and how many GPUs share the experts (--ep 32)");
    answer = calloc(1, sizeof(*answer));
    rc = answer != NULL ? ash_catalog_open(flags->catalog.items, flags->catalog.count, &catalog, &err)
                        : ash_err_set(&err, -ENOMEM, "out of memory");
    if (rc == 0) answer->consts = ash_consts_default();
    if (rc == 0) rc = ash_consts_set_all(&answer->consts, flags->set.items, flags->set.count, &err);
    if (rc == 0) rc = answer_it(flags, catalog, answer, &err);
    ash_catalog_close(catalog);
    free(answer);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_opt_binding bindings[] = {{&audit_table, &flags}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO) code = respond(&flags);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_plan_audit = {"audit", "is the NVLink domain the right size for a model with experts",
                                           run};
