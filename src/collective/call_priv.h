/* call_priv - the threads that run started calls. */
#ifndef ASH_COLLECTIVE_CALL_PRIV_H
#define ASH_COLLECTIVE_CALL_PRIV_H

#include "collective/group.h"

struct ash_call_queues;

enum ash_call_nature { ASH_NATURE_COLLECTIVE, ASH_NATURE_SEND, ASH_NATURE_RECEIVE };

/* Before a call that is not started but made: wait until those that were started and come before it are done, unless
 * the caller is one of the group's own threads. */
void ash_call_drain(struct ash_group *group, enum ash_call_nature nature);
/* Wait for all calls and end the threads. NULL is a no-op. */
void ash_call_queues_close(struct ash_call_queues *queues);

#endif
