/* head_priv - the loss of a few rows, whoever has the columns of their logits. */
#ifndef ASH_MODEL_PASS_HEAD_PRIV_H
#define ASH_MODEL_PASS_HEAD_PRIV_H

#include "model/pass/step.h"

/* A few rows of the step, and this rank's part of their loss. */
struct ash_head_piece {
    size_t first;
    struct ash_loss_part part;
};

/* head_split.c: the losses of a piece whose columns the ranks of tp share; logits become gradients where those are
 * wanted. All of them call it. */
void ash_head_split_loss(const struct ash_pass_step *step, struct ash_head_piece *piece);

#endif
