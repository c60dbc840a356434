/* loss_ranks - the loss of a batch by several ranks that share the model: their parts of its layers over a cache, and
 * the trainer's loss of the logits that come together on the first one. The bits of ash_pass_eval. One owner thread. */
#ifndef ASH_POST_EVAL_LOSS_RANKS_H
#define ASH_POST_EVAL_LOSS_RANKS_H

#include "model/pass/pass.h"
#include "serve/engine.h"

struct ash_loss_ranks;

/* For documents of max_rows rows at most. Borrows engine, which has ranks, until close. Returns 0 or a negative errno.
 * The caller owns *loss_out. */
int ash_loss_ranks_open(struct ash_engine *engine, size_t max_rows, struct ash_loss_ranks **loss_out,
                        struct ash_err *err);
/* NULL is a no-op. */
void ash_loss_ranks_close(struct ash_loss_ranks *loss);
/* losses [rows] of the batch's rows; 0 where there is no target. */
int ash_loss_ranks_eval(struct ash_loss_ranks *loss, const struct ash_batch *batch, float *losses, struct ash_err *err);

#endif
