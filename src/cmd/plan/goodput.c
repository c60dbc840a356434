/* ashlar plan goodput: what failures leave of a job's time under four ways to keep its state. */
#include "cmd/plan/plan_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "cmd/plan/goodput_priv.h"
#include "plan/price.h"
#include "plan/shape.h"
#include "plan/tier.h"

#define SIM_FAILURES 20000.0
#define RAM_SHARE 0.5 /* of host memory that copies may take; the job needs some too */
#define SIM_EVENTS 1000000.0

static const char *const rate_names[] = {"llama3", "rsc", "rsc-1024", NULL};
/* Unplanned stops per GPU-hour: 419 in 54 days on 16,384 GPUs (arXiv 2407.21783); a failure every 1.8 h at 16,384 GPUs,
 * and every 7.9 h as measured for jobs of 1,024 (arXiv 2410.21680). */
static const double rates[] = {419 / (54 * 24.0 * 16384), 1 / (1.8 * 16384), 1 / (7.9 * 1024)};

struct flags {
    int64_t gpus, gpus_per_node, spares, seed;
    double params, bytes_per_param, step_s, failure_rate, mtbf_hours;
    double write_gb_s, read_gb_s, stage_gb_s, peer_gb_s, write_slowdown;
    double detect_s, restart_s, init_s, peer_detect_s, peer_recover_s, peer_overhead, uncovered;
    double replace_share, repair_hours, ram_gb, hbm_free_gb, usd_gpu_hour, interval_s, days;
    int failures;
    bool json;
    double storage_tib;
    const char *model, *cluster, *storage, *svg;
    struct ash_catalog_flags machines;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt goodput_opts[] = {
    {"model", ASH_OPT_STRING, FIELD(model), NULL, "a well-known model (llama-3.1-405b) or a model folder", 0, 0, NULL},
    {"cluster", ASH_OPT_STRING, FIELD(cluster), NULL, "machines: 2048xp5.48xlarge", 0, 0, NULL},
    {"params", ASH_OPT_DOUBLE, FIELD(params), NULL, "parameters (405B, 405e9), instead of a model", 1e3, 1e15, NULL},
    {"gpus", ASH_OPT_INT, FIELD(gpus), NULL, "GPUs, instead of a cluster", 1, 1048576, NULL},
    {"gpus-per-node", ASH_OPT_INT, FIELD(gpus_per_node), "8", "that fail and are replaced together", 1, 1024, NULL},
    {"bytes-per-param", ASH_OPT_DOUBLE, FIELD(bytes_per_param), "14",
     "of state: bf16 weights and fp32 master weights and moments are 14", 1, 64, NULL},
    {"step-s", ASH_OPT_DOUBLE, FIELD(step_s), "10", "seconds of a step; state is whole only between steps", 1e-3, 1e5,
     NULL},
    {"failures", ASH_OPT_CHOICE, FIELD(failures), "rsc", "failure rate as published by one of these", 0, 0, rate_names},
    {"failure-rate", ASH_OPT_DOUBLE, FIELD(failure_rate), NULL, "failures per GPU-hour, instead", 1e-12, 1, NULL},
    {"mtbf-hours", ASH_OPT_DOUBLE, FIELD(mtbf_hours), NULL, "hours between failures of the whole job, instead", 1e-3,
     1e9, NULL},
    {"write-gb-s", ASH_OPT_DOUBLE, FIELD(write_gb_s), "100", "GB/s into shared storage, all nodes together", 1e-3, 1e6,
     NULL},
    {"read-gb-s", ASH_OPT_DOUBLE, FIELD(read_gb_s), "100", "GB/s out of it", 1e-3, 1e6, NULL},
    {"storage", ASH_OPT_STRING, FIELD(storage), NULL,
     "tier of the catalog that both rates follow from, with a cluster (ashlar catalog ls storage)", 0, 0, NULL},
    {"storage-tib", ASH_OPT_DOUBLE, FIELD(storage_tib), NULL, "TiB of it", 0, 1e6, NULL},
    {"stage-gb-s", ASH_OPT_DOUBLE, FIELD(stage_gb_s), "20", "GB/s from a GPU to host memory", 1e-3, 1e4, NULL},
    {"peer-gb-s", ASH_OPT_DOUBLE, FIELD(peer_gb_s), "25", "GB/s from node to node for copies, beside training", 1e-3,
     1e5, NULL},
    {"write-slowdown", ASH_OPT_DOUBLE, FIELD(write_slowdown), "0.02", "share of speed lost while a write runs behind",
     0, 0.9, NULL},
    {"detect-s", ASH_OPT_DOUBLE, FIELD(detect_s), "60", "seconds until a failure is known", 0, 1e5, NULL},
    {"restart-s", ASH_OPT_DOUBLE, FIELD(restart_s), "600", "seconds until the processes are there again", 0, 1e5, NULL},
    {"init-s-per-1k-gpus", ASH_OPT_DOUBLE, FIELD(init_s), "2.76", "seconds of setting up communicators per 1,000 GPUs",
     0, 1e4, NULL},
    {"peer-detect-s", ASH_OPT_DOUBLE, FIELD(peer_detect_s), "10", "detect-s where survivors keep running", 0, 1e5,
     NULL},
    {"peer-recover-s", ASH_OPT_DOUBLE, FIELD(peer_recover_s), "60", "seconds until they go on together", 0, 1e5, NULL},
    {"peer-overhead", ASH_OPT_DOUBLE, FIELD(peer_overhead), "0.01", "share of speed that the second copy costs", 0, 0.9,
     NULL},
    {"uncovered", ASH_OPT_DOUBLE, FIELD(uncovered), "0.05", "share of failures that take a node and its copy", 1e-4, 1,
     NULL},
    {"spares", ASH_OPT_INT, FIELD(spares), "-1", "spare nodes; -1: always one", -1, 4000, NULL},
    {"replace-share", ASH_OPT_DOUBLE, FIELD(replace_share), "0.5", "share of failures that cost a node", 0, 1, NULL},
    {"repair-hours", ASH_OPT_DOUBLE, FIELD(repair_hours), "24", "hours until it is back", 1e-3, 2400, NULL},
    {"ram-gb", ASH_OPT_DOUBLE, FIELD(ram_gb), NULL, "GB of host memory of a node that copies may use", 0, 1e6, NULL},
    {"hbm-free-gb", ASH_OPT_DOUBLE, FIELD(hbm_free_gb), NULL, "GB of a GPU that training leaves", 0, 1e4, NULL},
    {"usd-gpu-hour", ASH_OPT_DOUBLE, FIELD(usd_gpu_hour), NULL, "dollars per GPU-hour", 0, 1e4, NULL},
    {"interval-s", ASH_OPT_DOUBLE, FIELD(interval_s), NULL,
     "seconds of work between checkpoints to shared storage, instead of the best", 0, 1e7, NULL},
    {"days", ASH_OPT_DOUBLE, FIELD(days), "30", "length of a simulated run", 0.01, 3650, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "of the simulation", 0, 9e15, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
    {"svg", ASH_OPT_STRING, FIELD(svg), NULL, "draw goodput over the number of GPUs into this file", 0, 0, NULL},
};
static const struct ash_opt_table goodput_table = {"", "flags", goodput_opts, ASH_COUNT(goodput_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan goodput --model NAME|DIR --cluster COUNTxNAME [flags]\n"
                "ashlar plan goodput --params N --gpus N [flags]",
    .about =
        "Says which part of its time a training job spends on steps that count, with checkpoints to shared storage "
        "that\n"
        "stop it (sync), that are written behind it (async), with copies in the memory and on the disks of the nodes\n"
        "(tiered), and with a second copy of the state on other GPUs (checkpointless): best interval, losses by "
        "cause,\n"
        "memory price, and where one way overtakes another. By formula and by simulation.",
    .examples =
        "  ashlar plan goodput --model llama-3.1-405b --cluster 2048xp5.48xlarge\n"
        "  ashlar plan goodput --model llama-3.1-405b --cluster 2048xp5.48xlarge --storage fsx-persistent2-1000 "
        "--storage-tib 500\n"
        "  ashlar plan goodput --params 70B --gpus 1024 --mtbf-hours 7.9 --svg goodput.svg\n"
        "  ashlar plan goodput --params 1T --gpus 131072 --write-gb-s 2000 --spares 64 --json",
};

static void fill_job(const struct flags *flags, struct ash_goodput_job *job)
{
    *job = (struct ash_goodput_job){
        .gpus = (double)flags->gpus,
        .gpus_per_node = (double)flags->gpus_per_node,
        .params = flags->params,
        .bytes_per_param = flags->bytes_per_param,
        .step_s = flags->step_s,
        .failures_per_gpu_hour = rates[flags->failures],
        .write_bytes_s = flags->write_gb_s * 1e9,
        .read_bytes_s = flags->read_gb_s * 1e9,
        .stage_bytes_s = flags->stage_gb_s * 1e9,
        .peer_bytes_s = flags->peer_gb_s * 1e9,
        .write_slowdown = flags->write_slowdown,
        .detect_s = flags->detect_s,
        .restart_s = flags->restart_s,
        .init_s_per_1k_gpus = flags->init_s,
        .peer_detect_s = flags->peer_detect_s,
        .peer_recover_s = flags->peer_recover_s,
        .peer_overhead = flags->peer_overhead,
        .uncovered = flags->uncovered,
        .replace_share = flags->replace_share,
        .repair_s = flags->repair_hours * 3600,
        .spares = flags->spares,
        .node_ram_bytes = flags->ram_gb * 1e9,
        .gpu_free_bytes = flags->hbm_free_gb * 1e9,
        .dollars_per_gpu_hour = flags->usd_gpu_hour,
        .interval_s = flags->interval_s,
    };
}

static int choose_rate(const struct flags *flags, const struct ash_opts *opts, struct ash_goodput_answer *answer)
{
    bool by_rate = ash_opts_is_set(opts, "failure-rate"), by_mtbf = ash_opts_is_set(opts, "mtbf-hours");

    if (by_rate + by_mtbf + ash_opts_is_set(opts, "failures") > 1)
        return ash_cmd_misuse("plan goodput", "give one of --failures, --failure-rate and --mtbf-hours, not several");
    answer->rate_source = rate_names[flags->failures];
    if (by_rate || by_mtbf) answer->rate_source = "given";
    if (by_rate) answer->job.failures_per_gpu_hour = flags->failure_rate;
    if (by_mtbf) answer->job.failures_per_gpu_hour = 1 / (flags->mtbf_hours * answer->job.gpus);
    return 0;
}

static void solve(const struct flags *flags, struct ash_goodput_answer *answer)
{
    const struct ash_goodput_job *job = &answer->job;
    double best = -1;

    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++) {
        ash_goodput_plan(job, k, &answer->way[k]);
        ash_goodput_solve(&answer->way[k], &answer->result[k]);
        ash_goodput_simulate(&answer->way[k], flags->days * 86400, SIM_FAILURES, SIM_EVENTS, (uint64_t)flags->seed,
                             &answer->sim[k]);
        ash_goodput_memory_of(job, k, &answer->memory[k]);
        if (k == ASH_GOODPUT_SYNC)
            ash_goodput_break_even_of(job, ASH_GOODPUT_SYNC, ASH_GOODPUT_PEERS, &answer->even[k]);
        else
            ash_goodput_break_even_of(job, k - 1, k, &answer->even[k]);
        if (!answer->memory[k].fits || answer->result[k].shares.useful <= best) continue;
        best = answer->result[k].shares.useful;
        answer->best = k;
    }
}

static void set_machines(const struct ash_cluster *cluster, struct ash_goodput_job *job)
{
    const struct ash_machine *machine = &cluster->machine;

    job->gpus = cluster->gpus;
    job->gpus_per_node = machine->gpus;
    if (job->node_ram_bytes <= 0) job->node_ram_bytes = machine->host_bytes * RAM_SHARE;
    if (job->dollars_per_gpu_hour <= 0) job->dollars_per_gpu_hour = ash_price_gpu_hour(machine);
}

static int set_storage(const struct flags *flags, const struct ash_catalog *catalog, const struct ash_cluster *cluster,
                       struct ash_goodput_job *job, struct ash_err *err)
{
    struct ash_tier_rate rate;
    int rc =
        ash_tier_rate_of(catalog, flags->storage, flags->storage_tib, &cluster->machine, cluster->machines, &rate, err);

