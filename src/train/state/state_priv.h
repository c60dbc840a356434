/* state_priv - between state.c, state_replicas.c and state_shared.c. */
#ifndef ASH_TRAIN_STATE_STATE_PRIV_H
#define ASH_TRAIN_STATE_STATE_PRIV_H

#include "train/state/state.h"

/* Allocate the shared memory of a state with node replicas: the weights move there, and this process gets its part to
 * update. All of them call it. */
int ash_state_open_replicas(struct ash_state *state, bool bf16, struct ash_err *err);
/* Node replicas: what no update writes, of this process's part, is the same in both places. */
void ash_state_copy_constants(struct ash_state *state);
/* The places of the values of two steps change their roles. */
void ash_state_swap_places(struct ash_state *state);
/* Bytes of this process's share of the node replicas' memory. */
size_t ash_state_replica_bytes(const struct ash_state *state);
/* Allocate the working copy of a state with a node shard group, whose moments are there; float32 weights move there.
 * All of them call it. */
int ash_state_open_shared(struct ash_state *state, bool bf16, struct ash_err *err);
/* The same of a state with tp peers, each of which has a working copy of one slice. */
int ash_state_open_tp_window(struct ash_state *state, bool bf16, struct ash_err *err);

#endif
