/* scale - columns of rows times a factor, in host memory. */
#ifndef ASH_MODEL_PASS_SCALE_H
#define ASH_MODEL_PASS_SCALE_H

#include "model/pass/step.h"

/* x[r, c] = x[r, c] * factor for c < cols of the step's rows, which are stride apart. A factor of 0 or 1 changes
 * nothing. */
void ash_scale_columns(const struct ash_pass_step *step, size_t cols, size_t stride, double factor, float *x);

#endif
