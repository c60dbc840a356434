/* The flags of `ashlar plan goodput` and the job that they describe. */
#include "cmd/plan/goodput_priv.h"

#include <math.h>

#include "base/assert.h"
#include "cmd/plan/plan_priv.h"
#include "plan/price.h"
#include "plan/tier.h"

#define RAM_SHARE 0.5 /* of host memory that copies may take; the job needs some too */

const char *const ash_goodput_rate_names[] = {"llama3", "rsc", "rsc-1024", NULL};
/* Unplanned stops per GPU-hour: 419 in 54 days on 16,384 GPUs (arXiv 2407.21783); a failure every 1.8 h at 16,384 GPUs,
 * and every 7.9 h as measured for jobs of 1,024 (arXiv 2410.21680). */
static const double rates[] = {419 / (54 * 24.0 * 16384), 1 / (1.8 * 16384), 1 / (7.9 * 1024)};

#define FIELD(name) offsetof(struct ash_goodput_flags, name)
static const struct ash_opt goodput_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    ASH_PLAN_OPT_CLUSTER(FIELD(cluster)),
    {"params", ASH_OPT_DOUBLE, FIELD(params), NULL, "parameters (405B, 405e9), instead of a model", 1e3, 1e15, NULL},
    {"gpus", ASH_OPT_INT, FIELD(gpus), NULL, "GPUs, instead of a cluster", 1, 1048576, NULL},
    {"gpus-per-node", ASH_OPT_INT, FIELD(gpus_per_node), "8", "GPUs of a node, which fail and are replaced together", 1,
     1024, NULL},
    {"bytes-per-param", ASH_OPT_DOUBLE, FIELD(bytes_per_param), "14",
     "bytes of state per parameter: bf16 weights, fp32 master weights and moments are 14", 1, 64, NULL},
    {"step-s", ASH_OPT_DOUBLE, FIELD(step_s), "10", "seconds of a step; state is whole only between steps", 1e-3, 1e5,
     NULL},
    {"failures", ASH_OPT_CHOICE, FIELD(failures), "rsc", "failure rate as published by one of these", 0, 0,
     ash_goodput_rate_names},
    {"failure-rate", ASH_OPT_DOUBLE, FIELD(failure_rate), NULL, "failures per GPU-hour, instead of --failures", 1e-12,
     1, NULL},
    {"mtbf-hours", ASH_OPT_DOUBLE, FIELD(mtbf_hours), NULL,
     "hours between failures of the whole job, instead of --failures", 1e-3, 1e9, NULL},
    {"write-gb-s", ASH_OPT_DOUBLE, FIELD(write_gb_s), "100", "GB/s into shared storage, all nodes together", 1e-3, 1e6,
     NULL},
    {"read-gb-s", ASH_OPT_DOUBLE, FIELD(read_gb_s), "100", "GB/s out of shared storage", 1e-3, 1e6, NULL},
    {"storage", ASH_OPT_STRING, FIELD(storage), NULL,
     "tier of the catalog that both rates follow from, with a cluster (ashlar catalog ls storage)", 0, 0, NULL},
    {"storage-tib", ASH_OPT_DOUBLE, FIELD(storage_tib), NULL, "TiB of the storage tier", 0, 1e6, NULL},
    {"stage-gb-s", ASH_OPT_DOUBLE, FIELD(stage_gb_s), "20", "GB/s from a GPU to host memory", 1e-3, 1e4, NULL},
    {"peer-gb-s", ASH_OPT_DOUBLE, FIELD(peer_gb_s), "25", "GB/s from node to node for copies, during training", 1e-3,
     1e5, NULL},
    {"write-slowdown", ASH_OPT_DOUBLE, FIELD(write_slowdown), "0.02", "share of speed lost during a background write",
     0, 0.9, NULL},
    {"detect-s", ASH_OPT_DOUBLE, FIELD(detect_s), "60", "seconds until a failure is known", 0, 1e5, NULL},
    {"restart-s", ASH_OPT_DOUBLE, FIELD(restart_s), "600", "seconds until the processes run again", 0, 1e5, NULL},
    {"init-s-per-1k-gpus", ASH_OPT_DOUBLE, FIELD(init_s), "2.76", "seconds of setting up communicators per 1,000 GPUs",
     0, 1e4, NULL},
    {"peer-detect-s", ASH_OPT_DOUBLE, FIELD(peer_detect_s), "10",
     "seconds until a failure is known where survivors keep running", 0, 1e5, NULL},
    {"peer-recover-s", ASH_OPT_DOUBLE, FIELD(peer_recover_s), "60", "seconds until the survivors continue", 0, 1e5,
     NULL},
    {"peer-overhead", ASH_OPT_DOUBLE, FIELD(peer_overhead), "0.01", "share of speed that the second copy costs", 0, 0.9,
     NULL},
    {"uncovered", ASH_OPT_DOUBLE, FIELD(uncovered), "0.05", "share of failures that take a node and its copy", 1e-4, 1,
     NULL},
    {"spares", ASH_OPT_INT, FIELD(spares), "-1", "spare nodes; -1: always one", -1, 4000, NULL},
    {"replace-share", ASH_OPT_DOUBLE, FIELD(replace_share), "0.5", "share of failures that cost a node", 0, 1, NULL},
    {"repair-hours", ASH_OPT_DOUBLE, FIELD(repair_hours), "24", "hours until such a node is back", 1e-3, 2400, NULL},
    {"ram-gb", ASH_OPT_DOUBLE, FIELD(ram_gb), NULL, "GB of host memory of a node that copies may use", 0, 1e6, NULL},
    {"hbm-free-gb", ASH_OPT_DOUBLE, FIELD(hbm_free_gb), NULL, "GB of a GPU that training leaves", 0, 1e4, NULL},
    {"usd-gpu-hour", ASH_OPT_DOUBLE, FIELD(usd_gpu_hour), NULL, "dollars per GPU-hour", 0, 1e4, NULL},
    {"interval-s", ASH_OPT_DOUBLE, FIELD(interval_s), NULL,
     "seconds of work between checkpoints to shared storage, instead of the best", 0, 1e7, NULL},
    {"days", ASH_OPT_DOUBLE, FIELD(days), "30", "days of a simulated run", 0.01, 3650, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "seed of the simulation", 0, 9e15, NULL},
    {"ledger", ASH_OPT_STRING, FIELD(ledger), NULL,
     "ledger.json of a run: predict from what its own failures have cost, instead of a model and machines", 0, 0, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
    {"svg", ASH_OPT_STRING, FIELD(svg), NULL, "draw goodput over the number of GPUs into this file", 0, 0, NULL},
};
const struct ash_opt_table ash_goodput_table = {"", "flags", goodput_opts, ASH_COUNT(goodput_opts)};

