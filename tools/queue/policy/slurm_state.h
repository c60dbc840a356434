/* slurm_state - a policy as QOS and accounts of Slurm's accounting: those of the policy, those that sacctmgr prints,
 * and the commands from one to the other. No program is run here.
 *
 * A state is {"qos": {NAME: {FIELD: TEXT}}, "account": {NAME: {FIELD: TEXT}}}, in an order in which sacctmgr can add
 * them. Fields are named as sacctmgr sets them. */
#ifndef ASH_QUEUE_POLICY_SLURM_STATE_H
#define ASH_QUEUE_POLICY_SLURM_STATE_H

#include <jansson.h>
#include "queue/policy/conf.h"

/* What `sacctmgr --noheader --parsable2 show qos` and `show associations where user=` print. */
#define ASH_SACCTMGR_QOS_FORMAT "format=Name,Priority,Preempt,Flags,MaxTRESPU"
#define ASH_SACCTMGR_ACCOUNTS_FORMAT "format=Cluster,Account,User,ParentName,Fairshare,GrpTRES,MaxTRES,QOS,DefaultQOS"

/* The state that a policy wants. The caller owns *state_out (json_decref). Returns 0, -EINVAL (two names are one for
 * Slurm) or -ENOMEM. */
int ash_slurm_state_of(const struct ash_policy_conf *conf, json_t **state_out, struct ash_err *err);
/* The state of those two texts. Returns 0, -EINVAL (a line that sacctmgr does not print; accounts of several clusters)
 * or -ENOMEM. */
int ash_slurm_state_read(const char *qos, const char *accounts, json_t **state_out, struct ash_err *err);
/* Words for sacctmgr, an array of strings for each command, that make every field of wanted in live: [["add", "qos",
 * ...], ...]. Empty: they are equal. Things of live alone are left alone. NULL: out of memory. */
json_t *ash_slurm_state_changes(const json_t *wanted, const json_t *live);

#endif
