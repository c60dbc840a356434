/* ashlar bench collective: time and bandwidth of collectives over sizes, in the columns that people know from
 * nccl-tests, and whether the results are right. */
#include "cmd/bench_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/math.h"
#include "collective/group.h"
#include "collective/host/window.h"
#include "collective/net/net.h"
#include "orchestrate/local/launch.h"

#define ROUNDS_MAX 101
#define ROUND_S 0.02 /* aim for rounds of so long */
#define ROUND_MAX_S (10 * ROUND_S)
#define ITERATIONS_MAX 20000
#define PIECE_ITERATIONS 500 /* after which ranks look at the clock together */

static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                  "broadcast",  "barrier",        NULL};
static const char copy_name[] = "copy";
enum op { OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_ALL_TO_ALL, OP_BROADCAST, OP_BARRIER };
static const char *const dtypes[] = {"f32", "bf16", "f64", "i32", "i64", "u8", NULL};

struct flags {
    int op, dtype;
    int64_t procs, nodes, min_bytes, max_bytes, factor, rounds;
    bool json, window, bound;
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
    {"rounds", ASH_OPT_INT, FIELD(rounds), "5", "measurements of each size; the median counts", 1, ROUNDS_MAX, NULL},
    {"window", ASH_OPT_BOOL, FIELD(window), NULL, "all_reduce in memory that all ranks have mapped, as training does",
     0, 0, NULL},
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
        "ashlar bench collective [--op NAME | --bound | --tune FILE] [--procs P] [--min BYTES] [--max BYTES] [flags]",
    .about = "Starts P processes and measures a collective between them. algbw is size / time; busbw multiplies it\n"
             "by what the operation must move (2 (P - 1) / P for all_reduce), so that it compares with the speed of\n"
             "memory or wires. Under torchrun, Slurm or `ashlar launch` it uses the processes that are there.\n"
             "With --tune it measures every algorithm of every collective: inside a node one-shot (everyone reduces\n"
             "all operands) and two-shot (everyone reduces its share), between nodes flat and hierarchical. A job\n"
             "that is given the file as group.cost takes the cheapest algorithm for each size; parts that a run\n"
             "cannot measure stay as they are in the file.",
    .examples = "  ashlar bench collective --procs 4 --max 256mi\n"
                "  srun -n 16 ashlar bench collective --op all_gather --json\n"
                "  srun -N 4 ashlar bench collective --tune cost.json\n"
                "  srun -N 4 ashlar train job.yaml group.cost=cost.json --out run",
};

struct bench {
    const struct flags *flags;
    struct ash_group *group;
    char *in, *out;
    struct ash_window *window; /* NULL: sums go from in to out */
    struct ash_shares shares;  /* one part from each rank */
    size_t bytes;              /* of the operation: the larger side */
};

/* Bytes that each rank brings (all_gather, all_to_all: to each), whole elements. */
static size_t part_bytes(const struct bench *bench)
{
    size_t width = ash_coll_dtype_bytes((enum ash_coll_dtype)bench->flags->dtype);

    return bench->bytes / ash_group_size(bench->group) / width * width;
}

static int run_all_to_all(struct bench *bench, struct ash_err *err)
{
    size_t sizes[ASH_SHARES_RANKS_MAX];

    for (size_t r = 0; r < ash_group_size(bench->group); r++)
        sizes[r] = part_bytes(bench);
    return ash_group_all_to_all(bench->group, bench->in, sizes, bench->out, sizes, err);
}

static int run_once(struct bench *bench, struct ash_err *err)
{
    enum ash_coll_dtype dtype = (enum ash_coll_dtype)bench->flags->dtype;
    size_t width = ash_coll_dtype_bytes(dtype);

    if (bench->flags->bound) {
        ash_bench_copy(bench->out, bench->in, bench->bytes);
        return 0;
    }
    if (bench->window != NULL)
        return ash_group_window_all_reduce(bench->group, &bench->window, &bench->shares, bench->bytes / width, dtype,
                                           ASH_COLL_SUM, err);
    switch ((enum op)bench->flags->op) {
    case OP_ALL_REDUCE:
        return ash_group_all_reduce(bench->group, bench->in, bench->out, bench->bytes / width, dtype, ASH_COLL_SUM,
                                    err);
    case OP_REDUCE_SCATTER:
        return ash_group_reduce_scatter(bench->group, bench->in, bench->out, part_bytes(bench) / width, dtype,
                                        ASH_COLL_SUM, err);
    case OP_ALL_GATHER:
        return ash_group_all_gather(bench->group, bench->in, bench->out, part_bytes(bench), err);
    case OP_ALL_TO_ALL:
        return run_all_to_all(bench, err);
    case OP_BROADCAST:
        return ash_group_broadcast(bench->group, bench->out, bench->bytes, 0, err);
    case OP_BARRIER:
        return ash_group_barrier(bench->group, err);
    }
    return 0;
}

