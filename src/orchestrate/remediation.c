/* Ranks are notified once for each drain, within its budget and before the scheduler acts. */
#include "orchestrate/remediation.h"

#include <string.h>

#include "base/log.h"
#include "orchestrate/node/leave.h"

static enum ash_node_fate fate_of(enum ash_node_status status)
{
    switch (status) {
    case ASH_NODE_DRAIN_RESET:
        return ASH_FATE_RESET;
    case ASH_NODE_DRAIN_REBOOT:
        return ASH_FATE_REBOOT;
    case ASH_NODE_DRAIN_REPLACE:
        return ASH_FATE_REPLACE;
    default:
        return ASH_FATE_KEEP;
    }
}

static void notify_ranks(void *ctx)
{
    struct ash_remediation *remediation = ctx;
    size_t count;

    if (remediation->is_notified || remediation->ranks == NULL) return;
    remediation->is_notified = true;
    count = ash_ranks_tell_to_leave(remediation->ranks);
    if (count > 0) ash_log(ASH_LOG_INFO, "told %zu ranks on node %s to leave", count, remediation->node);
}

/* The first command line. */
static void log_action(const struct ash_remediation *remediation, enum ash_node_fate fate, const char *reason)
{
    struct ash_str text = {0};

    if (ash_node_action_describe(&remediation->action, remediation->node, fate, reason, &text) == 0)
        ash_log(ASH_LOG_INFO, "%s%.*s", remediation->mode == ASH_REMEDIATION_DRY_RUN ? "would run: " : "running: ",
                (int)strcspn(text.data, "\n"), text.data);
    ash_str_fini(&text);
}

bool ash_remediation_act(struct ash_remediation *remediation, enum ash_node_status status, const char *reason)
{
    enum ash_node_fate fate = fate_of(status);
    struct ash_node_action_opts action = remediation->action;
    struct ash_err err = {0};
    int rc;

    if (fate == ASH_FATE_KEEP &&
        (!remediation->is_drained || status != ASH_NODE_HEALTHY || remediation->mode == ASH_REMEDIATION_DRAIN))
        return true;
    log_action(remediation, fate, reason);
    if (remediation->mode == ASH_REMEDIATION_DRY_RUN) return true;
    action.before = notify_ranks;
    action.ctx = remediation;
    rc = ash_node_action_run(&action, remediation->node, fate, reason, &err);
    if (rc < 0)
        ash_log(ASH_LOG_ERROR, "node %s was not changed: %s", remediation->node, err.text);
    else
        remediation->is_drained = fate != ASH_FATE_KEEP;
    if (fate == ASH_FATE_KEEP) remediation->is_notified = false;
    return rc == 0;
}
