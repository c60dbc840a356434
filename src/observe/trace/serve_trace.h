/* serve_trace - what servers did and when, as Chrome trace events: one row of passes, and each request with its time in
 * the queue, its prompt, its answer and what every pass did for it. Made from the rings that servers keep, so nothing
 * has to be switched on before. */
#ifndef ASH_OBSERVE_TRACE_SERVE_TRACE_H
#define ASH_OBSERVE_TRACE_SERVE_TRACE_H

#include "base/str.h"
#include "observe/trace/server_rings.h"

/* Append the trace of the requests that are in the rings; id: only those whose id has this text in it, and the passes
 * that worked for them; NULL: all. Returns how many requests it has, -ENOENT (none) or -ENOMEM. */
int ash_serve_trace_write(const struct ash_server_set *set, const char *id, struct ash_str *out, struct ash_err *err);

#endif