/* ---- is it right? ------------------------------------------------------------------------------------------------ */

/* Every byte of a rank's operand says whose it is, in a way that sums show (small numbers are
 * exact in every type). */
static void fill(struct bench *bench)
{
    enum ash_coll_dtype dtype = (enum ash_coll_dtype)bench->flags->dtype;
    size_t count = bench->bytes / ash_coll_dtype_bytes(dtype), rank = ash_group_rank(bench->group);

    for (size_t i = 0; i < count; i++) {
        size_t value = (i % 7) + rank % 8;

        if (dtype == ASH_COLL_F32) ((float *)(void *)bench->in)[i] = (float)value;
        if (dtype == ASH_COLL_F64) ((double *)(void *)bench->in)[i] = (double)value;
        if (dtype == ASH_COLL_I32) ((int32_t *)(void *)bench->in)[i] = (int32_t)value;
        if (dtype == ASH_COLL_I64) ((int64_t *)(void *)bench->in)[i] = (int64_t)value;
        if (dtype == ASH_COLL_U8) ((uint8_t *)bench->in)[i] = (uint8_t)value;
        if (dtype == ASH_COLL_BF16) ((uint16_t *)(void *)bench->in)[i] = (uint16_t)0x3f80; /* one */
    }
    if (bench->window != NULL)
        memcpy(bench->out, bench->in, bench->bytes);
    else
        memset(bench->out, 0, bench->bytes);
}

/* Elements of an all-reduced float32 operand that are not the sum; other operations and types are left to the tests. */
static uint64_t count_wrong(const struct bench *bench)
{
    size_t count = bench->bytes / sizeof(float), size = ash_group_size(bench->group), ranks = 0;
    uint64_t wrong = 0;

    if (bench->flags->bound || bench->flags->op != OP_ALL_REDUCE || bench->flags->dtype != ASH_COLL_F32) return 0;
    for (size_t r = 0; r < size; r++)
        ranks += r % 8;
    for (size_t i = 0; i < count; i++)
        wrong += ((const float *)(const void *)bench->out)[i] != (float)(i % 7 * size + ranks);
    return wrong;
}

/* ---- how fast is it? --------------------------------------------------------------------------------------------- */

/* Seconds of a piece of a round, the slowest rank's. */
static int measure_piece(struct bench *bench, int64_t iterations, double *seconds_out, struct ash_err *err)
{
    int rc = ash_group_barrier(bench->group, err);
    uint64_t start_ns = ash_clock_ns();
    double seconds;

    for (int64_t i = 0; i < iterations && rc == 0; i++)
        rc = run_once(bench, err);
    seconds = (double)(ash_clock_ns() - start_ns) * 1e-9;
    if (rc < 0) return rc;
    return ash_group_all_reduce(bench->group, &seconds, seconds_out, 1, ASH_COLL_F64, ASH_COLL_MAX, err);
}

/* Seconds of one call, the mean over a round. Where other programs have taken the cores since the iterations were
 * counted, the round ends early: all ranks see the same times. */
