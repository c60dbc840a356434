/* meter - where the time of a step goes on this rank: data, exposed communication, waiting for another pipeline stage,
 * and the rest, which is computing. The four add up to the step. One owner thread. */
#ifndef ASH_RECORD_METER_H
#define ASH_RECORD_METER_H

#include <stdint.h>
#include "base/assert.h"
#include "base/clock.h"

enum ash_meter_kind { ASH_METER_DATA, ASH_METER_COMM, ASH_METER_IDLE, ASH_METER_COMPUTE, ASH_METER_KINDS };

struct ash_meter {
    uint64_t ns[ASH_METER_KINDS]; /* compute only after ash_meter_close */
    uint64_t start_ns;            /* of the step */
    unsigned inside;              /* a measurement inside another is part of it */
    uint64_t since_ns;
};

/* A step begins. */
static inline void ash_meter_open(struct ash_meter *meter)
{
    *meter = (struct ash_meter){.start_ns = ash_clock_ns()};
}

/* A wait or other work than computing begins; calls may nest. */
static inline void ash_meter_begin(struct ash_meter *meter)
{
    if (meter->inside++ == 0) meter->since_ns = ash_clock_ns();
}

/* It ends; the outermost of nested calls counts, as kind. */
static inline void ash_meter_end(struct ash_meter *meter, enum ash_meter_kind kind)
{
    ash_assert(meter->inside > 0 && kind < ASH_METER_COMPUTE);
    if (--meter->inside == 0) meter->ns[kind] += ash_clock_ns() - meter->since_ns;
}

/* The step ends: the rest of it was computing. */
static inline void ash_meter_close(struct ash_meter *meter)
{
    uint64_t total = ash_clock_ns() - meter->start_ns;

    ash_assert(meter->inside == 0);
    meter->ns[ASH_METER_COMPUTE] =
        total - meter->ns[ASH_METER_DATA] - meter->ns[ASH_METER_COMM] - meter->ns[ASH_METER_IDLE];
}

#endif
