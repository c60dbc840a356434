/* A line of the cost model for every algorithm of a collective, measured with all others made too expensive to be
 * taken. */
#include "probe/tune.h"

#include <errno.h>

#define SIZES 7
#define SIZE_MIN ((size_t)256) /* then four times as many each time */
#define SIZES_ONE_SHOT 4       /* no more than a control block has room for */
#define TOO_EXPENSIVE_S 1e9

_Static_assert(SIZE_MIN << 2 * (SIZES - 1) <= ASH_TUNE_BYTES, "room for the largest operand");

struct tuner {
    struct ash_group *group; /* that is measured: of all ranks, or of those of a node */
    const struct ash_collective_probe *probe;
    ash_tune_line_fn take_line; /* NULL: not the reporting rank */
    void *ctx;
};

/* A model in which every algorithm is too expensive. */
static struct ash_cost nothing(void)
{
    const struct ash_cost_line expensive = {.latency_s = TOO_EXPENSIVE_S, .bytes_per_s = 1e15};
    struct ash_cost cost;

    for (enum ash_cost_intra_node algorithm = ASH_COST_ONE_SHOT; algorithm < ASH_COST_INTRA_NODE_COUNT; algorithm++)
        cost.intra_node[algorithm] = expensive;
    for (enum ash_cost_collective call = ASH_COST_ALL_REDUCE; call < ASH_COST_COLLECTIVES; call++)
        for (enum ash_cost_inter_node algorithm = ASH_COST_FLAT; algorithm < ASH_COST_INTER_NODE_COUNT; algorithm++)
            cost.inter_node[call][algorithm] = expensive;
    return cost;
}

static void report_line(const struct tuner *tuner, const struct ash_tune_line *line)
{
    if (tuner->take_line != NULL) tuner->take_line(tuner->ctx, line);
}

/* ---- inside a node ----------------------------------------------------------------------------------------------- */

static int tune_intra_node_algorithm(const struct tuner *tuner, enum ash_cost_intra_node algorithm,
                                     struct ash_cost_line *line_out, struct ash_err *err)
{
    size_t count = algorithm == ASH_COST_ONE_SHOT ? SIZES_ONE_SHOT : SIZES;
    struct ash_cost forced = nothing();
    double moved[SIZES], seconds[SIZES];
    int rc = 0;

    forced.intra_node[algorithm].latency_s = 0;
    ash_group_set_cost(tuner->group, &forced);
    for (size_t i = 0; i < count && rc == 0; i++) {
        size_t bytes = SIZE_MIN << 2 * i;

        moved[i] = ash_cost_intra_node_bytes(algorithm, ash_group_size(tuner->group), bytes);
        rc = ash_collective_probe_cost(tuner->probe, tuner->group, ASH_COST_ALL_REDUCE, bytes, &seconds[i], err);
    }
    if (rc < 0) return rc;
    *line_out = ash_cost_fit(moved, seconds, count);
    report_line(tuner,
                &(struct ash_tune_line){"inside a node", "all_reduce", ash_cost_intra_node_name(algorithm), *line_out});
    return 0;
}

/* The ranks of the first node measure while the others wait: they may be on the same machine. */
static int tune_intra_node(const struct tuner *tuner, struct ash_cost *cost, struct ash_err *err)
{
    size_t node = ash_group_get_member(tuner->group, ash_group_rank(tuner->group)).node_index;
    struct tuner inside = *tuner;
    int rc;

    inside.group = NULL;
    rc = ash_group_split(tuner->group, (int64_t)node, 0, &inside.group, err);
    for (enum ash_cost_intra_node algorithm = ASH_COST_ONE_SHOT; rc == 0 && algorithm < ASH_COST_INTRA_NODE_COUNT;
         algorithm++)
        if (node == 0 && ash_group_size(inside.group) > 1)
            rc = tune_intra_node_algorithm(&inside, algorithm, &cost->intra_node[algorithm], err);
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
        size_t node = ash_group_get_member(group, r).node_index;

        if (++counts[node] > shape.here) shape.here = counts[node];
    }
    return shape;
}

static int tune_inter_node_algorithm(const struct tuner *tuner, enum ash_cost_collective call,
                                     enum ash_cost_inter_node algorithm, struct ash_cost_line *line_out,
                                     struct ash_err *err)
{
    struct ash_cost_shape shape = shape_of(tuner->group);
    struct ash_cost forced = nothing();
    double moved[SIZES], seconds[SIZES];
    int rc = 0;

    forced.inter_node[call][algorithm].latency_s = 0;
    ash_group_set_cost(tuner->group, &forced);
    for (size_t i = 0; i < SIZES && rc == 0; i++) {
        size_t bytes = SIZE_MIN << 2 * i;

        moved[i] = ash_cost_inter_node_bytes(call, algorithm, &shape,
                                             call == ASH_COST_ALL_GATHER ? bytes / shape.ranks : bytes);
        rc = ash_collective_probe_cost(tuner->probe, tuner->group, call, bytes, &seconds[i], err);
    }
    if (rc < 0) return rc;
    *line_out = ash_cost_fit(moved, seconds, SIZES);
    report_line(tuner, &(struct ash_tune_line){"between nodes", ash_cost_collective_name(call),
                                               ash_cost_inter_node_name(algorithm), *line_out});
    return 0;
}

static int tune_inter_node(const struct tuner *tuner, struct ash_cost *cost, struct ash_err *err)
{
    int rc = 0;

    for (enum ash_cost_collective call = ASH_COST_ALL_REDUCE; rc == 0 && call < ASH_COST_COLLECTIVES; call++)
        for (enum ash_cost_inter_node algorithm = ASH_COST_FLAT; rc == 0 && algorithm < ASH_COST_INTER_NODE_COUNT;
             algorithm++)
            if (ash_cost_has(call, algorithm))
                rc = tune_inter_node_algorithm(tuner, call, algorithm, &cost->inter_node[call][algorithm], err);
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Entries not measured now stay in the file; a file of another kind is not overwritten. */
static int load_old(const char *path, struct ash_cost *cost, struct ash_err *err)
{
    int rc = ash_cost_load(path, cost, err);

    if (rc == -ENOENT) return 0;
    return rc < 0 ? ash_err_prefix(err, rc, "--tune overwrites only cost models") : 0;
}

int ash_tune_run(const struct ash_collective_probe *probe, const char *path, ash_tune_line_fn take_line, void *ctx,
                 struct ash_err *err)
{
    bool is_reporting_rank = ash_group_rank(probe->group) == 0;
    struct tuner tuner = {
        .group = probe->group, .probe = probe, .take_line = is_reporting_rank ? take_line : NULL, .ctx = ctx};
    struct ash_cost cost = ash_cost_default;
    int rc = 0;

    if (ash_group_size(probe->group) < 2)
        return ash_err_set(err, -EINVAL, "a cost model is measured between processes");
    if (is_reporting_rank) rc = load_old(path, &cost, err);
    if (rc == 0) rc = tune_intra_node(&tuner, &cost, err);
    if (rc == 0 && ash_group_nodes(probe->group) > 1) rc = tune_inter_node(&tuner, &cost, err);
    if (rc < 0 || !is_reporting_rank) return rc;
    return ash_cost_save(path, &cost, err);
}
