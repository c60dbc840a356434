/* observe - what the linear layers of a model read, over a text. */
#ifndef ASH_MODEL_PASS_OBSERVE_H
#define ASH_MODEL_PASS_OBSERVE_H

#include "model/inputs.h"
#include "model/model.h"

/* Run model over ids [count] in windows of ASH_PASS_TEXT_ROWS (compare.h) on the CPU, and fill inputs [parameters of
 * the model]. Of layers whose products are one, the first has them. Returns 0, -EINVAL for fewer than two ids, -ENOMEM,
 * or an error of a pass; ash_inputs_free is due either way. */
int ash_pass_observe(struct ash_model *model, const int32_t *ids, size_t count, struct ash_inputs *inputs,
                     struct ash_err *err);

#endif
