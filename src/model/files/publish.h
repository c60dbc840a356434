/* publish - a model as a folder of quantised weights that other programs read (vLLM, transformers). */
#ifndef ASH_MODEL_FILES_PUBLISH_H
#define ASH_MODEL_FILES_PUBLISH_H

#include "model/files/save.h"
#include "model/inputs.h"
#include "model/quantised/encode.h"

struct ash_publish_opts {
    const struct ash_encoding *encoding; /* of linear layers */
    const struct ash_inputs *inputs;     /* [parameters]: over a text, for AWQ's factors; or NULL */
    const char *dir;
    size_t max_shard_bytes;             /* of a file; 0: one file */
    const struct ash_save_watch *watch; /* may be NULL */
};

/* What a format cost. */
struct ash_publish_cost {
    size_t tensors, weights; /* that were quantised */
    double bits;             /* of one of them, with its part of the scales */
    double error;            /* of all of them, over their size: root of the squares */
};

/* Write config.json with a quantization_config, generation_config.json and the weights into dir: linear layers in
 * encoding, but not the embedding, the output matrix and routers; the rest as f16 if they are, else as bf16. Named as
 * compressed-tensors does (FP8, NVFP4, MXFP4), as gpt-oss (its experts in MXFP4) or as AutoAWQ. Returns 0, -ENOTSUP for
 * a family whose layers cannot be written so, -ERANGE for a weight that is not finite, or an error of writing. */
int ash_model_publish(const struct ash_model *model, const struct ash_publish_opts *opts,
                      struct ash_publish_cost *cost_out, struct ash_err *err);

#endif
