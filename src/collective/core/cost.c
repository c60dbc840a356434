/* The cost model: a line for every algorithm of a collective, and the file that holds them. */
#include "collective/core/cost.h"

#include <errno.h>

#include "base/assert.h"
#include "base/json.h"

#define RATE_MAX 1e15 /* bytes per second of a line whose bytes cost nothing that could be measured */

/* Measured on two Neoverse V1 cores; inter-node: two ranks on each of two nodes that share such a machine, over TCP;
 * all-to-all on two Emerald Rapids cores: only algorithms of one collective are compared. */
const struct ash_cost ash_cost_default = {
    .intra_node = {[ASH_COST_ONE_SHOT] = {.latency_s = 0.2e-6, .bytes_per_s = 7.5e9},
                   [ASH_COST_TWO_SHOT] = {.latency_s = 0.85e-6, .bytes_per_s = 15e9}},
    .inter_node = {
        [ASH_COST_ALL_REDUCE] = {[ASH_COST_FLAT] = {.latency_s = 400e-6, .bytes_per_s = 0.54e9},
                                 [ASH_COST_HIERARCHICAL] = {.latency_s = 300e-6, .bytes_per_s = 0.28e9},
                                 [ASH_COST_FLAT_TWO_SHOT] = {.latency_s = 620e-6, .bytes_per_s = 0.54e9},
                                 [ASH_COST_HIERARCHICAL_TWO_SHOT] = {.latency_s = 440e-6, .bytes_per_s = 0.28e9}},
        [ASH_COST_REDUCE_SCATTER] = {[ASH_COST_FLAT] = {.latency_s = 370e-6, .bytes_per_s = 0.53e9},
                                     [ASH_COST_HIERARCHICAL] = {.latency_s = 270e-6, .bytes_per_s = 0.27e9}},
        [ASH_COST_ALL_GATHER] = {[ASH_COST_FLAT] = {.latency_s = 380e-6, .bytes_per_s = 0.27e9},
                                 [ASH_COST_HIERARCHICAL] = {.latency_s = 270e-6, .bytes_per_s = 0.28e9}},
        [ASH_COST_BROADCAST] = {[ASH_COST_FLAT] = {.latency_s = 300e-6, .bytes_per_s = 0.98e9},
                                [ASH_COST_HIERARCHICAL] = {.latency_s = 330e-6, .bytes_per_s = 0.64e9}},
        [ASH_COST_ALL_TO_ALL] = {[ASH_COST_FLAT] = {.latency_s = 220e-6, .bytes_per_s = 0.61e9},
                                 [ASH_COST_HIERARCHICAL] = {.latency_s = 130e-6, .bytes_per_s = 0.55e9}}}};

/* ---- inside a node ----------------------------------------------------------------------------------------------- */

const char *ash_cost_intra_node_name(enum ash_cost_intra_node algorithm)
{
    static const char *const names[] = {"one_shot", "two_shot"};

    ash_assert((size_t)algorithm < ASH_COUNT(names));
    return names[algorithm];
}

double ash_cost_intra_node_bytes(enum ash_cost_intra_node algorithm, size_t ranks, size_t bytes)
{
    return algorithm == ASH_COST_ONE_SHOT ? (double)ranks * (double)bytes : (double)bytes;
}

static double seconds_of(const struct ash_cost_line *line, double moved_bytes)
{
    return line->latency_s + moved_bytes / line->bytes_per_s;
}

enum ash_cost_intra_node ash_cost_choose_intra_node(const struct ash_cost *cost, size_t ranks, size_t bytes)
{
    double least = 0;
    enum ash_cost_intra_node best = ASH_COST_ONE_SHOT;

    for (enum ash_cost_intra_node algorithm = ASH_COST_ONE_SHOT; algorithm < ASH_COST_INTRA_NODE_COUNT; algorithm++) {
        double seconds = seconds_of(&cost->intra_node[algorithm], ash_cost_intra_node_bytes(algorithm, ranks, bytes));

        if (algorithm == ASH_COST_ONE_SHOT || seconds < least) {
            least = seconds;
            best = algorithm;
        }
    }
    return best;
}

/* ---- between nodes ----------------------------------------------------------------------------------------------- */

const char *ash_cost_collective_name(enum ash_cost_collective call)
{
    static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"};

    ash_assert((size_t)call < ASH_COUNT(names));
    return names[call];
}

const char *ash_cost_inter_node_name(enum ash_cost_inter_node algorithm)
{
    static const char *const names[] = {"flat", "hierarchical", "flat_two_shot", "hierarchical_two_shot"};
    _Static_assert(ASH_COUNT(names) == ASH_COST_INTER_NODE_COUNT, "each algorithm has a name");

    ash_assert((size_t)algorithm < ASH_COUNT(names));
    return names[algorithm];
}

