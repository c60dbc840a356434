/* links - find a link between nodes that has become slow. Every rank measures how long it waits for others in a step.
 * If all of them wait much longer than at first, for some steps, no rank can be the reason: a slow rank does not wait.
 * Then neighbouring nodes time a message to each other. One owner thread. */
#ifndef ASH_TRAIN_RUN_LINKS_H
#define ASH_TRAIN_RUN_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/group.h"

/* Zero-initialise for each epoch. */
struct ash_wait_watch {
    double usual;      /* seconds of waiting in a step, of the first ones */
    size_t steps;      /* seen */
    size_t long_steps; /* the last ones, one after the other, that had to wait long */
};

/* A step is done, of which this rank has waited wait_s. Returns whether it has waited long for five steps or more. */
bool ash_wait_watch_add(struct ash_wait_watch *watch, double wait_s);

/* A link from one node to the next, as timed by the first ranks of both. */
struct ash_slow_link {
    size_t from, to;       /* those ranks */
    double took_s, rest_s; /* seconds of a message, and of the same over the other links (their median) */
};

#define ASH_LINK_MESSAGE_BYTES ((size_t)256 << 10)

/* Of times [count] of links, is there one that stands out? Returns its index, and the median of the others in
 * *rest_out; SIZE_MAX: none. */
size_t ash_links_find_slow(const int64_t *times_us, size_t count, int64_t *rest_out);
/* Time the links between the nodes of a group. All ranks call it. Returns 1 and the slow one, the same on all ranks; 0
 * where none stands out; or a negative errno, the group's. */
int ash_links_probe(struct ash_group *group, struct ash_slow_link *link_out, struct ash_err *err);

#endif