void ash_goodput_fill(const struct ash_goodput_flags *flags, struct ash_goodput_job *job)
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

static void set_machines(const struct ash_cluster *cluster, struct ash_goodput_job *job)
{
    const struct ash_machine *machine = &cluster->machine;

    job->gpus = cluster->gpus;
    job->gpus_per_node = machine->gpus;
    if (job->node_ram_bytes <= 0) job->node_ram_bytes = machine->host_bytes * RAM_SHARE;
    if (job->dollars_per_gpu_hour <= 0) job->dollars_per_gpu_hour = ash_price_gpu_hour(machine);
}

static int set_storage(const struct ash_goodput_flags *flags, const struct ash_catalog *catalog,
                       const struct ash_cluster *cluster, struct ash_goodput_job *job, struct ash_err *err)
{
    struct ash_tier_rate rate;
    int rc =
        ash_tier_rate_of(catalog, flags->storage, flags->storage_tib, &cluster->machine, cluster->machines, &rate, err);

    if (rc < 0) return rc;
    job->write_bytes_s = rate.write_bytes_s;
    job->read_bytes_s = rate.read_bytes_s;
    return 0;
}

/* Defaults from a named model, named machines and a named tier. */
int ash_goodput_look_up(const struct ash_goodput_flags *flags, struct ash_goodput_job *job, struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    struct ash_cluster cluster = {0};
    struct ash_shape shape;
    int rc = 0;

    if (flags->model != NULL) {
        rc = ash_shape_find(flags->model, &shape, err);
        if (rc < 0) return rc;
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
    struct ash_goodput_flags flags = {0};
    const struct ash_opt_binding binding = {&ash_goodput_table, &flags};
    struct ash_goodput_job job;
    struct ash_opts *opts = NULL;
    int rc = ash_opts_open(&binding, 1, &opts, err);

    if (rc < 0) return rc;
    ash_goodput_fill(&flags, &job);
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
