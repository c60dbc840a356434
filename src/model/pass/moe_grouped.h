/* moe_grouped - experts' products as one op each, where how many tokens chose which expert is on a device: the forward
 * pass does not wait for it. */
#ifndef ASH_MODEL_PASS_MOE_GROUPED_H
#define ASH_MODEL_PASS_MOE_GROUPED_H

#include "model/pass/step.h"

/* Are this layer's experts computed so? Where the host sees the memory it reads the offsets, and has packed weights. */
bool ash_moe_is_grouped(const struct ash_pass_step *step, size_t layer);
/* From x to the pairs' y, once they are sorted: what dispatch, the experts and combine do together. */
void ash_moe_grouped_forward(const struct ash_pass_step *step, size_t layer, const float *x);
/* Bring the offsets to the host, for the backward pass. Waits. */
void ash_moe_grouped_offsets(const struct ash_pass_step *step, size_t layer);

#endif
