/* head_priv - the loss of a few rows, whichever ranks have the columns of their logits, and its gradient. */
#ifndef ASH_MODEL_PASS_HEAD_PRIV_H
#define ASH_MODEL_PASS_HEAD_PRIV_H

#include "model/pass/grads.h"
#include "model/pass/linear.h"
#include "model/pass/parallel_linear.h"
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

/* The output matrix. */
int32_t ash_head_param(const struct ash_model *model);
/* Outputs of a row here: its part of the vocabulary, or a classifier's labels. */
size_t ash_head_width(const struct ash_model *model);
/* Does the output matrix get no gradient, because adapters are trained alone? */
bool ash_head_is_frozen(const struct ash_pass_step *step, const struct ash_grad_sink *sink);
/* Gradients of logits may have a factor for each row apart (see struct ash_loss_part); factors is NULL where they have
 * none. The output matrix's gradient over the rows of a piece. */
void ash_head_weight_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                           const struct ash_column_parallel *columns, const float *factors);
/* The gradient of the head's input over io's rows. */
void ash_head_input_grads(const struct ash_pass_step *step, const float *factors, const struct ash_linear_io *io);
/* Both of a piece, from the gradients of its logits, to the output matrix and to dnorm. x: of its first row. */
void ash_head_backward_rows(const struct ash_pass_step *step, struct ash_grad_sink *sink, const float *x,
                            struct ash_range rows, const float *factors);

#endif
