/* kept - rows whose distribution is over some ids alone: the logits of all others become -infinity, so they weigh
 * nothing, get no gradient, and no other sum changes by a bit. */
#ifndef ASH_MODEL_PASS_KEPT_H
#define ASH_MODEL_PASS_KEPT_H

#include "model/pass/step.h"

/* Logits [rows.count, vocab here] of these rows of the step, before their loss. Does nothing where the rows keep all
 * ids. A failed copy is kept in axes. */
void ash_kept_mask(const struct ash_pass_step *step, struct ash_range rows, float *logits);

#endif
