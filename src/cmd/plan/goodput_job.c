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
    {.name = "params",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(params),
     .help = "parameters (405B, 405e9), instead of a model",
     .min = 1e3,
     .max = 1e15},
    {.name = "gpus",
     .type = ASH_OPT_INT,
     .offset = FIELD(gpus),
     .help = "GPUs, instead of a cluster",
     .min = 1,
     .max = 1048576},
    {.name = "gpus-per-node",
     .type = ASH_OPT_INT,
     .offset = FIELD(gpus_per_node),
     .default_text = "8",
     .help = "GPUs of a node, which fail and are replaced together",
     .min = 1,
     .max = 1024},
    {.name = "bytes-per-param",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(bytes_per_param),
     .default_text = "14",
     .help = "bytes of state per parameter: bf16 weights, fp32 master weights and moments are 14",
     .min = 1,
     .max = 64},
    {.name = "step-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(step_s),
     .default_text = "10",
     .help = "seconds of a step; state is whole only between steps",
     .min = 1e-3,
     .max = 1e5},
    {.name = "failures",
     .type = ASH_OPT_CHOICE,
     .offset = FIELD(failures),
     .default_text = "rsc",
     .help = "failure rate as published by one of these",
     .choices = ash_goodput_rate_names},
    {.name = "failure-rate",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(failure_rate),
     .help = "failures per GPU-hour, instead of --failures",
     .min = 1e-12,
     .max = 1},
    {.name = "mtbf-hours",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(mtbf_hours),
     .help = "hours between failures of the whole job, instead of --failures",
     .min = 1e-3,
     .max = 1e9},
    {.name = "write-gb-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(write_gb_s),
     .default_text = "100",
     .help = "GB/s into shared storage, all nodes together",
     .min = 1e-3,
     .max = 1e6},
    {.name = "read-gb-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(read_gb_s),
     .default_text = "100",
     .help = "GB/s out of shared storage",
     .min = 1e-3,
     .max = 1e6},
    {.name = "storage",
     .type = ASH_OPT_STRING,
     .offset = FIELD(storage),
     .help = "tier of the catalog that both rates follow from, with a cluster (ashlar catalog ls storage)"},
    {.name = "storage-tib",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(storage_tib),
     .help = "TiB of the storage tier",
     .max = 1e6},
    {.name = "stage-gb-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(stage_gb_s),
     .default_text = "20",
     .help = "GB/s from a GPU to host memory",
     .min = 1e-3,
     .max = 1e4},
    {.name = "peer-gb-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(peer_gb_s),
     .default_text = "25",
     .help = "GB/s from node to node for copies, during training",
     .min = 1e-3,
     .max = 1e5},
    {.name = "write-slowdown",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(write_slowdown),
     .default_text = "0.02",
     .help = "share of speed lost during a background write",
     .max = 0.9},
    {.name = "detect-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(detect_s),
     .default_text = "60",
     .help = "seconds until a failure is known",
     .max = 1e5},
    {.name = "restart-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(restart_s),
     .default_text = "600",
     .help = "seconds until the processes run again",
     .max = 1e5},
    {.name = "init-s-per-1k-gpus",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(init_s),
     .default_text = "2.76",
     .help = "seconds of setting up communicators per 1,000 GPUs",
     .max = 1e4},
    {.name = "peer-detect-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(peer_detect_s),
     .default_text = "10",
     .help = "seconds until a failure is known where survivors keep running",
     .max = 1e5},
    {.name = "peer-recover-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(peer_recover_s),
     .default_text = "60",
     .help = "seconds until the survivors continue",
     .max = 1e5},
    {.name = "peer-overhead",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(peer_overhead),
     .default_text = "0.01",
     .help = "share of speed that the second copy costs",
     .max = 0.9},
    {.name = "uncovered",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(uncovered),
     .default_text = "0.05",
     .help = "share of failures that take a node and its copy",
     .min = 1e-4,
     .max = 1},
    {.name = "spares",
     .type = ASH_OPT_INT,
     .offset = FIELD(spares),
     .default_text = "-1",
     .help = "spare nodes; -1: always one",
     .min = -1,
     .max = 4000},
    {.name = "replace-share",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(replace_share),
     .default_text = "0.5",
     .help = "share of failures that cost a node",
     .max = 1},
    {.name = "repair-hours",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(repair_hours),
     .default_text = "24",
     .help = "hours until such a node is back",
     .min = 1e-3,
     .max = 2400},
    {.name = "ram-gb",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(ram_gb),
     .help = "GB of host memory of a node that copies may use",
     .max = 1e6},
    {.name = "hbm-free-gb",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(hbm_free_gb),
     .help = "GB of a GPU that training leaves",
     .max = 1e4},
    {.name = "usd-gpu-hour",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(usd_gpu_hour),
     .help = "dollars per GPU-hour",
     .max = 1e4},
    {.name = "interval-s",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(interval_s),
     .help = "seconds of work between checkpoints to shared storage, instead of the best",
     .max = 1e7},
    {.name = "days",
     .type = ASH_OPT_DOUBLE,
     .offset = FIELD(days),
     .default_text = "30",
     .help = "days of a simulated run",
     .min = 0.01,
     .max = 3650},
    {.name = "seed",
     .type = ASH_OPT_INT,
     .offset = FIELD(seed),
     .default_text = "1",
     .help = "seed of the simulation",
     .max = 9e15},
    {.name = "ledger",
     .type = ASH_OPT_STRING,
     .offset = FIELD(ledger),
     .help = "ledger.json of a run: predict from what its own failures have cost, instead of a model and machines"},
    ASH_PLAN_OPT_JSON(FIELD(json)),
    {.name = "svg",
     .type = ASH_OPT_STRING,
     .offset = FIELD(svg),
     .help = "draw goodput over the number of GPUs into this file"},
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
