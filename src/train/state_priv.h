/* state_priv - between state.c and state_twins.c. */
#ifndef ASH_TRAIN_STATE_PRIV_H
#define ASH_TRAIN_STATE_PRIV_H

#include "train/state.h"

/* Give a state with twins its memory: the weights move there, and this process gets its part to update. */
int ash_state_open_twins(struct ash_state *state, bool bf16, struct ash_err *err);

#endif
