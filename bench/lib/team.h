/* team - timing code on pinned threads, and the statistics of repeated measurements. */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#include <stddef.h>

/* What one member does; thread is in [0, thread count). */
typedef void (*bench_body_fn)(void *ctx, int thread);

/* Run body on thread_count threads, each pinned to its own usable core, begun together. Returns the seconds from the
 * first begin to the last end, or a negative errno when threads cannot be started. */
double bench_team_run(int thread_count, bench_body_fn body, void *ctx);

/* Wait (2 s at most) until this process's own threads are idle: libraries let their workers spin after a call, which
 * would slow the next measurement. */
void bench_settle(void);

/* The middle value (the mean of the middle two); sorts values. 0 for none. */
double bench_median(double *values, size_t count);

#endif
