/* reach - which hosts still answer. All are probed together: a host that is cut off is silent, so one after the other
 * would take a wait for each. */
#ifndef ASH_COLLECTIVE_MEMBER_REACH_H
#define ASH_COLLECTIVE_MEMBER_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include "collective/member/watch.h"

/* cut_out[r]: the host of rank r does not answer (a host that refuses the connection does). own is this rank: its
 * host is not asked. Takes a moment where all answer, and a twentieth of a second where one does not. Returns 0 or
 * -ENOMEM. */
int ash_reach_hosts(const struct ash_watch_member *members, size_t size, size_t own, bool *cut_out);

#endif
