/* parts - what a node is made of, for the page: GPUs, network devices, drives, mounts and ranks, each with a verdict
 * and the counters that people look at. */
#ifndef ASH_OBSERVE_AGENT_PARTS_H
#define ASH_OBSERVE_AGENT_PARTS_H

#include <stddef.h>
#include "base/json.h"
#include "observe/health/node_state.h"

/* The parts that a scrape of a node tells of, with what state holds against each: an array of {kind, name, status, why,
 * counters}. The caller owns it; NULL: no memory, or no scrape. Counters that count from boot say so with "total". */
json_t *ash_parts_json(const char *text, size_t size_bytes, const struct ash_node_state *state);

#endif
