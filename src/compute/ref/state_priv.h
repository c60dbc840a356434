/* The two halves of the ops of recurrent states. */
#ifndef ASH_COMPUTE_REF_STATE_PRIV_H
#define ASH_COMPUTE_REF_STATE_PRIV_H

#include "compute/ops_state.h"

/* state_conv.c: ash_state_ops.conv_forward. */
void ash_ref_conv_forward(struct ash_exec *exec, const struct ash_conv_args *args);
/* ash_state_ops.conv_backward. */
void ash_ref_conv_backward(struct ash_exec *exec, const struct ash_conv_args *args);

#endif
