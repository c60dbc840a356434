/* parts - parts of a node, for the page: GPUs, network devices, drives, mounts and ranks, each with a verdict and its
 * main counters. */
#ifndef ASH_OBSERVE_AGENT_PARTS_H
#define ASH_OBSERVE_AGENT_PARTS_H

#include <stddef.h>
#include "base/json.h"
#include "observe/health/node_state.h"

/* The parts in a scrape of a node, each with its findings in state: an array of {kind, name, status, why,
 * counters}. The caller owns it; NULL: no memory, or no scrape. Counters that count from boot have "total". */
json_t *ash_parts_json(const char *text, size_t size_bytes, const struct ash_node_state *state);

#endif
