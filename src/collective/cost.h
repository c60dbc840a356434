/* cost - what an all-reduce between the processes of a node takes, by the way in which it is made: a latency and a
 * bandwidth each, as `ashlar bench collective --tune` measures them. The cheapest way is taken; the bits are the same.
 */
#ifndef ASH_COLLECTIVE_COST_H
#define ASH_COLLECTIVE_COST_H

#include <stddef.h>
#include "ashlar/err.h"

/* Everyone reads all operands and joins them: one meeting, ranks * bytes. Or everyone joins its share and collects the
 * others': three meetings, bytes. */
enum ash_cost_way { ASH_COST_AT_ONCE, ASH_COST_SHARES, ASH_COST_WAYS };

struct ash_cost_line {
    double latency_s, bytes_per_s;
};

struct ash_cost {
    struct ash_cost_line ways[ASH_COST_WAYS];
};

/* Of a machine that nobody has measured. */
extern const struct ash_cost ash_cost_default;

const char *ash_cost_way_name(enum ash_cost_way way);
/* The bytes that a way's line speaks of, for an operand of so many bytes. */
double ash_cost_moved(enum ash_cost_way way, size_t ranks, size_t bytes);
/* The cheapest way. */
enum ash_cost_way ash_cost_choose(const struct ash_cost *cost, size_t ranks, size_t bytes);
/* The line through count (at least two) measurements that lies closest in relative terms; latency is at least 0. */
struct ash_cost_line ash_cost_fit(const double *moved_bytes, const double *seconds, size_t count);

/* A small JSON file. Load refuses what is not one, naming the key. */
int ash_cost_load(const char *path, struct ash_cost *cost_out, struct ash_err *err);
int ash_cost_save(const char *path, const struct ash_cost *cost, struct ash_err *err);

#endif
