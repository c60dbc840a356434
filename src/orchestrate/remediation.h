/* remediation - from a node's status to an action of its scheduler: drain for a reset, a reboot or a replacement, and
 * resume once the node is healthy. An action that failed is due again. One owner thread. */
#ifndef ASH_ORCHESTRATE_REMEDIATION_H
#define ASH_ORCHESTRATE_REMEDIATION_H

#include "observe/health/node_state.h"
#include "orchestrate/node_action.h"

enum ash_remediation_mode {
    ASH_REMEDIATION_NONE,
    ASH_REMEDIATION_DRY_RUN, /* log the command lines */
    ASH_REMEDIATION_DRAIN,   /* drain; a person resumes */
    ASH_REMEDIATION_FULL     /* drain and resume */
};

/* Caller's storage. */
struct ash_remediation {
    enum ash_remediation_mode mode;
    struct ash_node_action_opts action; /* without before and ctx */
    const char *node;                   /* its name for the scheduler */
    const char *ranks;                  /* folder of ranks that are notified before a drain; NULL: none */
    /* state, zeroed at first */
    bool is_drained, is_notified;
};

/* Act on a new status of the node; reason goes to the scheduler. Logs the action and its error. Returns whether it is
 * done: false if it failed and must be tried again. */
bool ash_remediation_act(struct ash_remediation *remediation, enum ash_node_status status, const char *reason);

#endif
