/* futex - how a process waits for a counter in shared memory that another one will raise: a short spin, then yields,
 * then sleep until the other wakes it. */
#ifndef ASH_COLLECTIVE_CORE_FUTEX_H
#define ASH_COLLECTIVE_CORE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ashlar/err.h"

/* In shared memory, zeroed at first. */
struct ash_futex {
    _Atomic uint32_t sleepers, sequence;
};

/* Progress callback of a wait, called between spells of sleep: what else may have happened in waited_ns? Returns 0 to
 * wait on, or a negative errno that ends the wait. */
typedef int (*ash_futex_progress_fn)(void *ctx, uint64_t waited_ns, struct ash_err *err);

/* Wake who sleeps. After a sequentially consistent store to the counter that they wait for. */
void ash_futex_wake(struct ash_futex *futex);
/* Wait until the counter is at least value. oversubscribed: there are more processes than cores, so give the core away
 * soon. Returns 0 or what progress returned. */
int ash_futex_wait(struct ash_futex *futex, const _Atomic uint64_t *counter, uint64_t value, bool oversubscribed,
                   ash_futex_progress_fn progress, void *ctx, struct ash_err *err);
/* From now on the calling thread waits as if its host were oversubscribed: another one computes meanwhile. */
void ash_futex_yield_early(void);
/* Does the calling thread? */
bool ash_futex_yields_early(void);
/* One turn of a loop that spins. */
void ash_cpu_relax(void);

#endif
