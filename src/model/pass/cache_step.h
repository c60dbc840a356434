/* cache_step - what attention asks of the key-value cache. */
#ifndef ASH_MODEL_PASS_CACHE_STEP_H
#define ASH_MODEL_PASS_CACHE_STEP_H

#include "model/pass/cache.h"
#include "model/pass/step.h"

/* Do the batch's block tables hold its tokens? Returns 0, -EINVAL (another model or precision, a page that was not
 * taken) or -EOVERFLOW (a table is too short). */
int ash_cache_begin(struct ash_cache *cache, const struct ash_model *model, const struct ash_batch *batch,
                    struct ash_err *err);
/* Put the batch's k and v of a layer into the step's cache, and point step->seqs and args at it. Of grouped attention
 * these, and q, are rotated and rounded on the way. */
void ash_cache_write(const struct ash_pass_step *step, size_t layer, struct ash_attn_args *args);

/* The state of a layer in a page that has been taken: of ash_state_floats. */
float *ash_cache_state(const struct ash_cache *cache, int32_t page, size_t layer);
/* Where its pages are. */
const void *ash_cache_data(const struct ash_cache *cache);

#endif
