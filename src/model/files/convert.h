/* convert - a model folder in another precision or format. */
#ifndef ASH_MODEL_FILES_CONVERT_H
#define ASH_MODEL_FILES_CONVERT_H

#include "base/str.h"
#include "model/files/publish.h"
#include "model/files/save.h"
#include "model/model.h"

struct ash_convert_opts {
    const char *source; /* a model folder or a GGUF file */
    const char *dir;    /* an empty folder that is written */
    enum ash_dtype dtype;
    const struct ash_encoding *encoding; /* of linear layers, as others publish them; NULL: all weights are dtype */
    bool is_gguf;                        /* DIR/model.gguf; else safetensors */
    size_t max_shard_bytes;              /* of a file of safetensors; 0: one file */
    const struct ash_save_watch *watch;
    /* What the model's layers read over a text, into inputs [parameters]; NULL: it is not wanted. */
    int (*observe)(void *ctx, struct ash_model *model, struct ash_inputs *inputs, struct ash_err *err);
    void *observe_ctx;
};

/* Write the model with its tokenizer and other small files. Adds a line to notes for everything that GGUF cannot hold.
 * -ENOTSUP for a folder of adapters, -ERANGE for values that f16 cannot hold. On 0 *weights_out is the count of
 * parameters, and with an encoding *cost_out what it cost. */
int ash_convert_folder(const struct ash_convert_opts *opts, struct ash_str *notes, size_t *weights_out,
                       struct ash_publish_cost *cost_out, struct ash_err *err);

#endif
