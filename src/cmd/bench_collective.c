/* ashlar bench collective: time and bandwidth of collectives over sizes, in the columns of nccl-tests, and a check of
 * the results. */
#include "cmd/bench_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cores.h"
#include "base/math.h"
#include "collective/group.h"
#include "compute/backends/backends.h"
#include "infra/device/cuda.h"
#include "collective/net/net.h"
#include "orchestrate/local/launch.h"
#include "probe/collective.h"
#include "probe/tune.h"

static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                  "broadcast",  "barrier",        NULL}; /* enum ash_probe_call */
static const char *const dtypes[] = {"f32", "bf16", "f64", "i32", "i64", "u8", NULL};

struct flags {
    int op, dtype;
    int64_t procs, nodes, min_bytes, max_bytes, factor, rounds;
    bool json, window, bound, gpu;
    const char *tune;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt bench_opts[] = {
    {"op", ASH_OPT_CHOICE, FIELD(op), "all_reduce", "what to measure", 0, 0, ops},
    {"dtype", ASH_OPT_CHOICE, FIELD(dtype), "f32", "type of the elements that are summed", 0, 0, dtypes},
    {"procs", ASH_OPT_INT, FIELD(procs), "2",
     "processes to start on this machine (not where a launcher has started some)", 1, 256, NULL},
    {"nodes", ASH_OPT_INT, FIELD(nodes), "1", "failure domains to spread them over", 1, 256, NULL},
    {"min", ASH_OPT_INT, FIELD(min_bytes), "8", "smallest size in bytes", 8, 1e12, NULL},
    {"max", ASH_OPT_INT, FIELD(max_bytes), "64mi", "largest size in bytes, which is measured too", 8, 1e12, NULL},
    {"factor", ASH_OPT_INT, FIELD(factor), "4", "between sizes", 2, 1024, NULL},
    {"rounds", ASH_OPT_INT, FIELD(rounds), "5", "measurements of each size; the median counts", 1, ASH_PROBE_ROUNDS_MAX,
     NULL},
    {"window", ASH_OPT_BOOL, FIELD(window), NULL, "all_reduce in memory that all ranks have mapped, as training does",
     0, 0, NULL},
    {"gpu", ASH_OPT_BOOL, FIELD(gpu), NULL,
     "operands in GPU memory: a GPU for each process, in turn if there are fewer (group.staged: through the host's)", 0,
     0, NULL},
    {"bound", ASH_OPT_BOOL, FIELD(bound), NULL,
     "instead, every rank copies as many bytes with non-temporal stores: what bounds an all_reduce in shared memory", 0,
     0, NULL},
    {"tune", ASH_OPT_STRING, FIELD(tune), NULL,
     "instead, measure each algorithm of each collective and write the cost model to this file (setting group.cost)", 0,
     0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object per size", 0, 0, NULL},
};
static const struct ash_opt_table bench_table = {
    .section = "", .help = "flags", .opts = bench_opts, .count = ASH_COUNT(bench_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis =
        "ashlar bench collective [--op NAME | --bound | --tune FILE] [--gpu] [--procs P] [--min BYTES] [--max BYTES]\n"
        "                        [flags]",
    .about = "Starts P processes and measures a collective between them. algbw is size / time; busbw multiplies it\n"
             "by what the operation must move (2 (P - 1) / P for all_reduce), so that it compares with the speed of\n"
             "memory or wires. Under torchrun, Slurm or `ashlar launch` it uses the processes that are there.\n"
             "With --tune it measures every algorithm of every collective: inside a node one-shot (every rank reduces\n"
             "all operands) and two-shot (each reduces its share), between nodes flat and hierarchical. A job\n"
             "that is given the file as group.cost takes the cheapest algorithm for each size; parts that a run\n"
             "cannot measure stay as they are in the file.",
    .examples = "  ashlar bench collective --procs 4 --max 256mi\n"
                "  ashlar bench collective --procs 2 --gpu --min 1ki --max 256mi\n"
                "  srun -n 16 ashlar bench collective --op all_gather --json\n"
                "  srun -N 4 ashlar bench collective --tune cost.json\n"
                "  srun -N 4 ashlar train job.yaml group.cost=cost.json --out run",
};

static void print_row(const struct flags *flags, const struct ash_collective_probe *probe, double seconds,
                      uint64_t wrong)
{
    double algorithm = (double)probe->bytes / seconds * 1e-9, bus = algorithm * ash_collective_probe_bus_factor(probe);
    size_t count = probe->bytes / ash_coll_dtype_bytes(probe->dtype);

    if (flags->json)
        printf("{\"op\":\"%s\",\"ranks\":%zu,\"nodes\":%zu,\"bytes\":%zu,\"dtype\":\"%s\",\"us\":%.3f,\"algbw\":%.4f,"
               "\"busbw\":%.4f,"
               "\"wrong\":%" PRIu64 "}\n",
               ash_probe_call_name(probe->call), ash_group_size(probe->group), ash_group_nodes(probe->group),
               probe->bytes, dtypes[flags->dtype], seconds * 1e6, algorithm, bus, wrong);
    else
        printf("%12zu %12zu %6s %6s %12.2f %10.3f %10.3f %8" PRIu64 "\n", probe->bytes, count, dtypes[flags->dtype],
               probe->call <= ASH_PROBE_REDUCE_SCATTER ? "sum" : "none", seconds * 1e6, algorithm, bus, wrong);
    fflush(stdout);
}

static int run_size(const struct flags *flags, struct ash_collective_probe *probe, struct ash_err *err)
{
    double seconds = 0;
    uint64_t wrong = 0;
    int rc = ash_collective_probe_check(probe, &wrong, err);

    if (rc == 0) rc = ash_collective_probe_time(probe, &seconds, err);
    if (rc == 0 && ash_group_rank(probe->group) == 0) print_row(flags, probe, seconds, wrong);
    return rc;
}

static void print_line(void *ctx, const struct ash_tune_line *line)
{
    (void)ctx;
    printf("%-13s %-14s %-19s latency %9.2f us, %8.3f GB/s\n", line->where, line->call, line->algorithm,
           line->cost.latency_s * 1e6, line->cost.bytes_per_s * 1e-9);
    fflush(stdout);
}

static int tune(const char *path, struct ash_collective_probe *probe, struct ash_err *err)
{
    int rc = ash_tune_run(probe, path, print_line, NULL, err);

    if (rc == 0 && ash_group_rank(probe->group) == 0) printf("written to %s: use it with group.cost=%s\n", path, path);
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* A core for each rank if there are enough, as MPI's launchers do: on one core, two ranks would take turns until the
 * scheduler moves one. With more ranks than cores each core gets its share of them, which the scheduler would not do:
 * ranks that yield their core after a microsecond are no load to balance. */
static void pin(const struct ash_group *group)
{
    int cores[ASH_SHARES_RANKS_MAX], count = ash_cores_list(cores, ASH_SHARES_RANKS_MAX);

    if (ash_group_nodes(group) == 1 && count > 0)
        ash_cores_pin(pthread_self(), cores[ash_group_rank(group) % (size_t)count]); /* best effort */
}

/* From the smallest size to the largest, which is measured too. A barrier has no size. */
static int run_sizes(const struct flags *flags, struct ash_collective_probe *probe, struct ash_err *err)
{
    size_t max = (size_t)flags->max_bytes;
    int rc;

    if (ash_group_rank(probe->group) == 0 && !flags->json)
        printf("# %s, %zu ranks on %zu node%s\n#%11s %12s %6s %6s %12s %10s %10s %8s\n",
               ash_probe_call_name(probe->call), ash_group_size(probe->group), ash_group_nodes(probe->group),
               ash_group_nodes(probe->group) == 1 ? "" : "s", "size (B)", "count", "type", "redop", "time (us)",
               "algbw GB/s", "busbw GB/s", "wrong");
    probe->bytes = 0;
    if (probe->call == ASH_PROBE_BARRIER) return run_size(flags, probe, err);
    probe->bytes = (size_t)flags->min_bytes;
    for (;;) {
        rc = run_size(flags, probe, err);
        if (rc < 0 || probe->bytes >= max) return rc;
        probe->bytes = ash_min(probe->bytes * (size_t)flags->factor, max);
    }
}

static int run_ranks(const struct flags *flags, struct ash_group *group, const struct ash_device_memory *memory,
                     struct ash_err *err)
{
    struct ash_collective_probe probe = {.group = group,
                                         .call = flags->bound ? ASH_PROBE_COPY : (enum ash_probe_call)flags->op,
                                         .dtype = (enum ash_coll_dtype)flags->dtype,
                                         .rounds = (size_t)flags->rounds,
                                         .memory = memory};
    size_t max_bytes = flags->tune != NULL ? ASH_TUNE_BYTES : (size_t)flags->max_bytes;
    int rc;

    pin(group);
    rc = ash_collective_probe_init(&probe, max_bytes + 64, flags->window, err);
    if (rc == 0) rc = flags->tune != NULL ? tune(flags->tune, &probe, err) : run_sizes(flags, &probe, err);
    ash_collective_probe_fini(&probe);
    return rc;
}

/* With --gpu: the GPU of this process, whose memory the group then knows. */
static int run_on_gpu(const struct flags *flags, struct ash_group *group, struct ash_err *err)
{
    struct ash_exec exec = {0};
    char name[32];
    int gpus = ash_cuda_count(), rc;

    if (gpus == 0) return ash_err_set(err, -ENODEV, "--gpu: this process sees no GPU");
    snprintf(name, sizeof(name), "cuda:%zu", ash_group_local_rank(group) % (size_t)gpus);
    rc = ash_exec_init(&exec, name, 1, err);
    if (rc < 0) return rc;
    ash_group_set_memory(group, ash_backend_device_memory(&exec));
    rc = run_ranks(flags, group, ash_backend_device_memory(&exec), err);
    ash_group_set_memory(group, NULL);
    ash_exec_fini(&exec);
    return rc;
}

/* Not under a launcher: start the processes, each of which comes back here. */
static int launch_self(const struct flags *flags, int argc, char **argv, struct ash_err *err)
{
    char **words = calloc((size_t)argc + 3, sizeof(*words)), name[] = "ashlar", bench[] = "bench";
    struct ash_launch launch = {.procs = (size_t)flags->procs,
                                .nodes = (size_t)flags->nodes,
                                .grace_s = 5,
                                .program = "/proc/self/exe",
                                .argv = words};
    int rc;

    if (words == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    words[0] = name;
    words[1] = bench;
    memcpy(words + 2, argv, (size_t)argc * sizeof(*words));
    rc = ash_launch_run(&launch, err);
    free(words);
    return rc;
}

/* Tuning chooses by cost models only without a choice by flags. */
static int check_flags(const struct flags *flags, const struct ash_group_opts *group_opts, struct ash_err *err)
{
    if (flags->min_bytes > flags->max_bytes)
        return ash_err_set(err, -EINVAL, "--min %" PRId64 " is larger than --max %" PRId64, flags->min_bytes,
                           flags->max_bytes);
    if (flags->gpu && (flags->window || flags->bound || flags->tune != NULL))
        return ash_err_set(err, -EINVAL, "--gpu measures plain calls: leave --window, --bound and --tune away");
    if (flags->tune == NULL || group_opts->algorithm == ASH_NET_AUTO) return 0;
    return ash_err_set(err, -EINVAL, "--tune measures all algorithms: leave group.algorithm at auto");
}

static int run_bench(const struct flags *flags, const struct ash_group_opts *group_opts, int argc, char **argv,
                     struct ash_err *err)
{
    struct ash_group *group = NULL;
    struct ash_launch_env env;
    int rc = check_flags(flags, group_opts, err);

    if (rc < 0) return rc;
    rc = ash_launch_env_read(&env, err);
    if (rc < 0) return rc;
    if (strcmp(env.launcher, "none") == 0 && flags->procs > 1) return launch_self(flags, argc, argv, err);
    rc = ash_group_open(&env, group_opts, &group, err);
    if (rc == 0) rc = flags->gpu ? run_on_gpu(flags, group, err) : run_ranks(flags, group, NULL, err);
    ash_group_close(group);
    return rc;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct ash_group_opts group_opts = {0};
    struct ash_fabric_opts fabric_opts = {0};
    struct ash_opt_binding bindings[] = {
        {&bench_table, &flags}, {&ash_group_table, &group_opts}, {&ash_fabric_table, &fabric_opts}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO) {
        group_opts.fabric = &fabric_opts;
        code = run_bench(&flags, &group_opts, argc, argv, &err);
        if (code < 0) code = ash_cmd_fail(&err);
    }
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_bench_collective = {"collective", "time and bandwidth of collectives between processes",
                                                 run};
