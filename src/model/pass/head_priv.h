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
/* head_other.c: of a reward model the "loss" of a row is its score, and the gradient of the logits the rows' scales. */
void ash_head_score_rows(const struct ash_pass_step *step, const struct ash_head_piece *piece);
/* head_other.c: divergences from the batch's teacher, with their gradient. All ranks of tp call it. */
void ash_head_teach_rows(const struct ash_pass_step *step, const struct ash_head_piece *piece);

#endif
