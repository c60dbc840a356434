/* Slurm is driven by its commands, which have the rights and the settings of the machine; Kubernetes by its API. */
#include "orchestrate/node_action.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/command.h"
#include "orchestrate/budget/drains.h"
#include "orchestrate/kubernetes/node.h"

/* Record it in the shared drains file, if there is one; the cluster has `nodes`. -EBUSY: beyond the budget. */
static int write_down(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate, size_t nodes,
                      struct ash_err *err)
{
    const struct ash_drains_budget budget = {.path = opts->drains,
                                             .nodes = nodes,
                                             .share_max = opts->share_max,
                                             .seconds = opts->seconds,
                                             .is_counted = opts->scheduler == ASH_SCHEDULER_SLURM};

    if (opts->drains == NULL) return 0;
    if (fate == ASH_FATE_KEEP) return ash_drains_return(&budget, node, ash_clock_wall_s(), err);
    return nodes > 0 ? ash_drains_claim(&budget, node, ash_clock_wall_s(), err) : 0;
}

static void prepare(const struct ash_node_action_opts *opts, enum ash_node_fate fate)
{
    if (fate != ASH_FATE_KEEP && opts->before != NULL) opts->before(opts->ctx);
}

/* ---- Slurm ------------------------------------------------------------------------------------------------------- */

/* HyperPod acts on exactly these words. */
static const char *slurm_reason(enum ash_node_fate fate)
{
    return fate == ASH_FATE_REPLACE  ? "Reason=Action:Replace"
           : fate == ASH_FATE_REBOOT ? "Reason=Action:Reboot"
                                     : "Reason=ashlar:reset";
}

/* How many nodes there are, and how many are out without this one. */
static int count_slurm(const struct ash_node_action_opts *opts, const char *node, size_t *nodes_out, size_t *out_out,
                       struct ash_err *err)
{
    static const char *const list[] = {"sinfo", "-h", "-N", "-o", "%N %T", NULL};
    struct ash_str output = {0};
    char *line, *last = NULL, before[256] = "";
    int rc = ash_command_output(&(struct ash_command){.argv = list, .limit_s = opts->seconds}, &output, err);

    *nodes_out = *out_out = 0;
    line = rc == 0 && output.data != NULL ? strtok_r(output.data, "\n", &last) : NULL;
    for (; line != NULL; line = strtok_r(NULL, "\n", &last)) {
        char name[256], state[64];

        /* sorted by node; one of several partitions comes several times */
        if (sscanf(line, "%255s %63s", name, state) != 2 || strcmp(name, before) == 0) continue;
        snprintf(before, sizeof(before), "%s", name);
        (*nodes_out)++;
        *out_out += strcmp(name, node) != 0 && (strstr(state, "drain") != NULL || strstr(state, "down") != NULL);
    }
    ash_str_fini(&output);
    return rc;
}

static int run_slurm(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate,
                     struct ash_err *err)
{
    char name[300];
    const char *const words[] = {"scontrol",
                                 "update",
                                 name,
                                 fate == ASH_FATE_KEEP ? "State=RESUME" : "State=DRAIN",
                                 fate == ASH_FATE_KEEP ? NULL : slurm_reason(fate),
                                 NULL};
    size_t nodes = 0, out = 0;
    int rc = 0;

    snprintf(name, sizeof(name), "NodeName=%s", node);
    if (fate != ASH_FATE_KEEP) rc = count_slurm(opts, node, &nodes, &out, err);
    if (rc == 0 && fate != ASH_FATE_KEEP && (double)(out + 1) > opts->share_max * (double)nodes && nodes > 0)
        rc = ash_drains_refuse(out, nodes, "are out already", opts->share_max, node, err);
    if (rc == 0) rc = write_down(opts, node, fate, nodes, err);
    if (rc == 0) prepare(opts, fate);
    return rc == 0 ? ash_command_output(&(struct ash_command){.argv = words, .limit_s = opts->seconds}, NULL, err) : rc;
}

/* ---- Kubernetes -------------------------------------------------------------------------------------------------- */

static const char *fate_name(enum ash_node_fate fate)
{
    static const char *const names[] = {"keep", "reset", "reboot", "replace"};

    ash_assert((size_t)fate < ASH_COUNT(names));
    return names[fate];
}

