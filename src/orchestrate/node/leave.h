/* leave - notifies the ranks of jobs on this node that it goes out of service, as a spot notice does: they hand over
 * their shards at a step boundary and end, spares take over, nothing is redone. A job without other ranks saves and
 * ends. */
#ifndef ASH_ORCHESTRATE_NODE_LEAVE_H
#define ASH_ORCHESTRATE_NODE_LEAVE_H

#include <stddef.h>

/* Send SIGTERM to every process that publishes its steps in the folder `pages` and runs here. Returns how many. */
size_t ash_ranks_tell_to_leave(const char *pages);

#endif
