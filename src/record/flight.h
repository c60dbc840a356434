/* flight - the flight recorder: a rank's last collective calls in a mapped ring (record/ring_file.h) that outlives it.
 * Every group of the process records into one ring; without one, nothing is recorded. */
#ifndef ASH_RECORD_FLIGHT_H
#define ASH_RECORD_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_FLIGHT_KIND "flight"
#define ASH_FLIGHT_CAPACITY 4096
#define ASH_FLIGHT_NAME_BYTES 8

enum ash_flight_op {
    ASH_FLIGHT_BARRIER,
    ASH_FLIGHT_ALL_REDUCE,
    ASH_FLIGHT_REDUCE_SCATTER,
    ASH_FLIGHT_ALL_GATHER,
    ASH_FLIGHT_BROADCAST,
    ASH_FLIGHT_ALL_TO_ALL,
    ASH_FLIGHT_WINDOW_ALL_REDUCE,
    ASH_FLIGHT_WINDOW_REDUCE,
    ASH_FLIGHT_SEND,
    ASH_FLIGHT_RECV,
    ASH_FLIGHT_OPS,
};

/* A record of the ring. Times are of ash_clock_ns. */
struct ash_flight_call {
    uint64_t number;                   /* in the ring */
    uint64_t group;                    /* equal for the ranks of a group, and no others */
    char name[ASH_FLIGHT_NAME_BYTES];  /* "tp", "world"; not terminated if it is full */
    uint64_t sequence;                 /* in the group, from 1; messages: from one rank to another */
    char dtype[ASH_FLIGHT_NAME_BYTES]; /* "f32"; empty: bytes */
    uint16_t op;
    uint8_t is_message;
    uint8_t reduction;   /* of a reduction: 0 sum, 1 max, 2 min */
    uint32_t peer;       /* root, or the other end, in the group; UINT32_MAX: none */
    uint32_t rank, size; /* in the group */
    uint64_t bytes;
    uint64_t start_ns, end_ns; /* end 0: it has not ended */
    int64_t rc;                /* its return code */
};

/* Record from now on, into a new ring of dir. labels: job, rank, run. Once per process, before groups are used. Returns
 * 0 or a negative errno. */
int ash_flight_start(const char *dir, const char *labels, struct ash_err *err);
/* End it. keeps: leave the ring for diagnosis. A no-op if there is none. */
void ash_flight_stop(bool keeps);
/* Write the calls recorded so far to path (ash_ring_copy). Returns 0, -ENOENT (the recorder is off) or a negative
 * errno. */
int ash_flight_copy(const char *path, struct ash_err *err);
/* A call begins. Returns its number, 0 where nothing is recorded. Any thread. */
uint64_t ash_flight_begin(const struct ash_flight_call *call);
/* It has ended. */
void ash_flight_end(uint64_t number, uint64_t end_ns, int rc);
/* "all_reduce", ...: static; "unknown" beyond the last. */
const char *ash_flight_op_name(unsigned op);

#endif
