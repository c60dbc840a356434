/* cost - what calls take, by the algorithm in which they are made: a latency and a bandwidth each, as `ashlar bench
 * collective --tune` measures them. The cheapest algorithm is taken; the bits are the same. Between the processes of a node
 * only an all-reduce has a choice; between nodes every call but the barrier. */
#ifndef ASH_COLLECTIVE_CORE_COST_H
#define ASH_COLLECTIVE_CORE_COST_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

/* Inside a node. Everyone reads all operands and joins them: one meeting, ranks * bytes. Or everyone joins its share
 * and collects the others': three meetings, bytes. */
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
/* Every rank exchanges with every other one, or a node does first what it can by itself and every byte crosses once. An
 * all-reduce, moreover: everyone is sent the whole and joins it, or its share, whose sum it then sends to the others.
 */
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

/* Of a machine that nobody has measured. */
extern const struct ash_cost ash_cost_default;

const char *ash_cost_intra_node_name(enum ash_cost_intra_node algorithm);
const char *ash_cost_collective_name(enum ash_cost_collective call);
const char *ash_cost_inter_node_name(enum ash_cost_inter_node algorithm);
/* Can this call be made in this way? */
bool ash_cost_has(enum ash_cost_collective call, enum ash_cost_inter_node algorithm);

/* The bytes that a way's line speaks of, for an operand of so many bytes. */
double ash_cost_intra_node_bytes(enum ash_cost_intra_node algorithm, size_t ranks, size_t bytes);
/* The cheapest way. */
enum ash_cost_intra_node ash_cost_choose_intra_node(const struct ash_cost *cost, size_t ranks, size_t bytes);

/* How a group lies on nodes. */
struct ash_cost_shape {
    size_t ranks, nodes;
    size_t here;   /* ranks on the largest node */
    size_t pieces; /* sums that a node brings to the tree of all ranks, at most: 1 where nodes hold whole subtrees */
};

/* The same between nodes: the bytes that leave the largest node. bytes are those of the operand; all-gather: of one
 * rank's; reduce-scatter, all-to-all: of all that a rank brings. */
double ash_cost_inter_node_bytes(enum ash_cost_collective call, enum ash_cost_inter_node algorithm,
                                 const struct ash_cost_shape *shape, size_t bytes);
/* What it takes by a way. */
double ash_cost_inter_node_seconds(const struct ash_cost *cost, enum ash_cost_collective call,
                                   enum ash_cost_inter_node algorithm, const struct ash_cost_shape *shape,
                                   size_t bytes);
enum ash_cost_inter_node ash_cost_choose_inter_node(const struct ash_cost *cost, enum ash_cost_collective call,
                                                    const struct ash_cost_shape *shape, size_t bytes);

/* The line through count (at least two) measurements that lies closest in relative terms; latency is at least 0. */
struct ash_cost_line ash_cost_fit(const double *moved_bytes, const double *seconds, size_t count);

/* A small JSON file. Load refuses what is not one, naming the key; a file without `across`, or
 * without all_to_all in it, has the default there. */
int ash_cost_load(const char *path, struct ash_cost *cost_out, struct ash_err *err);
int ash_cost_save(const char *path, const struct ash_cost *cost, struct ash_err *err);

#endif
