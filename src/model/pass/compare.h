/* compare - how far two models are from each other. */
#ifndef ASH_MODEL_PASS_COMPARE_H
#define ASH_MODEL_PASS_COMPARE_H

#include "model/model.h"

#define ASH_PASS_COMPARED 64 /* drawn tokens */

/* The largest distance between the logits of two models of one vocabulary, on the CPU, after each of ASH_PASS_COMPARED
 * drawn tokens. Not finite if a logit is not. Returns 0, or an error of a pass. */
int ash_pass_compare(struct ash_model *a, struct ash_model *b, double *far_out, struct ash_err *err);

#endif
