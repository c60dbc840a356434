/* workers - a fixed set of threads that run loops. The calling thread is one of them.
 * A loop's body gets a range of units; which thread gets which range is not defined, so a body writes only what its
 * units own: that is how results stay the same for every number of threads. */
#ifndef ASH_BASE_WORKERS_H
#define ASH_BASE_WORKERS_H

#include <stddef.h>
#include "ashlar/err.h"

#define ASH_WORKERS_MAX 256

struct ash_workers;

/* Run units [begin, end). worker is in [0, thread count) and no two running bodies share it: use it to pick scratch
 * memory. */
typedef void (*ash_range_fn)(void *ctx, size_t begin, size_t end, int worker);

/* thread_count 0 means one per core that this process may use. Returns 0, -EINVAL, -ENOMEM or -EAGAIN. */
int ash_workers_open(int thread_count, struct ash_workers **workers_out, struct ash_err *err);
/* Stop and join. NULL is a no-op. No loop may be running. */
void ash_workers_close(struct ash_workers *workers);
/* How many threads there are, the caller's included: NULL is that one alone. */
int ash_workers_count(const struct ash_workers *workers);

enum ash_pin { ASH_PIN_AUTO, ASH_PIN_ON, ASH_PIN_OFF };

/* Tie each thread but the caller's to its own core, among those that this process may use, so that the system does
 * not move them. AUTO does so only if there are as many threads as the machine has cores and the process may use
 * them all: otherwise another process may need a core. ON with more threads than cores is -EINVAL.
 * Once, after open; returns 0 or a negative errno. */
int ash_workers_pin(struct ash_workers *workers, enum ash_pin pin, struct ash_err *err);

/* Run body over units [0, count) in ranges of at least min_units (the last may be smaller) and return when all are
 * done. workers NULL, or a count of at most min_units, runs on the calling thread alone. Not reentrant: a body must not
 * call it. */
void ash_workers_run(struct ash_workers *workers, size_t count, size_t min_units, ash_range_fn body, void *ctx);

/* The same for up to 2^32 - 1 units that are contiguous in memory, whose bandwidth decides how long they take: a thread
 * works through neighbouring units, and when it has finished steals half of what another has left. */
void ash_workers_stream(struct ash_workers *workers, size_t count, size_t min_units, ash_range_fn body, void *ctx);

#endif