static struct ash_kube_node_mark mark_of(const struct ash_node_action_opts *opts, enum ash_node_fate fate,
                                         const char *reason)
{
    /* HyperPod acts on exactly these words. */
    static const char *const healths[] = {"Schedulable", "Unschedulable", "UnschedulablePendingReboot",
                                          "UnschedulablePendingReplacement"};

    ash_assert((size_t)fate < ASH_COUNT(healths));
    return (struct ash_kube_node_mark){.fate = fate != ASH_FATE_KEEP ? fate_name(fate) : NULL,
                                       .health = healths[fate],
                                       .reason = reason,
                                       .share_max = opts->share_max,
                                       .before = opts->before,
                                       .ctx = opts->ctx};
}

static int describe_kubernetes(const char *node, const struct ash_kube_node_mark *mark, struct ash_str *text)
{
    int rc = mark->fate != NULL ? ash_str_addf(text, "kubectl taint node %s %s=%s:NoSchedule --overwrite; ", node,
                                               ASH_KUBE_NODE_TAINT, mark->fate)
                                : ash_str_addf(text, "kubectl taint node %s %s-; ", node, ASH_KUBE_NODE_TAINT);

    if (rc == 0)
        rc = ash_str_addf(text, "kubectl label node %s %s=%s --overwrite; condition %s=%s: %s\n", node,
                          ASH_KUBE_NODE_LABEL, mark->health, ASH_KUBE_NODE_CONDITION,
                          mark->fate != NULL ? "False" : "True", mark->reason);
    return rc;
}

/* ---- any command ------------------------------------------------------------------------------------------------- */

static int run_command(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate,
                       const char *reason, struct ash_err *err)
{
    struct ash_str node_text = {0}, fate_text = {0}, reason_text = {0};
    const char *const words[] = {"sh", "-c", opts->command, NULL};
    int rc = ash_str_addf(&node_text, "NODE=%s", node);

    if (rc == 0) rc = ash_str_addf(&fate_text, "FATE=%s", fate_name(fate));
    if (rc == 0) rc = ash_str_addf(&reason_text, "REASON=%s", reason);
    rc = rc < 0 ? ash_err_set(err, rc, "no memory for a command") : write_down(opts, node, fate, opts->nodes, err);
    if (rc == 0) {
        const char *const env[] = {node_text.data, fate_text.data, reason_text.data, NULL};

        prepare(opts, fate);
        rc = ash_command_output(&(struct ash_command){.argv = words, .env = env, .limit_s = opts->seconds}, NULL, err);
    }
    ash_str_fini(&node_text), ash_str_fini(&fate_text), ash_str_fini(&reason_text);
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int ash_node_action_run(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate,
                        const char *reason, struct ash_err *err)
{
    struct ash_kube_node_mark mark;

    switch (opts->scheduler) {
    case ASH_SCHEDULER_SLURM:
        return run_slurm(opts, node, fate, err);
    case ASH_SCHEDULER_KUBERNETES:
        mark = mark_of(opts, fate, reason);
        return ash_kube_node_set(node, &mark, err);
    case ASH_SCHEDULER_COMMAND:
        return run_command(opts, node, fate, reason, err);
    default:
        return ash_err_set(err, -EINVAL, "no scheduler is set: --scheduler slurm, kubernetes or command");
    }
}

int ash_node_action_describe(const struct ash_node_action_opts *opts, const char *node, enum ash_node_fate fate,
                             const char *reason, struct ash_str *text)
{
    struct ash_kube_node_mark mark;

    switch (opts->scheduler) {
    case ASH_SCHEDULER_SLURM:
        return ash_str_addf(text, "scontrol update NodeName=%s %s %s\n", node,
                            fate == ASH_FATE_KEEP ? "State=RESUME" : "State=DRAIN",
                            fate == ASH_FATE_KEEP ? "" : slurm_reason(fate));
    case ASH_SCHEDULER_KUBERNETES:
        mark = mark_of(opts, fate, reason);
        return describe_kubernetes(node, &mark, text);
    case ASH_SCHEDULER_COMMAND:
        return ash_str_addf(text, "NODE=%s FATE=%s REASON='%s' sh -c '%s'\n", node, fate_name(fate), reason,
                            opts->command);
    default:
        return ash_str_addf(text, "node %s: %s (%s)\n", node, fate_name(fate), reason);
    }
}
