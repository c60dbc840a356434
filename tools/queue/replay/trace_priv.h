/* Shared by the readers of traces. */
#ifndef ASH_QUEUE_TRACE_PRIV_H
#define ASH_QUEUE_TRACE_PRIV_H

#include "queue/replay/trace.h"

/* A trace that grows. */
struct ash_trace_build {
    struct ash_trace *trace;
    size_t capacity;
    struct ash_trace_names *queues, *classes, *users;
};

/* Begin an empty one. Returns 0 or -ENOMEM. */
int ash_trace_build_open(struct ash_trace_build *build);
/* Free the build's memory; the trace stays. */
void ash_trace_build_close(struct ash_trace_build *build);
/* Append a job; queue, class and user by name (NULL: none). Rows that no cluster can run are counted as skipped.
 * Returns 0, -EINVAL or -ENOMEM. */
int ash_trace_add(struct ash_trace_build *build, struct ash_trace_job job, const char *queue, const char *class,
                  const char *user, struct ash_err *err);
/* The names become the trace's own. */
void ash_trace_keep_names(struct ash_trace_build *build);
/* Sort by submission, which then begins at 0. */
void ash_trace_settle(struct ash_trace *trace);

/* Philly's own JSON. */
int ash_trace_read_philly(struct ash_trace_build *build, const char *text, size_t size_bytes, struct ash_err *err);
/* Lines of numbers, as the Parallel Workloads Archive has them; processors count as GPUs. */
int ash_trace_read_swf(struct ash_trace_build *build, char *text, struct ash_err *err);
/* A header and rows. */
int ash_trace_read_table(struct ash_trace_build *build, char *text, struct ash_err *err);

/* Seconds of "2023-08-01 12:00:00", "2023-08-01T12:00:00+00:00" or of a number; < 0: neither. */
double ash_trace_time(const char *text);
/* Seconds of "1-02:03:04", "02:03:04", "03:04", or of a number; < 0: none ("UNLIMITED"). */
double ash_trace_span(const char *text);

#endif
