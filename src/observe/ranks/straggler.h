/* straggler - which rank is slow, since which step, in which part of its work, and what that costs the job. A rank's
 * own work (waits taken out) is compared with its peers in the same step, and with its own past; a change that stays is
 * found by its cumulative sum, noise is not. */
#ifndef ASH_OBSERVE_RANKS_STRAGGLER_H
#define ASH_OBSERVE_RANKS_STRAGGLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Own work of ranks in steps: row major [step][rank], seconds; NaN where a rank has no such step. */
struct ash_work {
    size_t ranks, steps;
    const double *own;    /* computing and data together */
    const double *data;   /* the data part of it; NULL: not known */
    const uint64_t *step; /* [steps] their numbers; NULL: from 1 */
};

struct ash_straggler {
    size_t rank;
    uint64_t since;  /* step */
    uint64_t named;  /* step at which the evidence was enough */
    double slower;   /* by this share of its peers' work, since then */
    double lost_s;   /* that the job waited for it, at most: over all steps since */
    bool is_data;    /* most of the difference is waiting for data */
    bool was_always; /* from the first step on: uneven work, perhaps */
};

/* Find them, at most `most`, the slowest first. Returns how many, or -ENOMEM. */
int ash_straggler_find(const struct ash_work *work, struct ash_straggler *found, size_t most);

/* A series that went up and stayed up until its end. */
struct ash_rise {
    bool is_found;
    size_t since;  /* index */
    double excess; /* median, above the first values */
};

/* Find the rise of a series by `least` or more; noise and single values make none. NaN: no value. buf has room for
 * count numbers. */
struct ash_rise ash_rise_find(const double *series, size_t count, double least, double *buf);

#endif
