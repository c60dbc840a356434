/* bell - how a process waits for a counter in shared memory that another one will raise: a short spin, then yields,
 * then sleep until the other rings. Private to collective/. */
#ifndef ASH_COLLECTIVE_BELL_H
#define ASH_COLLECTIVE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ashlar/err.h"

/* In shared memory, zeroed at first. */
struct ash_bell {
    _Atomic uint32_t sleepers, rung;
};

/* What else may have happened while one waits: called again and again, between spells of sleep. Returns 0 to wait on.
 */
typedef int (*ash_bell_look_fn)(void *ctx, uint64_t waited_ns, struct ash_err *err);

/* Wake who sleeps. After a sequentially consistent store to the counter that they wait for. */
void ash_bell_ring(struct ash_bell *bell);
/* Wait until the counter is at least value. crowded: there are more processes than cores, so give the core away soon.
 * Returns 0 or what look returned. */
int ash_bell_wait(struct ash_bell *bell, const _Atomic uint64_t *counter, uint64_t value, bool crowded,
                  ash_bell_look_fn look, void *ctx, struct ash_err *err);
/* From now on the calling thread waits as if its host were crowded: it works beside one that computes. */
void ash_bell_give_way(void);
bool ash_bell_gives_way(void);
/* One turn of a loop that spins. */
void ash_bell_relax(void);

#endif
