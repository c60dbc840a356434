/* links - rows of `chaos matrix` that need networks of nodes: launch with --netns. All return as
 * ash_chaos_fault.happen. */
#ifndef ASH_TESTS_CHAOS_LINKS_H
#define ASH_TESTS_CHAOS_LINKS_H

#include "chaos/faults.h"

/* Cut the second node's link until one side continues without the other; then heal it: ranks that reconnect end. */
int ash_chaos_cut_link(struct ash_chaos_cell *cell);
/* The same, but only packets of the second node are lost. */
int ash_chaos_cut_one_way(struct ash_chaos_cell *cell);
/* Make that link slow, for good, until the job names it. */
int ash_chaos_throttle(struct ash_chaos_cell *cell);
/* The same, until ranks that are not behind it have taken over. */
int ash_chaos_replace_throttled(struct ash_chaos_cell *cell);

#endif
