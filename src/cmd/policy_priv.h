/* ashlar policy: what each kind of cluster does with a policy. */
#ifndef ASH_CMD_POLICY_PRIV_H
#define ASH_CMD_POLICY_PRIV_H

#include <jansson.h>
#include "base/str.h"
#include "queue/policy/conf.h"

/* A cluster that a policy is for. A change is what `run` takes; its text is what people read. */
struct ash_policy_site_ops {
    /* Append all that the policy wants there, as that cluster's own tools read it. */
    int (*show)(const struct ash_policy_conf *conf, struct ash_str *text, struct ash_err *err);
    /* Changes from its state to the policy's: an array, empty if they are equal. The caller owns *changes_out. */
    int (*compare)(const struct ash_policy_conf *conf, json_t **changes_out, struct ash_err *err);
    /* Append a line about a change. Returns 0 or -ENOMEM. */
    int (*describe)(const json_t *change, struct ash_str *text);
    /* Make it. */
    int (*run)(const json_t *change, struct ash_err *err);
};

extern const struct ash_policy_site_ops ash_policy_slurm_site; /* through sacctmgr */
extern const struct ash_policy_site_ops ash_policy_kueue_site; /* through the API of Kubernetes */

#endif
