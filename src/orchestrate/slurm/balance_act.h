/* balance_act - the queue of a Slurm looked at, and nodes given or added, through its own programs. */
#ifndef ASH_ORCHESTRATE_SLURM_BALANCE_ACT_H
#define ASH_ORCHESTRATE_SLURM_BALANCE_ACT_H

#include "base/str.h"
#include "orchestrate/slurm/balance.h"

/* Read queue, idle nodes and classes (PriorityTier of partitions, then the QOS' priority where accounting has them).
 * Returns 0 or a negative errno: Slurm does not answer. Free with ash_balance_free, whatever is returned. */
int ash_balance_look(struct ash_balance *balance, struct ash_err *err);
/* Make a change, and wait until it is made: nodes that are given have been left by their ranks between two steps before
 * Slurm gets them back. Returns 0, or a negative errno with the sentence; then the job has the nodes that it had, or
 * Slurm has those that were left already. */
int ash_balance_make(const struct ash_balance *balance, const struct ash_balance_change *change, struct ash_err *err);

#endif
