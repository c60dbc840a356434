/* state_priv - between state.c, state_twins.c and state_shared.c. */
#ifndef ASH_TRAIN_STATE_STATE_PRIV_H
#define ASH_TRAIN_STATE_STATE_PRIV_H

#include "train/state/state.h"

/* Give a state with twins its memory: the weights move there, and this process gets its part to update. */
int ash_state_open_replicas(struct ash_state *state, bool bf16, struct ash_err *err);
/* The places of the values of two steps change their roles. */
void ash_state_swap_places(struct ash_state *state);
/* Bytes of this process's share of twins' memory. */
size_t ash_state_replica_bytes(const struct ash_state *state);
/* Give a state with sharers, whose moments are there, its working copy; float32 weights move there. */
int ash_state_open_shared(struct ash_state *state, bool bf16, struct ash_err *err);
/* The same of a state with readers, each of which has a working copy of its own slice. */
int ash_state_open_tp_window(struct ash_state *state, bool bf16, struct ash_err *err);

#endif
