/* cost - what calls take, by the way in which they are made: a latency and a bandwidth each, as `ashlar bench
 * collective --tune` measures them. The cheapest way is taken; the bits are the same. Between the processes of a node
 * only an all-reduce has a choice; between nodes every call but the barrier. */
#ifndef ASH_COLLECTIVE_COST_H
#define ASH_COLLECTIVE_COST_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

/* Inside a node. Everyone reads all operands and joins them: one meeting, ranks * bytes. Or everyone joins its share
 * and collects the others': three meetings, bytes. */
enum ash_cost_way { ASH_COST_AT_ONCE, ASH_COST_SHARES, ASH_COST_WAYS };

/* Between nodes. */
enum ash_cost_call {
    ASH_COST_ALL_REDUCE,
    ASH_COST_REDUCE_SCATTER,
    ASH_COST_ALL_GATHER,
    ASH_COST_BROADCAST,
    ASH_COST_ALL_TO_ALL,
    ASH_COST_CALLS
};
/* Every rank exchanges with every other one, or a node does first what it can by itself and every byte crosses once. An
 * all-reduce, moreover: everyone is sent the whole and joins it, or its share, whose sum it then sends to the others.
 */
enum ash_cost_across {
    ASH_COST_FLAT,
    ASH_COST_HIERARCHICAL,
    ASH_COST_FLAT_SHARES,
    ASH_COST_HIERARCHICAL_SHARES,
    ASH_COST_ACROSS
};

struct ash_cost_line {
    double latency_s, bytes_per_s;
};

/* Plain data. */
struct ash_cost {
    struct ash_cost_line ways[ASH_COST_WAYS];
    struct ash_cost_line across[ASH_COST_CALLS][ASH_COST_ACROSS];
};

/* Of a machine that nobody has measured. */
extern const struct ash_cost ash_cost_default;

const char *ash_cost_way_name(enum ash_cost_way way);
const char *ash_cost_call_name(enum ash_cost_call call);
const char *ash_cost_across_name(enum ash_cost_across way);
/* Can this call be made in this way? */
bool ash_cost_has(enum ash_cost_call call, enum ash_cost_across way);

/* The bytes that a way's line speaks of, for an operand of so many bytes. */
double ash_cost_moved(enum ash_cost_way way, size_t ranks, size_t bytes);
/* The cheapest way. */
enum ash_cost_way ash_cost_choose(const struct ash_cost *cost, size_t ranks, size_t bytes);

/* How a group lies on nodes. */
struct ash_cost_shape {
    size_t ranks, nodes;
    size_t here;   /* ranks on the largest node */
    size_t pieces; /* sums that a node brings to the tree of all ranks, at most: 1 where nodes hold whole subtrees */
};

/* The same between nodes: the bytes that leave the largest node. bytes are those of the operand; all-gather: of one
 * rank's; reduce-scatter, all-to-all: of all that a rank brings. */
double ash_cost_moved_across(enum ash_cost_call call, enum ash_cost_across way, const struct ash_cost_shape *shape,
                             size_t bytes);
/* What it takes by a way. */
double ash_cost_seconds_across(const struct ash_cost *cost, enum ash_cost_call call, enum ash_cost_across way,
                               const struct ash_cost_shape *shape, size_t bytes);
enum ash_cost_across ash_cost_choose_across(const struct ash_cost *cost, enum ash_cost_call call,
                                            const struct ash_cost_shape *shape, size_t bytes);

/* The line through count (at least two) measurements that lies closest in relative terms; latency is at least 0. */
struct ash_cost_line ash_cost_fit(const double *moved_bytes, const double *seconds, size_t count);

/* A small JSON file. Load refuses what is not one, naming the key; a file without `across`, or
 * without all_to_all in it, has the default there. */
int ash_cost_load(const char *path, struct ash_cost *cost_out, struct ash_err *err);
int ash_cost_save(const char *path, const struct ash_cost *cost, struct ash_err *err);

#endif
