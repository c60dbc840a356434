/* The inside of published folders: which weights are quantised, and what config.json says about them. */
#ifndef ASH_MODEL_FILES_PUBLISH_PRIV_H
#define ASH_MODEL_FILES_PUBLISH_PRIV_H

#include <stdbool.h>
#include "model/files/publish.h"

/* publish_choose.c: can the model be written in encoding? Returns 0 or -ENOTSUP. */
int ash_publish_check(const struct ash_model *model, const struct ash_encoding *encoding, struct ash_err *err);
/* Is parameter index the matrix of a linear layer, the output matrix among them? */
bool ash_publish_is_linear(const struct ash_model *model, size_t index);
/* Do experts share a tensor? */
bool ash_publish_has_stacked(const struct ash_model *model);
/* Is parameter index written as codes? */
bool ash_publish_is_quantised(const struct ash_model *model, const struct ash_encoding *encoding, size_t index);

/* Are the layers of these names parts of one product elsewhere, which has one factor: q, k and v; gate and up? */
bool ash_publish_are_fused(const char *a, const char *b);

/* publish_config.c: add a quantization_config to dir's config.json. Returns 0, -ENOMEM or an error of the file. */
int ash_publish_write_config(const struct ash_model *model, const struct ash_encoding *encoding, const char *dir,
                             struct ash_err *err);

#endif
