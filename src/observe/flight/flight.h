/* flight - analysis of the flight recorders of a job's ranks: the first call that differs, missing ranks, waiting
 * ranks. */
#ifndef ASH_OBSERVE_FLIGHT_FLIGHT_H
#define ASH_OBSERVE_FLIGHT_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "record/flight.h"
#include "record/ring_file.h"

struct ash_flight_rank {
    char job[64], run_id[32];
    size_t rank;
    struct ash_ring_view view;
    bool is_stopped; /* its process is here, and a signal or a debugger has stopped it */
};

/* The recorders of one folder. */
struct ash_flight_set {
    struct ash_flight_rank *ranks; /* sorted by rank */
    size_t count;
};

/* Read every recorder in dir, of one job: the given one, or the one that recorded last, of one run (run_id; NULL: of
 * any). Damaged files are left out. Returns 0, -ENOENT (there is none) or a negative errno; on 0 the caller owns the
 * set. */
int ash_flight_set_load(struct ash_flight_set *set, const char *dir, const char *job, const char *run_id,
                        struct ash_err *err);
/* A zeroed set is fine. */
void ash_flight_set_fini(struct ash_flight_set *set);
/* A call in words, "all_reduce of 256 bytes f32", into buf, which it returns. */
const char *ash_flight_call_text(const struct ash_flight_call *call, char *buf, size_t buf_bytes);
/* Call `index` of a rank, oldest first. */
const struct ash_flight_call *ash_flight_call_at(const struct ash_flight_rank *rank, size_t index);

#define ASH_FLIGHT_NAMED_MAX 16 /* ranks that a finding names */

enum ash_flight_fault {
    ASH_FLIGHT_DIFFERS, /* ranks make different calls */
    ASH_FLIGHT_STOPPED, /* processes of ranks are stopped, in a call or before it, and others wait */
    ASH_FLIGHT_MISSING, /* ranks have not come to a call that others are in */
    ASH_FLIGHT_ENDED,   /* ranks ended in the middle of a call: they were killed, or crashed */
    ASH_FLIGHT_SLOW,    /* all ranks are in a call that does not end */
};

/* One thing that is wrong in one group. */
struct ash_flight_finding {
    enum ash_flight_fault fault;
    char group[ASH_FLIGHT_NAME_BYTES + 1];
    uint64_t sequence;
    size_t size;                                /* of the group */
    uint32_t named[ASH_FLIGHT_NAMED_MAX];       /* ranks of the job that differ, or are missing */
    size_t named_count, all_count;              /* all: named or not */
    const struct ash_flight_call *call, *other; /* what most do, and what those that are named do; other may be NULL */
    double since_s;                             /* that others wait; 0: none does */
    uint32_t first_waiter;                      /* rank that has waited longest; UINT32_MAX: none */
};

struct ash_flight_report {
    struct ash_flight_finding *findings; /* earliest first */
    size_t count;
    size_t groups, calls; /* that were compared */
};

/* Compare all calls. Returns 0 or -ENOMEM; on 0 the caller owns the report, whose calls are the set's. */
int ash_flight_compare(const struct ash_flight_set *set, struct ash_flight_report *report_out);
/* A zeroed report is fine. */
void ash_flight_report_fini(struct ash_flight_report *report);

struct ash_flight_torch; /* a set, prepared for PyTorch's format */

/* Prepare it; the set is borrowed until close. Returns 0 or -ENOMEM; on 0 the caller owns *torch_out. */
int ash_flight_torch_open(const struct ash_flight_set *set, struct ash_flight_torch **torch_out);
/* NULL is a no-op. */
void ash_flight_torch_close(struct ash_flight_torch *torch);
/* Rank `index` of the set as the pickled dictionary that PyTorch's flight recorder writes, for torchfrtrace. Returns 0
 * or -ENOMEM. */
int ash_flight_torch_write(const struct ash_flight_torch *torch, size_t index, struct ash_str *out);

#endif
