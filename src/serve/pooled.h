/* pooled - what a model's makers make of the states of a text's tokens: an embedding, as the files of sentence
 * transformers say (modules.json), and a score, as its classifier reads them. */
#ifndef ASH_SERVE_POOLED_H
#define ASH_SERVE_POOLED_H

#include "model/config.h"
#include "serve/engine/core.h"

struct ash_pooled {
    enum ash_pooling embedding; /* without those files: the mean of an encoder's, else the last token's */
    bool is_normalized;         /* to length 1; without those files, too */
    char refusal[160];          /* why embeddings cannot be computed as the files say; empty: they can */
    enum ash_pooling score;     /* NONE: the model is no classifier with one label */
};

/* Read dir/modules.json and the pooling that it names. Files that cannot be read as such are -EINVAL. */
int ash_pooled_load(const char *dir, const struct ash_model_config *config, struct ash_pooled *pooled_out,
                    struct ash_err *err);

#endif
