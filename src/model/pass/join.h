/* join - how a block's output joins the stream: as it is, times a factor, or through a norm. */
#ifndef ASH_MODEL_PASS_JOIN_H
#define ASH_MODEL_PASS_JOIN_H

#include "model/pass/grads.h"
#include "model/pass/linear.h"
#include "model/pass/step.h"

/* after = before + the block's output, which is the group's one product, row-parallel along tp. Without a backward pass
 * before and after may be the same rows. */
void ash_join_product(const struct ash_pass_step *step, size_t layer, enum ash_block block,
                      struct ash_linear_group *group, const float *before, float *after);
/* Where a block that makes its own output puts it: [own rows, C]. */
float *ash_join_output(const struct ash_pass_step *step, size_t layer, enum ash_block block);
/* after = before + what is there. */
void ash_join_add(const struct ash_pass_step *step, size_t layer, enum ash_block block, const float *before,
                  float *after);
/* The gradient of the block's output, from that of the stream, scratch.dx: rows of all ranks of tp. The norm's gradient
 * goes to sink. */
const float *ash_join_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                               enum ash_block block);

#endif
