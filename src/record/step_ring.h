/* step_ring - what one rank did in each of its last steps, as records of a ring (record/ring_file.h): its own work and
 * its waits. Stragglers are found from these, and the page draws them. */
#ifndef ASH_RECORD_STEP_RING_H
#define ASH_RECORD_STEP_RING_H

#include <stddef.h>
#include <stdint.h>
#include "record/meter.h"

#define ASH_STEP_RING_KIND "steps"
#define ASH_STEP_RING_CAPACITY 4096

/* Axes of a mesh, from those whose ranks are neighbours: tp, cp, ep, fsdp, dp, pp; and the bits of a word that hold a
 * size or a place on each. A mesh may change while a job runs, so every record has its own. */
#define ASH_STEP_AXES 6
static const unsigned char ash_step_axis_bits[ASH_STEP_AXES] = {8, 8, 8, 16, 16, 8};

/* Sizes (or places) of all axes in one word; what does not fit is 0, which is no size. */
static inline uint64_t ash_step_pack(const size_t *values)
{
    uint64_t word = 0;

    for (unsigned i = 0, shift = 0; i < ASH_STEP_AXES; shift += ash_step_axis_bits[i++])
        if (values[i] < (size_t)1 << ash_step_axis_bits[i]) word |= (uint64_t)values[i] << shift;
    return word;
}

/* And back: of one axis. */
static inline uint64_t ash_step_unpack(uint64_t word, unsigned axis)
{
    for (unsigned i = 0; i < axis; i++)
        word >>= ash_step_axis_bits[i];
    return word & (((uint64_t)1 << ash_step_axis_bits[axis]) - 1);
}

/* A record. Times in nanoseconds; start_ns is of ash_clock_ns. */
struct ash_step_record {
    uint64_t number; /* in the ring */
    uint64_t step;   /* 1 is the first */
    uint64_t start_ns;
    uint64_t ns[ASH_METER_KINDS]; /* data, communication, waiting for a stage, computing */
    uint64_t after_ns;            /* between the step before and this one: validation, saving */
    uint64_t tokens;              /* of the whole global batch */
    uint64_t grains;              /* that this rank computed */
    uint64_t mesh, place;         /* sizes of the mesh's axes, and this rank's place on each: ash_step_pack; 0: none */
};

#endif