    if (rc < 0) return rc;
    job->write_bytes_s = rate.write_bytes_s;
    job->read_bytes_s = rate.read_bytes_s;
    return 0;
}

/* What a named model, named machines and a named tier say, where nothing else does. */
static int look_up(const struct flags *flags, struct ash_goodput_job *job, struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    struct ash_cluster cluster = {0};
    struct ash_shape shape;
    int rc = 0;

    if (flags->model != NULL) {
        if ((rc = ash_shape_find(flags->model, &shape, err)) < 0) return rc;
        job->params = ash_shape_params(&shape);
    }
    if (flags->cluster == NULL) return 0;
    rc = ash_cmd_catalog_open(&flags->machines, &catalog, err);
    if (rc == 0) rc = ash_cluster_parse(catalog, flags->cluster, &cluster, err);
    if (rc == 0 && flags->storage != NULL) rc = set_storage(flags, catalog, &cluster, job, err);
    if (rc == 0) set_machines(&cluster, job);
    ash_catalog_close(catalog);
    return rc;
}

int ash_goodput_estimate(const struct ash_shape *shape, const struct ash_cluster *cluster, double step_s,
                         double storage_bytes_s, double *worst_out, double *best_out, struct ash_err *err)
{
    struct flags flags = {0};
    const struct ash_opt_binding binding = {&goodput_table, &flags};
    struct ash_goodput_job job;
    struct ash_opts *opts = NULL;
    int rc = ash_opts_open(&binding, 1, &opts, err);

    if (rc < 0) return rc;
    fill_job(&flags, &job);
    ash_opts_close(opts);
    set_machines(cluster, &job);
    job.params = ash_shape_params(shape);
    job.step_s = step_s;
    if (storage_bytes_s > 0) job.write_bytes_s = job.read_bytes_s = storage_bytes_s;
    rc = ash_goodput_check(&job, err);
    if (rc < 0) return rc;
    *worst_out = 1;
    *best_out = 0;
    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++) {
        struct ash_goodput_way way;
        struct ash_goodput_result result;
        struct ash_goodput_memory memory;

        ash_goodput_plan(&job, k, &way);
        ash_goodput_solve(&way, &result);
        ash_goodput_memory_of(&job, k, &memory);
        if (!memory.fits) continue;
        *worst_out = fmin(*worst_out, result.shares.useful);
        *best_out = fmax(*best_out, result.shares.useful);
    }
    return 0;
}

static int misused(const struct flags *flags, const struct ash_opts *opts)
{
    bool given = ash_opts_is_set(opts, "write-gb-s") || ash_opts_is_set(opts, "read-gb-s");

    if (flags->model != NULL && flags->params > 0)
        return ash_cmd_misuse("plan goodput", "give --model or --params, not both");
    if (flags->cluster != NULL && flags->gpus > 0)
        return ash_cmd_misuse("plan goodput", "give --cluster or --gpus, not both");
    if ((flags->model == NULL && flags->params == 0) || (flags->cluster == NULL && flags->gpus == 0))
        return ash_cmd_misuse(
            "plan goodput", "say which model (--model llama-3.1-405b, or --params 405B) and which machines (--cluster "
                            "2048xp5.48xlarge, or --gpus)");
    if (flags->storage != NULL && (flags->cluster == NULL || given))
        return ash_cmd_misuse("plan goodput",
                              flags->cluster == NULL
                                  ? "--storage needs a --cluster: its machines are the clients"
                                  : "give --storage or the rates --write-gb-s and --read-gb-s, not both");
    if (flags->storage == NULL && flags->storage_tib > 0)
        return ash_cmd_misuse("plan goodput", "--storage-tib needs --storage: TiB of what?");
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    struct ash_goodput_answer answer = {0};
    struct ash_err err = {0};
    int code = misused(flags, opts);

    (void)word;
    if (code != 0) return code;
    fill_job(flags, &answer.job);
    answer.storage = flags->storage;
    if (look_up(flags, &answer.job, &err) < 0) return ash_cmd_fail(&err);
    code = choose_rate(flags, opts, &answer);
    if (code != 0) return code;
    if (ash_goodput_check(&answer.job, &err) < 0) return ash_cmd_fail(&err);
    solve(flags, &answer);
    if (flags->svg != NULL && ash_goodput_draw(&answer, flags->svg, &err) < 0) return ash_cmd_fail(&err);
    if (!flags->json) {
        ash_goodput_print_table(&answer);
        return 0;
    }
    return ash_goodput_print_json(&answer, &err) < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&goodput_table, &flags}, {&ash_catalog_table, &flags.machines}},
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_goodput = {"goodput",
                                             "what failures leave of a job's time, and which checkpoints pay", run};
