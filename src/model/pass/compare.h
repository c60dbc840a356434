/* compare - how far two models are from each other. */
#ifndef ASH_MODEL_PASS_COMPARE_H
#define ASH_MODEL_PASS_COMPARE_H

#include "model/model.h"

#define ASH_PASS_COMPARED 64 /* drawn tokens */

/* The largest distance between the logits of two models of one vocabulary, on the CPU, after each of ASH_PASS_COMPARED
 * drawn tokens. Not finite if a logit is not. Returns 0, or an error of a pass. */
int ash_pass_compare(struct ash_model *a, struct ash_model *b, double *far_out, struct ash_err *err);

#define ASH_PASS_TEXT_ROWS 256 /* tokens that know of each other */

/* How far two models are on a text, in nats a token. */
struct ash_pass_distance {
    size_t tokens;         /* that were predicted */
    double loss_a, loss_b; /* of the next token */
    double divergence;     /* Kullback-Leibler, of what a expects from what b expects */
};

/* Measure it over windows of ids [count], on all cores of the CPU. Returns 0, -EINVAL for fewer than two ids or one
 * outside of the vocabulary, -ENOMEM, or an error of a pass. */
int ash_pass_compare_text(struct ash_model *a, struct ash_model *b, const int32_t *ids, size_t count,
                          struct ash_pass_distance *distance_out, struct ash_err *err);

#endif
