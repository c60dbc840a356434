/* fuse - the input of a head for drafts (multi-token prediction): a token's embedding and the state of the token before
 * it, each after its norm, side by side through one matrix; or (EAGLE-3) through attention's projections. Inference on
 * one rank alone. */
#ifndef ASH_MODEL_PASS_FUSE_H
#define ASH_MODEL_PASS_FUSE_H

#include "model/pass/pass.h"
#include "model/pass/step.h"

/* Copy the batch's states to the exec's memory. Returns 0 or the error of the copy. */
int ash_fuse_begin(const struct ash_pass_step *step, struct ash_err *err);
/* x [rows, C], the embeddings of the step's tokens, becomes the stream before the head's layer. The states of the batch
 * are normed in place. As EAGLE-3 has it the stream is the states, and scratch.fused [rows, 2 C] the input of
 * attention. */
void ash_fuse_forward(const struct ash_pass_step *step, float *x);
/* Of EAGLE-3: the step's rows of captured [rows, captured] as states_out [rows, C]; both in the host's memory. Returns
 * 0 or the error of a copy. */
int ash_fuse_captured(const struct ash_pass_step *step, const float *captured, float *states_out, struct ash_err *err);

#endif