bool ash_cost_has(enum ash_cost_collective call, enum ash_cost_inter_node algorithm)
{
    return call == ASH_COST_ALL_REDUCE || algorithm <= ASH_COST_HIERARCHICAL;
}

/* Bytes of an all-reduce that leave a node. */
static double reduced_inter_node(enum ash_cost_inter_node algorithm, const struct ash_cost_shape *shape)
{
    double ranks = (double)shape->ranks, nodes = (double)shape->nodes, here = (double)shape->here,
           pieces = (double)shape->pieces, pairs = here * (ranks - here);

    switch (algorithm) {
    case ASH_COST_FLAT:
        return pairs;
    case ASH_COST_HIERARCHICAL:
        return (nodes - 1) * pieces;
    case ASH_COST_FLAT_TWO_SHOT:
        return 2 * pairs / ranks;
    default:
        return (nodes - 1) / nodes * (pieces + 1);
    }
}

double ash_cost_inter_node_bytes(enum ash_cost_collective call, enum ash_cost_inter_node algorithm,
                                 const struct ash_cost_shape *shape, size_t bytes)
{
    double ranks = (double)shape->ranks, nodes = (double)shape->nodes, here = (double)shape->here,
           pieces = (double)shape->pieces, away = ranks - here;
    bool flat = algorithm == ASH_COST_FLAT;
    double times = 0;

    switch (call) {
    case ASH_COST_REDUCE_SCATTER:
        times = (flat ? here : pieces) * away / ranks;
        break;
    case ASH_COST_ALL_GATHER:
        times = here * (flat ? away : nodes - 1);
        break;
    case ASH_COST_BROADCAST:
        times = flat ? away : nodes - 1;
        break;
    case ASH_COST_ALL_TO_ALL: /* ranks share no data: only messages become fewer */
        times = here * away / ranks;
        break;
    default:
        times = reduced_inter_node(algorithm, shape);
    }
    return times * (double)bytes;
}

double ash_cost_inter_node_seconds(const struct ash_cost *cost, enum ash_cost_collective call,
                                   enum ash_cost_inter_node algorithm, const struct ash_cost_shape *shape, size_t bytes)
{
    return seconds_of(&cost->inter_node[call][algorithm], ash_cost_inter_node_bytes(call, algorithm, shape, bytes));
}

