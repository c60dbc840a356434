/* state_ops - which ops of recurrent states a backend has. */
#ifndef ASH_COMPUTE_BACKENDS_STATE_OPS_H
#define ASH_COMPUTE_BACKENDS_STATE_OPS_H

#include "compute/ops_state.h"

/* Those of exec; NULL where the host cannot touch its memory. */
const struct ash_state_ops *ash_state_ops_of(const struct ash_exec *exec);

#endif
