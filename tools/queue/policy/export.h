/* export - a policy as configuration of common schedulers, and the settings that those lack. */
#ifndef ASH_QUEUE_POLICY_EXPORT_H
#define ASH_QUEUE_POLICY_EXPORT_H

#include "base/str.h"
#include "infra/topology/topology.h"
#include "queue/policy/conf.h"

enum ash_policy_target { ASH_POLICY_SLURM, ASH_POLICY_KUEUE, ASH_POLICY_VOLCANO, ASH_POLICY_KAI };

/* Append the configuration: slurm.conf lines and sacctmgr commands, or YAML documents. Lines that begin with "# not
 * expressed:" list missing settings. Returns 0 or -ENOMEM. */
int ash_policy_export(const struct ash_policy_conf *conf, const struct ash_topology *topology,
                      enum ash_policy_target target, struct ash_str *text);

#endif
