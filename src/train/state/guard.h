/* guard - decides whether a step's gradient may touch the weights. A loss or gradient norm that is not finite, or that
 * jumps far above its running mean, is left out; the statistics are part of the saved state, so a resumed run decides
 * alike. */
#ifndef ASH_TRAIN_STATE_GUARD_H
#define ASH_TRAIN_STATE_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"

enum ash_guard_nan { ASH_GUARD_NAN_SKIP, ASH_GUARD_NAN_STOP };

enum ash_guard_verdict {
    ASH_GUARD_OK,
    ASH_GUARD_NO_TARGETS, /* the batch has nothing to learn from */
    ASH_GUARD_NOT_FINITE,
    ASH_GUARD_NORM_SPIKE,
    ASH_GUARD_LOSS_SPIKE,
};

struct ash_guard_opts {
    enum ash_guard_nan nan;
    double norm_factor; /* a norm above this many running means, and above norm_floor, is a spike; 0: never */
    double norm_floor;  /* where clipping begins: below it a norm does no harm */
    /* a loss above this many running means, and above the mean by ASH_GUARD_LOSS_RISE, is a spike; 0: never */
    double loss_factor;
    uint64_t warmup_steps; /* accepted steps before spikes are looked for */
    uint64_t max_skips;    /* this many in a row end the run; 0: no limit */
};

#define ASH_GUARD_LOSS_RISE 1.0 /* nats: a small loss may double without being a spike */

/* Zero-initialised at the beginning of a run. */
struct ash_guard_stats {
    uint64_t accepted, skipped, skipped_in_row;
    double norm_mean, loss_mean; /* of accepted steps, exponentially forgotten; plain means at first */
};

/* Judge one step and count it in stats. targets: how many rows had one. */
enum ash_guard_verdict ash_guard_check(const struct ash_guard_opts *opts, struct ash_guard_stats *stats,
                                       uint64_t targets, double loss, double norm);
/* Must the run end after verdict? Returns 0, or -ECANCELED with a sentence on the settings to change. */
int ash_guard_limit(const struct ash_guard_opts *opts, const struct ash_guard_stats *stats,
                    enum ash_guard_verdict verdict, struct ash_err *err);
/* "gradient norm 812 is 90 times its running mean": for the log and the screen. Returns buf. */
const char *ash_guard_describe(enum ash_guard_verdict verdict, const struct ash_guard_stats *stats, double loss,
                               double norm, char *buf, size_t buf_bytes);

/* Statistics as a JSON object that keeps every bit: a new reference, or NULL when out of memory. */
json_t *ash_guard_encode(const struct ash_guard_stats *stats);
/* And back. Returns 0 or -EBADMSG. */
int ash_guard_decode(const json_t *json, struct ash_guard_stats *stats_out, struct ash_err *err);

#endif
