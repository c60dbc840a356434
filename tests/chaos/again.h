/* again - rows of `chaos matrix` in which something happens more than once, or on the way. All return as
 * ash_chaos_fault.happen. */
#ifndef ASH_TESTS_CHAOS_AGAIN_H
#define ASH_TESTS_CHAOS_AGAIN_H

#include "chaos/faults.h"

/* A rank is killed and restarted; a bit of the state sent to it changes in transit. */
int ash_chaos_flip_sent(struct ash_chaos_cell *cell);
/* Kill the ranks that were there at first, one by one; each comes back before the next is killed. */
int ash_chaos_replace_all(struct ash_chaos_cell *cell);
/* One step kills a rank each time that it is tried, until the launcher ends the job, which is then resumed. */
int ash_chaos_doom_step(struct ash_chaos_cell *cell);

/* A rank leaves, another joins, and is lost while it receives the state. */
int ash_chaos_lose_newcomer(struct ash_chaos_cell *cell);
/* The same: a rank that gives. */
int ash_chaos_lose_source(struct ash_chaos_cell *cell);
/* The same: the first rank. */
int ash_chaos_lose_coordinator(struct ash_chaos_cell *cell);

#endif
