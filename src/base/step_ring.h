/* step_ring - what one rank did in each of its last steps, as records of a ring (base/ring_file.h): its own work and
 * its waits. Stragglers are found from these, and the page draws them. */
#ifndef ASH_BASE_STEP_RING_H
#define ASH_BASE_STEP_RING_H

#include <stdint.h>
#include "base/meter.h"

#define ASH_STEP_RING_KIND "steps"
#define ASH_STEP_RING_CAPACITY 4096

/* A record. Times in nanoseconds; start_ns is of ash_clock_ns. */
struct ash_step_record {
    uint64_t number; /* in the ring */
    uint64_t step;   /* 1 is the first */
    uint64_t start_ns;
    uint64_t ns[ASH_METER_KINDS]; /* data, communication, waiting for a stage, computing */
    uint64_t after_ns;            /* between the step before and this one: validation, saving */
    uint64_t tokens;              /* of the whole global batch */
};

#endif
