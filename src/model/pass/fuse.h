/* fuse - the input of a head for drafts (multi-token prediction): a token's embedding and the state of the token before
 * it, each after a norm of its own, side by side through one matrix. Inference on one rank alone. */
#ifndef ASH_MODEL_PASS_FUSE_H
#define ASH_MODEL_PASS_FUSE_H

#include "model/pass/pass.h"
#include "model/pass/step.h"

/* Copy the batch's states to the exec's memory. Returns 0 or the error of the copy. */
int ash_fuse_begin(const struct ash_pass_step *step, struct ash_err *err);
/* x [rows, C], the embeddings of the step's tokens, becomes the stream before the head's layer. The states of the batch
 * are normed in place. */
void ash_fuse_forward(const struct ash_pass_step *step, float *x);

#endif
