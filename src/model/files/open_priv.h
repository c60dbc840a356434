/* open_priv - opening models without adapters, which their base is. */
#ifndef ASH_MODEL_FILES_OPEN_PRIV_H
#define ASH_MODEL_FILES_OPEN_PRIV_H

#include "model/model_priv.h"

/* Ask for the small tensors between large ones, which are there after it if they are remote. Returns 0 or why not. */
int ash_open_want_vectors(const struct ash_model *model, struct ash_err *err);
/* A slice (NULL: all, mapped) of the model in a Hugging Face folder; scores: as a reward model. Returns 0 or a negative
 * errno; the caller closes *model_out. */
int ash_open_folder(const char *path, const struct ash_slice *slice, bool scores, struct ash_model **model_out,
                    struct ash_err *err);
/* The model in a GGUF file; slice: all (NULL), or one that gathers. Returns and gives as above. */
int ash_open_gguf(const char *path, const struct ash_slice *slice, struct ash_model **model_out, struct ash_err *err);
/* As ash_model_open_lazy, but a folder's adapters are not looked at. */
int ash_open_plain(const char *path, struct ash_model **model_out, struct ash_err *err);
/* The same with all weights there, as ash_model_open. */
int ash_model_open_base(const char *path, struct ash_model **model_out, struct ash_err *err);
/* Bring the weights of a model whose opening gave rc. On 0 it is *model_out, else it is closed. */
int ash_open_bring(int rc, struct ash_model *model, struct ash_model **model_out, struct ash_err *err);

#endif
