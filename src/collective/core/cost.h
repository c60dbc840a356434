/* cost - what collectives take by each algorithm: a latency and a bandwidth, as `ashlar bench collective --tune`
 * measures them. The cheapest algorithm is taken; the bits are the same. Inside a node only an all-reduce has a
 * choice; between nodes every collective but the barrier. */
#ifndef ASH_COLLECTIVE_CORE_COST_H
#define ASH_COLLECTIVE_CORE_COST_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

/* Inside a node. One-shot: every rank reads and reduces all operands (one synchronization, ranks * bytes). Two-shot:
 * every rank reduces its share and gathers the others' (three synchronizations, bytes). */
enum ash_cost_intra_node { ASH_COST_ONE_SHOT, ASH_COST_TWO_SHOT, ASH_COST_INTRA_NODE_COUNT };

/* Between nodes. */
enum ash_cost_collective {
    ASH_COST_ALL_REDUCE,
    ASH_COST_REDUCE_SCATTER,
    ASH_COST_ALL_GATHER,
    ASH_COST_BROADCAST,
    ASH_COST_ALL_TO_ALL,
    ASH_COST_COLLECTIVES
};
/* Flat: every rank exchanges with every other one. Hierarchical: a node first reduces by itself, and every byte
 * crosses once. An all-reduce, moreover, is one-shot (every rank receives and reduces the whole) or two-shot (its
 * share, whose sum it then sends to the others). */
enum ash_cost_inter_node {
    ASH_COST_FLAT,
    ASH_COST_HIERARCHICAL,
    ASH_COST_FLAT_TWO_SHOT,
    ASH_COST_HIERARCHICAL_TWO_SHOT,
    ASH_COST_INTER_NODE_COUNT
};

struct ash_cost_line {
    double latency_s, bytes_per_s;
};

/* Plain data. */
struct ash_cost {
    struct ash_cost_line intra_node[ASH_COST_INTRA_NODE_COUNT];
    struct ash_cost_line inter_node[ASH_COST_COLLECTIVES][ASH_COST_INTER_NODE_COUNT];
};

/* Of a machine that has not been measured. */
extern const struct ash_cost ash_cost_default;

/* Names as in the file: "one_shot", ... */
const char *ash_cost_intra_node_name(enum ash_cost_intra_node algorithm);
/* "all_reduce", ... */
const char *ash_cost_collective_name(enum ash_cost_collective call);
/* "flat", ... */
const char *ash_cost_inter_node_name(enum ash_cost_inter_node algorithm);
/* Does this collective have this algorithm? */
bool ash_cost_has(enum ash_cost_collective call, enum ash_cost_inter_node algorithm);

/* The bytes that an algorithm moves for an operand of `bytes`: the x of its line. */
double ash_cost_intra_node_bytes(enum ash_cost_intra_node algorithm, size_t ranks, size_t bytes);
/* The cheapest algorithm for an operand of `bytes`. */
enum ash_cost_intra_node ash_cost_choose_intra_node(const struct ash_cost *cost, size_t ranks, size_t bytes);

/* How a group lies on nodes. */
struct ash_cost_shape {
    size_t ranks, nodes;
    size_t here; /* ranks on the largest node */
    size_t
        pieces; /* sums that a node contributes to the tree of all ranks, at most: 1 where nodes hold whole subtrees */
};

/* The same between nodes: the bytes that leave the largest node. bytes are those of the operand; all-gather: of one
 * rank's; reduce-scatter, all-to-all: of all that a rank contributes. */
double ash_cost_inter_node_bytes(enum ash_cost_collective call, enum ash_cost_inter_node algorithm,
                                 const struct ash_cost_shape *shape, size_t bytes);
/* Seconds that the call takes with this algorithm. */
double ash_cost_inter_node_seconds(const struct ash_cost *cost, enum ash_cost_collective call,
                                   enum ash_cost_inter_node algorithm, const struct ash_cost_shape *shape,
                                   size_t bytes);
/* The algorithm of the fewest seconds, of those that this collective has. */
enum ash_cost_inter_node ash_cost_choose_inter_node(const struct ash_cost *cost, enum ash_cost_collective call,
                                                    const struct ash_cost_shape *shape, size_t bytes);

/* The line through count (at least two) measurements that lies closest in relative terms; latency is at least 0. */
struct ash_cost_line ash_cost_fit(const double *moved_bytes, const double *seconds, size_t count);

/* Read a model from a JSON file. Returns 0, -ENOENT, or -EINVAL for an invalid one, naming the key; a file without
 * `inter_node`, or without all_to_all in it, has the default there. */
int ash_cost_load(const char *path, struct ash_cost *cost_out, struct ash_err *err);
/* Replace the file. Returns 0 or a negative errno. */
int ash_cost_save(const char *path, const struct ash_cost *cost, struct ash_err *err);

#endif
