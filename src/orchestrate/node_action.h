/* node_action - takes a node out of service, with a reason for the scheduler: Slurm's drain with HyperPod's reasons, a
 * Kubernetes taint with its condition and labels, or any command. Nothing is done beyond a share of the cluster. */
#ifndef ASH_ORCHESTRATE_NODE_ACTION_H
#define ASH_ORCHESTRATE_NODE_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "base/str.h"

enum ash_scheduler { ASH_SCHEDULER_NONE, ASH_SCHEDULER_SLURM, ASH_SCHEDULER_KUBERNETES, ASH_SCHEDULER_COMMAND };

/* Action for the node. */
enum ash_node_fate { ASH_FATE_KEEP, ASH_FATE_RESET, ASH_FATE_REBOOT, ASH_FATE_REPLACE };

struct ash_node_action_opts {
    enum ash_scheduler scheduler;
    const char *command; /* of ASH_SCHEDULER_COMMAND: run by sh with NODE, FATE and REASON in its environment */
    double share_max;    /* of the cluster's nodes that may be out at once, and go out in an hour, this one included */
    const char
        *drains;    /* file that all nodes share (orchestrate/budget/drains.h); NULL: Slurm is not held to the hour */
    size_t nodes;   /* of the cluster, for ASH_SCHEDULER_COMMAND; 0: it has no budget */
    double seconds; /* that a command may take */
    /* Called before the node is taken out, within the budget. NULL: nothing to do. */
    void (*before)(void *ctx);
    void *ctx;
};

/* The command lines that would be run, one a line, into text: for a dry run and for logs. */
int ash_node_action_describe(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate,
                             const char *reason, struct ash_str *text);
/* Run it. Returns 0, -EBUSY (the budget of nodes out is spent), -ETIMEDOUT or another negative errno with the command's
 * output. */
int ash_node_action_run(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate,
                        const char *reason, struct ash_err *err);

#endif
