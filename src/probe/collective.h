/* collective - time of a collective between the ranks of a group, and whether its result is right. Nothing is printed
 * here. */
#ifndef ASH_PROBE_COLLECTIVE_H
#define ASH_PROBE_COLLECTIVE_H

#include <stdbool.h>
#include "collective/group.h"
#include "collective/host/window.h"
#include "infra/device_memory.h"

enum ash_probe_call {
    ASH_PROBE_ALL_REDUCE,
    ASH_PROBE_REDUCE_SCATTER,
    ASH_PROBE_ALL_GATHER,
    ASH_PROBE_ALL_TO_ALL,
    ASH_PROBE_BROADCAST,
    ASH_PROBE_BARRIER,
    ASH_PROBE_COPY /* no collective: every rank copies as many bytes with non-temporal stores */
};

#define ASH_PROBE_ROUNDS_MAX 101

/* Caller's storage. */
struct ash_collective_probe {
    struct ash_group *group; /* borrowed */
    enum ash_probe_call call;
    enum ash_coll_dtype dtype;
    size_t rounds;                          /* measurements of a size, 1 to ASH_PROBE_ROUNDS_MAX: the median counts */
    size_t bytes;                           /* of the operation, the larger side: set before each measurement */
    const struct ash_device_memory *memory; /* operands are there, as the group knows; NULL: on the host */
    char *in, *out;                         /* on the host; */
    char *call_in, *call_out;               /* what calls read and write: these, or in memory */
    size_t whole_bytes;                     /* of each */
    struct ash_window *window;              /* all_reduce in memory that all ranks have mapped; NULL: from in to out */
    struct ash_shares shares;               /* one part from each rank */
};

/* Memory for operands of up to max_bytes on top of group, call, dtype, rounds and memory, which are set; in_window: an
 * all_reduce in a window. All ranks call it. Returns 0 or a negative errno; fini is due either way. */
int ash_collective_probe_init(struct ash_collective_probe *probe, size_t max_bytes, bool in_window,
                              struct ash_err *err);
/* Free what init allocated. */
void ash_collective_probe_fini(struct ash_collective_probe *probe);
/* Make one call and count elements that are wrong on all ranks together. Only all_reduce of float32 is counted: the
 * tests see to the others. All ranks call it. */
int ash_collective_probe_check(struct ash_collective_probe *probe, uint64_t *wrong_out, struct ash_err *err);
/* Median seconds of a call. All ranks call it. */
int ash_collective_probe_time(struct ash_collective_probe *probe, double *seconds_out, struct ash_err *err);
/* Fill operands and time a call of the cost model in another group with this probe's memory. All ranks of that group
 * call it. */
int ash_collective_probe_cost(const struct ash_collective_probe *probe, struct ash_group *group,
                              enum ash_cost_collective call, size_t bytes, double *seconds_out, struct ash_err *err);
/* Bytes that the call moves through each rank, as a share of its size. */
double ash_collective_probe_bus_factor(const struct ash_collective_probe *probe);
/* "all_reduce": static. */
const char *ash_probe_call_name(enum ash_probe_call call);

#endif