enum ash_cost_inter_node ash_cost_choose_inter_node(const struct ash_cost *cost, enum ash_cost_collective call,
                                                    const struct ash_cost_shape *shape, size_t bytes)
{
    double least = 0;
    enum ash_cost_inter_node best = ASH_COST_FLAT;

    for (enum ash_cost_inter_node algorithm = ASH_COST_FLAT;
         algorithm < ASH_COST_INTER_NODE_COUNT && ash_cost_has(call, algorithm); algorithm++) {
        double seconds = ash_cost_inter_node_seconds(cost, call, algorithm, shape, bytes);

        if (algorithm == ASH_COST_FLAT || seconds < least) {
            least = seconds;
            best = algorithm;
        }
    }
    return best;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Least squares of (latency + bytes * slope - seconds) / seconds. */
struct ash_cost_line ash_cost_fit(const double *moved_bytes, const double *seconds, size_t count)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0, slope, latency;

    for (size_t i = 0; i < count; i++) {
        double weight = 1 / (seconds[i] * seconds[i]);

        w += weight;
        wx += weight * moved_bytes[i];
        wxx += weight * moved_bytes[i] * moved_bytes[i];
        wy += weight * seconds[i];
        wxy += weight * moved_bytes[i] * seconds[i];
    }
    slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    latency = (wy - slope * wx) / w;
    if (latency < 0) { /* through the origin, then */
        latency = 0;
        slope = wxy / wxx;
    }
    return (struct ash_cost_line){.latency_s = latency, .bytes_per_s = slope > 1 / RATE_MAX ? 1 / slope : RATE_MAX};
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int read_line(const json_t *algorithms, const char *name, struct ash_cost_line *line, struct ash_err *err)
{
    const json_t *object = NULL;
    double latency_us = 0, gbps = 0;
    int rc = ash_json_object(algorithms, name, &object, err);

    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' is missing", name);
    if (rc > 0) rc = ash_json_double(object, "latency_us", 0, 1e9, &latency_us, err);
    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' has no 'latency_us'", name);
    if (rc > 0)
        rc = ash_json_double(object, "gb_per_s", 1e-6, 2 * RATE_MAX * 1e-9, &gbps, err); /* 1e6 and a rounding */
    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' has no 'gb_per_s'", name);
    if (rc < 0) return rc;
    *line = (struct ash_cost_line){.latency_s = latency_us * 1e-6, .bytes_per_s = gbps * 1e9};
    return 0;
}

static int read_intra_node(const json_t *json, struct ash_cost *cost, struct ash_err *err)
{
    const json_t *algorithms = NULL;
    int rc = ash_json_object(json, "all_reduce", &algorithms, err);

    if (rc == 0) rc = ash_err_set(err, -EINVAL, "'all_reduce' is missing");
    for (enum ash_cost_intra_node algorithm = ASH_COST_ONE_SHOT; rc >= 0 && algorithm < ASH_COST_INTRA_NODE_COUNT;
         algorithm++)
        rc = read_line(algorithms, ash_cost_intra_node_name(algorithm), &cost->intra_node[algorithm], err);
    return rc;
}

static int read_inter_node(const json_t *json, struct ash_cost *cost, struct ash_err *err)
{
    const json_t *inter_node = NULL, *algorithms = NULL;
    int rc = ash_json_object(json, "inter_node", &inter_node, err);

    if (rc <= 0) return rc;
    for (enum ash_cost_collective call = ASH_COST_ALL_REDUCE; rc >= 0 && call < ASH_COST_COLLECTIVES; call++) {
        rc = ash_json_object(inter_node, ash_cost_collective_name(call), &algorithms, err);
        if (rc == 0 && call == ASH_COST_ALL_TO_ALL) break; /* older files have none */
        if (rc == 0) rc = ash_err_set(err, -EINVAL, "'%s' is missing", ash_cost_collective_name(call));
        for (enum ash_cost_inter_node algorithm = ASH_COST_FLAT; rc >= 0 && algorithm < ASH_COST_INTER_NODE_COUNT;
             algorithm++)
            if (ash_cost_has(call, algorithm))
                rc =
                    read_line(algorithms, ash_cost_inter_node_name(algorithm), &cost->inter_node[call][algorithm], err);
        if (rc < 0) return ash_err_prefix(err, rc, "inter_node: %s", ash_cost_collective_name(call));
    }
    return 0;
}

int ash_cost_load(const char *path, struct ash_cost *cost_out, struct ash_err *err)
{
    struct ash_cost cost = ash_cost_default;
    json_t *json = NULL;
    int rc = ash_json_load(path, &json, err);

    if (rc < 0) return rc;
    rc = read_intra_node(json, &cost, err);
    if (rc >= 0) rc = read_inter_node(json, &cost, err);
    json_decref(json);
    if (rc < 0) return ash_err_prefix(err, rc, "%s (write it with `ashlar bench collective --tune`)", path);
    *cost_out = cost;
    return 0;
}

/* Add a line to an object. Like those of jansson: -1 where memory is out. */
static int add_line(json_t *algorithms, const char *name, const struct ash_cost_line *line)
{
    return json_object_set_new(
        algorithms, name,
        json_pack("{s:f,s:f}", "latency_us", line->latency_s * 1e6, "gb_per_s", line->bytes_per_s * 1e-9));
}

static int add_inter_node(json_t *inter_node, enum ash_cost_collective call, const struct ash_cost_line *lines)
{
    json_t *algorithms = json_object();
    int bad = 0;

    for (enum ash_cost_inter_node algorithm = ASH_COST_FLAT; algorithm < ASH_COST_INTER_NODE_COUNT; algorithm++)
        if (ash_cost_has(call, algorithm))
            bad |= add_line(algorithms, ash_cost_inter_node_name(algorithm), &lines[algorithm]);
    return json_object_set_new(inter_node, ash_cost_collective_name(call), algorithms) | bad;
}

int ash_cost_save(const char *path, const struct ash_cost *cost, struct ash_err *err)
{
    json_t *intra_node = json_object(), *inter_node = json_object(), *json;
    int bad = 0, rc;

    for (enum ash_cost_intra_node algorithm = ASH_COST_ONE_SHOT; algorithm < ASH_COST_INTRA_NODE_COUNT; algorithm++)
        bad |= add_line(intra_node, ash_cost_intra_node_name(algorithm), &cost->intra_node[algorithm]);
    for (enum ash_cost_collective call = ASH_COST_ALL_REDUCE; call < ASH_COST_COLLECTIVES; call++)
        bad |= add_inter_node(inter_node, call, cost->inter_node[call]);
    json = json_pack("{s:o,s:o}", "all_reduce", intra_node, "inter_node", inter_node);
    rc = json != NULL && bad == 0 ? ash_json_save(path, json, err)
                                  : ash_err_set(err, -ENOMEM, "out of memory for '%s'", path);
    json_decref(json);
    return rc;
}
