/* check_priv - what `ashlar check node` and `ashlar check cluster` share. */
#ifndef ASH_CMD_CHECK_PRIV_H
#define ASH_CMD_CHECK_PRIV_H

#include <stdbool.h>
#include "collective/group.h"
#include "probe/cluster.h"

/* Check all nodes that a launcher started this on, once each: every node itself, then against each other. The first
 * prints. Returns the exit code: 0, 1 (a node is not fit, or an outlier), or a negative errno. */
int ash_cmd_check_cluster(const struct ash_cluster_check *check, const struct ash_group_opts *opts, bool wants_json,
                          struct ash_err *err);

#endif
