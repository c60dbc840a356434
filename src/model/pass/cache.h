/* cache - what attention asks of the key-value cache (opened and closed through model/model.h). */
#ifndef ASH_MODEL_PASS_CACHE_H
#define ASH_MODEL_PASS_CACHE_H

#include "model/pass/step.h"

/* Does the batch fit? Takes the pages that it needs. Returns 0, -EINVAL (another model or precision, no such slot),
 * -EOVERFLOW (a slot is full) or -ENOMEM. */
int ash_cache_begin(struct ash_cache *cache, const struct ash_model *model, const struct ash_batch *batch,
                    struct ash_err *err);
/* Put the batch's k and v of a layer into the step's cache, and point step->seqs and args at it. Of grouped attention
 * these, and q, are rotated and rounded on the way. */
void ash_cache_write(const struct ash_pass_step *step, size_t layer, struct ash_attn_args *args);

#endif
