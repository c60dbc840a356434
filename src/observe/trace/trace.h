/* trace - what ranks did and when, as Chrome trace events: steps and their parts, collective calls, messages with an
 * arrow from send to receive. All ranks are on one clock. Made from the rings that every rank leaves, so nothing has to
 * be switched on before. */
#ifndef ASH_OBSERVE_TRACE_TRACE_H
#define ASH_OBSERVE_TRACE_TRACE_H

#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "observe/flight/flight.h"
#include "observe/ranks/rank_steps.h"

/* Inputs of a trace. All are borrowed. */
struct ash_trace_sources {
    const struct ash_flight_set *calls;
    const struct ash_rank_set *steps;
    const char *ops_dir; /* folder with ranks' ops, rank-N.ops.json (train.trace); NULL: none */
};

/* Append the trace of steps first ... last of these ranks (0 and UINT64_MAX: all that is there). Ranks without ops, or
 * whose ops cannot be read, have none. Returns 0, -ENOENT (no such step) or -ENOMEM. */
int ash_trace_write(const struct ash_trace_sources *sources, uint64_t first, uint64_t last, struct ash_str *out,
                    struct ash_err *err);

#endif