static int measure_round(struct bench *bench, int64_t iterations, double *seconds_out, struct ash_err *err)
{
    double total_s = 0, piece_s = 0;
    int64_t done = 0;

    while (done < iterations && total_s < ROUND_MAX_S) {
        int64_t count = iterations - done < PIECE_ITERATIONS ? iterations - done : PIECE_ITERATIONS;
        int rc = measure_piece(bench, count, &piece_s, err);

        if (rc < 0) return rc;
        total_s += piece_s;
        done += count;
    }
    *seconds_out = total_s / (double)done;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int measure(struct bench *bench, double *seconds_out, struct ash_err *err)
{
    double rounds[ROUNDS_MAX], once = 0;
    int64_t iterations;
    int rc = measure_round(bench, 3, &once, err); /* warms up, and says how many fill a round */

    iterations = (int64_t)(ROUND_S / once);
    iterations = iterations < 2 ? 2 : iterations > ITERATIONS_MAX ? ITERATIONS_MAX : iterations;
    for (int64_t i = 0; i < bench->flags->rounds && rc == 0; i++)
        rc = measure_round(bench, iterations, &rounds[i], err);
    if (rc < 0) return rc;
    qsort(rounds, (size_t)bench->flags->rounds, sizeof(rounds[0]), by_value);
    *seconds_out = rounds[bench->flags->rounds / 2];
    return 0;
}

/* What an operation must move through each rank, as a share of its size. */
static double bus_factor(const struct bench *bench)
{
    double size = (double)ash_group_size(bench->group);

    if (bench->flags->bound) return 1;
    if (bench->flags->op == OP_ALL_REDUCE) return 2 * (size - 1) / size;
    return bench->flags->op == OP_BROADCAST || bench->flags->op == OP_BARRIER ? 1 : (size - 1) / size;
}

static const char *name_of(const struct flags *flags)
{
    return flags->bound ? copy_name : ops[flags->op];
}

static void print_row(const struct bench *bench, double seconds, uint64_t wrong)
{
    const struct flags *flags = bench->flags;
    double algorithm = (double)bench->bytes / seconds * 1e-9, bus = algorithm * bus_factor(bench);
    size_t count = bench->bytes / ash_coll_dtype_bytes((enum ash_coll_dtype)flags->dtype);

    if (flags->json)
        printf("{\"op\":\"%s\",\"ranks\":%zu,\"nodes\":%zu,\"bytes\":%zu,\"dtype\":\"%s\",\"us\":%.3f,\"algbw\":%.4f,"
               "\"busbw\":%.4f,"
               "\"wrong\":%" PRIu64 "}\n",
               name_of(flags), ash_group_size(bench->group), ash_group_nodes(bench->group), bench->bytes,
               dtypes[flags->dtype], seconds * 1e6, algorithm, bus, wrong);
    else
        printf("%12zu %12zu %6s %6s %12.2f %10.3f %10.3f %8" PRIu64 "\n", bench->bytes, count, dtypes[flags->dtype],
               flags->op <= OP_REDUCE_SCATTER && !flags->bound ? "sum" : "none", seconds * 1e6, algorithm, bus, wrong);
    fflush(stdout);
}

static int run_size(struct bench *bench, struct ash_err *err)
{
    double seconds = 0;
    uint64_t wrong;
    int64_t all_wrong = 0;
    int rc;

    fill(bench);
    rc = run_once(bench, err);
    if (rc < 0) return rc;
    wrong = count_wrong(bench);
    all_wrong = (int64_t)wrong;
    rc = ash_group_all_reduce(bench->group, &all_wrong, &all_wrong, 1, ASH_COLL_I64, ASH_COLL_SUM, err);
    if (rc < 0) return rc;
    rc = measure(bench, &seconds, err);
    if (rc < 0) return rc;
    if (ash_group_rank(bench->group) == 0) print_row(bench, seconds, (uint64_t)all_wrong);
    return 0;
}

/* ---- the cost model ---------------------------------------------------------------------------------------------- */

/* For ash_bench_tune. */
static int measure_call(void *ctx, struct ash_group *group, enum ash_cost_collective call, size_t bytes,
                        double *seconds_out, struct ash_err *err)
{
    static const enum op calls[] = {[ASH_COST_ALL_REDUCE] = OP_ALL_REDUCE,
                                    [ASH_COST_REDUCE_SCATTER] = OP_REDUCE_SCATTER,
                                    [ASH_COST_ALL_GATHER] = OP_ALL_GATHER,
                                    [ASH_COST_BROADCAST] = OP_BROADCAST,
                                    [ASH_COST_ALL_TO_ALL] = OP_ALL_TO_ALL};
    struct bench bench = *(const struct bench *)ctx;
    struct flags flags = *bench.flags;

    flags.op = (int)calls[call];
    bench.flags = &flags;
    bench.group = group;
    bench.bytes = bytes;
    fill(&bench);
    return measure(&bench, seconds_out, err);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Operands in memory of this process, or results in a window, to which the operand is copied before each check. */
static int open_memory(struct bench *bench, size_t bytes, struct ash_err *err)
{
    size_t whole = ash_round_up(bytes, 4096), size = ash_group_size(bench->group);
    int rc;

    bench->in = aligned_alloc(4096, whole);
    if (bench->in == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu bytes", whole);
    if (bench->flags->window && !bench->flags->bound && bench->flags->op == OP_ALL_REDUCE) {
        ash_tree_of(&bench->shares.tree, size);
        for (size_t r = 0; r <= size; r++)
            bench->shares.first[r] = (uint32_t)r;
        rc = ash_group_window_open(bench->group, whole, &bench->window, err);
        if (rc < 0) return rc;
        bench->out = ash_window_data(bench->window);
        return 0;
    }
    bench->out = aligned_alloc(4096, whole);
    return bench->out != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu bytes", whole);
}

/* A core for each rank where there are enough, as MPI's launchers do: on one core, two ranks would take turns until the
 * system moves one. Where there are more ranks than cores each core has its share of them, which the system would not
 * see to: ranks that give their core away after a microsecond are no load to balance. */
static void pin(const struct ash_group *group)
{
    int cores[ASH_SHARES_RANKS_MAX], count = ash_cores_list(cores, ASH_SHARES_RANKS_MAX);

    if (ash_group_nodes(group) == 1 && count > 0)
        ash_cores_pin(pthread_self(), cores[ash_group_rank(group) % (size_t)count]); /* a wish */
}

/* From the smallest size to the largest, which is measured too. A barrier has no size. */
static int run_sizes(struct bench *bench, struct ash_err *err)
{
    const struct flags *flags = bench->flags;
    size_t max = (size_t)flags->max_bytes;
    int rc;

    bench->bytes = 0;
    if (flags->op == OP_BARRIER && !flags->bound) return run_size(bench, err);
    bench->bytes = (size_t)flags->min_bytes;
    for (;;) {
        rc = run_size(bench, err);
        if (rc < 0 || bench->bytes >= max) return rc;
        bench->bytes = ash_min(bench->bytes * (size_t)flags->factor, max);
    }
}

static int run_ranks(const struct flags *flags, struct ash_group *group, struct ash_err *err)
{
    struct bench bench = {.flags = flags, .group = group};
    int rc;

    pin(group);
    rc = open_memory(&bench, (flags->tune != NULL ? ASH_BENCH_TUNE_BYTES : (size_t)flags->max_bytes) + 64, err);
    if (rc == 0 && flags->tune != NULL) rc = ash_bench_tune(group, flags->tune, measure_call, &bench, err);
    if (rc == 0 && flags->tune == NULL && ash_group_rank(group) == 0 && !flags->json)
        printf("# %s, %zu ranks on %zu node%s\n#%11s %12s %6s %6s %12s %10s %10s %8s\n", name_of(flags),
               ash_group_size(group), ash_group_nodes(group), ash_group_nodes(group) == 1 ? "" : "s", "size (B)",
               "count", "type", "redop", "time (us)", "algbw GB/s", "busbw GB/s", "wrong");
    if (rc == 0 && flags->tune == NULL) rc = run_sizes(&bench, err);
    ash_window_close(bench.window);
    if (bench.window == NULL) free(bench.out);
    free(bench.in);
    return rc;
}

/* Nobody has launched us: start the processes, each of which comes back here. */
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

/* Tuning chooses by cost models only where nobody has chosen for it. */
static int check_flags(const struct flags *flags, const struct ash_group_opts *group_opts, struct ash_err *err)
{
    if (flags->min_bytes > flags->max_bytes)
        return ash_err_set(err, -EINVAL, "--min %" PRId64 " is larger than --max %" PRId64, flags->min_bytes,
                           flags->max_bytes);
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
    if (rc == 0) rc = run_ranks(flags, group, err);
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
