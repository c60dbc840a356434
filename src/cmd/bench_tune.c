/* ashlar bench collective --tune: a line of the cost model (collective/cost.h) for every way in which a call can be
 * made, measured with all other ways made too dear to be taken. */
#include "cmd/bench_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SIZES 7
#define SIZE_MIN ((size_t)256) /* then four times as many each time */
#define SIZES_AT_ONCE 4        /* no more than a board has room for */
#define TOO_DEAR_S 1e9

_Static_assert(SIZE_MIN << 2 * (SIZES - 1) <= ASH_BENCH_TUNE_BYTES, "room for the largest operand");

struct tuner {
    struct ash_group *group; /* that is measured: of all ranks, or of those of a node */
    ash_bench_measure_fn measure;
    void *ctx;
    bool says; /* this rank prints */
};

/* A model in which every way is too dear. */
static struct ash_cost nothing(void)
{
    const struct ash_cost_line dear = {.latency_s = TOO_DEAR_S, .bytes_per_s = 1e15};
    struct ash_cost cost;

    for (enum ash_cost_way way = ASH_COST_AT_ONCE; way < ASH_COST_WAYS; way++)
        cost.ways[way] = dear;
    for (enum ash_cost_call call = ASH_COST_ALL_REDUCE; call < ASH_COST_CALLS; call++)
        for (enum ash_cost_across way = ASH_COST_FLAT; way < ASH_COST_ACROSS; way++)
            cost.across[call][way] = dear;
    return cost;
}

static void say_line(const struct tuner *tuner, const char *where, const char *call, const char *way,
                     const struct ash_cost_line *line)
{
    if (!tuner->says) return;
    printf("%-13s %-14s %-19s latency %9.2f us, %8.3f GB/s\n", where, call, way, line->latency_s * 1e6,
           line->bytes_per_s * 1e-9);
    fflush(stdout);
}

/* ---- inside a node ----------------------------------------------------------------------------------------------- */

static int tune_way(const struct tuner *tuner, enum ash_cost_way way, struct ash_cost_line *line_out,
                    struct ash_err *err)
{
    size_t count = way == ASH_COST_AT_ONCE ? SIZES_AT_ONCE : SIZES;
    struct ash_cost forced = nothing();
    double moved[SIZES], seconds[SIZES];
    int rc = 0;

    forced.ways[way].latency_s = 0;
    ash_group_set_cost(tuner->group, &forced);
    for (size_t i = 0; i < count && rc == 0; i++) {
        size_t bytes = SIZE_MIN << 2 * i;

        moved[i] = ash_cost_moved(way, ash_group_size(tuner->group), bytes);
        rc = tuner->measure(tuner->ctx, tuner->group, ASH_COST_ALL_REDUCE, bytes, &seconds[i], err);
    }
    if (rc < 0) return rc;
    *line_out = ash_cost_fit(moved, seconds, count);
    say_line(tuner, "inside a node", "all_reduce", ash_cost_way_name(way), line_out);
    return 0;
}

/* The ranks of the first node measure while the others wait: they may be on the same machine. */
static int tune_inside(const struct tuner *tuner, struct ash_cost *cost, struct ash_err *err)
{
    size_t node = ash_group_member(tuner->group, ash_group_rank(tuner->group)).node_index;
    struct tuner inside = *tuner;
    int rc;

    inside.group = NULL;
    rc = ash_group_split(tuner->group, (int64_t)node, 0, &inside.group, err);
    for (enum ash_cost_way way = ASH_COST_AT_ONCE; rc == 0 && way < ASH_COST_WAYS; way++)
        if (node == 0 && ash_group_size(inside.group) > 1) rc = tune_way(&inside, way, &cost->ways[way], err);
    ash_group_close(inside.group);
    return rc == 0 ? ash_group_barrier(tuner->group, err) : rc;
}

/* ---- between nodes ----------------------------------------------------------------------------------------------- */

/* How the group lies on its nodes, one part from each rank. */
static struct ash_cost_shape shape_of(const struct ash_group *group)
{
    struct ash_cost_shape shape = {.ranks = ash_group_size(group), .nodes = ash_group_nodes(group), .pieces = 1};
    size_t counts[ASH_SHARES_RANKS_MAX] = {0};

    for (size_t r = 0; r < shape.ranks; r++) {
        size_t node = ash_group_member(group, r).node_index;

        if (++counts[node] > shape.here) shape.here = counts[node];
    }
    return shape;
}

static int tune_across_way(const struct tuner *tuner, enum ash_cost_call call, enum ash_cost_across way,
                           struct ash_cost_line *line_out, struct ash_err *err)
{
    struct ash_cost_shape shape = shape_of(tuner->group);
    struct ash_cost forced = nothing();
    double moved[SIZES], seconds[SIZES];
    int rc = 0;

    forced.across[call][way].latency_s = 0;
    ash_group_set_cost(tuner->group, &forced);
    for (size_t i = 0; i < SIZES && rc == 0; i++) {
        size_t bytes = SIZE_MIN << 2 * i;

        moved[i] = ash_cost_moved_across(call, way, &shape, call == ASH_COST_ALL_GATHER ? bytes / shape.ranks : bytes);
        rc = tuner->measure(tuner->ctx, tuner->group, call, bytes, &seconds[i], err);
    }
    if (rc < 0) return rc;
    *line_out = ash_cost_fit(moved, seconds, SIZES);
    say_line(tuner, "between nodes", ash_cost_call_name(call), ash_cost_across_name(way), line_out);
    return 0;
}

static int tune_across(const struct tuner *tuner, struct ash_cost *cost, struct ash_err *err)
{
    int rc = 0;

    for (enum ash_cost_call call = ASH_COST_ALL_REDUCE; rc == 0 && call < ASH_COST_CALLS; call++)
        for (enum ash_cost_across way = ASH_COST_FLAT; rc == 0 && way < ASH_COST_ACROSS; way++)
            if (ash_cost_has(call, way)) rc = tune_across_way(tuner, call, way, &cost->across[call][way], err);
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* What is not measured now stays as it is in the file; a file of something else is not overwritten. */
static int load_old(const char *path, struct ash_cost *cost, struct ash_err *err)
{
    int rc = ash_cost_load(path, cost, err);

    if (rc == -ENOENT) return 0;
    return rc < 0 ? ash_err_prefix(err, rc, "--tune does not overwrite what is no cost model") : 0;
}

int ash_bench_tune(struct ash_group *group, const char *path, ash_bench_measure_fn measure, void *ctx,
                   struct ash_err *err)
{
    struct tuner tuner = {.group = group, .measure = measure, .ctx = ctx, .says = ash_group_rank(group) == 0};
    struct ash_cost cost = ash_cost_default;
    int rc = 0;

    if (ash_group_size(group) < 2) return ash_err_set(err, -EINVAL, "a cost model is measured between processes");
    if (tuner.says) rc = load_old(path, &cost, err);
    if (rc == 0) rc = tune_inside(&tuner, &cost, err);
    if (rc == 0 && ash_group_nodes(group) > 1) rc = tune_across(&tuner, &cost, err);
    if (rc < 0 || !tuner.says) return rc;
    rc = ash_cost_save(path, &cost, err);
    if (rc == 0) printf("written to %s: use it with group.cost=%s\n", path, path);
    return rc;
}
