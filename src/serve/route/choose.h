/* choose - which replica gets a request: a pure function of what the router knows. */
#ifndef ASH_SERVE_ROUTE_CHOOSE_H
#define ASH_SERVE_ROUTE_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ash_route_policy { ASH_ROUTE_PREFIX, ASH_ROUTE_LEAST_LOADED, ASH_ROUTE_ROUND_ROBIN };

#define ASH_ROUTE_REQUEST_BLOCKS 8 /* a request in flight weighs as much as this many unknown blocks */
#define ASH_ROUTE_LOAD_FACTOR 1.5  /* a known prefix counts up to this much of the mean load, */
#define ASH_ROUTE_LOAD_SLACK 4.0   /* and this many requests */
#define ASH_ROUTE_NONE SIZE_MAX

struct ash_route_candidate {
    bool is_usable;
    size_t in_flight;    /* requests that it is answering */
    size_t known_blocks; /* of the prompt, from its beginning */
    uint64_t turn;       /* when it was chosen last: larger is later */
};

/* Prefix: the least of REQUEST_BLOCKS times its load, less the blocks that it knows, which count for replicas with at
 * most FACTOR times the mean load plus SLACK. Least loaded: that. Round robin: the one chosen longest ago. Ties: chosen
 * longest ago, then the first. Returns its number, or ASH_ROUTE_NONE if none is usable. */
size_t ash_route_choose(enum ash_route_policy policy, const struct ash_route_candidate *candidates, size_t count);

#endif
