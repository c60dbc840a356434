/* open - a model from its files, or a new one. */
#ifndef ASH_MODEL_FILES_OPEN_H
#define ASH_MODEL_FILES_OPEN_H

#include "model/model.h"

/* The config of a model folder, or of a GGUF file (ash_gguf_locate): then for its sizes alone, rope.factors is NULL. A
 * path that is no model is -ENOENT, with a suggestion. */
int ash_model_config_load(const char *path, struct ash_model_config *config_out, struct ash_err *err);
/* Open a Hugging Face folder, a PEFT folder with the base that it names, or a GGUF file (its name ends in .gguf;
 * architectures llama, qwen2 and qwen3; the types of storage/gguf/gguf.h, and Q8_0 with wide groups, which opens as
 * ASH_Q8_W). Weights stay mapped and are read in place, in the file's dtype. A model from a GGUF file computes; it
 * cannot be owned (trained) or saved. Returns 0, -ENOENT, -EINVAL, -ENOTSUP or -ENOMEM; the caller closes
 * *model_out. */
int ash_model_open(const char *path, struct ash_model **model_out, struct ash_err *err);
/* The same without the matrices of a remote folder (storage/io/remote_file.h): ash_model_prefetch must follow, before
 * anything else reads them. */
int ash_model_open_lazy(const char *path, struct ash_model **model_out, struct ash_err *err);
/* The same of a PEFT folder over base, a path; NULL: the base that it names. */
int ash_model_open_adapted(const char *dir, const char *base, struct ash_model **model_out, struct ash_err *err);
/* A new model with weights drawn from (seed, parameter, element): owned float32. Takes over config's reference on
 * success. */
int ash_model_create(const struct ash_model_config *config, uint64_t seed, struct ash_model **model_out,
                     struct ash_err *err);
/* ash_model_open for a slice of the model, which owns its memory; one that gathers, or NULL (all of it): mapped. */
int ash_model_open_slice(const char *path, const struct ash_slice *slice, struct ash_model **model_out,
                         struct ash_err *err);
/* The same as a reward model (ash_model_config_score): where the folder has no score.weight, one is drawn from seed. */
int ash_model_open_scorer(const char *path, const struct ash_slice *slice, uint64_t seed, struct ash_model **model_out,
                          struct ash_err *err);
/* ash_model_create for a slice (NULL: all of it), drawn by workers (NULL: the calling thread). */
int ash_model_create_slice(const struct ash_model_config *config, const struct ash_slice *slice, uint64_t seed,
                           struct ash_workers *workers, struct ash_model **model_out, struct ash_err *err);
/* The same with weights that are all zero, for values that come from elsewhere; ash_model_refresh follows them. */
int ash_model_blank_slice(const struct ash_model_config *config, const struct ash_slice *slice,
                          struct ash_model **model_out, struct ash_err *err);
/* The folder of path's tokenizer, chat template and defaults, into buf: path itself, or the folder that a GGUF file
 * lies in. Returns 0 or -ENAMETOOLONG. */
int ash_model_home(const char *path, char *buf, size_t buf_bytes);

/* The head for drafts (multi-token prediction) that a Hugging Face folder has after the layers of its model
 * (num_nextn_predict_layers; the first one): one layer whose rows fuse tokens and states (ash_batch.states), with the
 * model's embedding and output matrix. Its weights are mapped, without remote matrices: ash_model_prefetch must follow.
 * Returns 0, -ENOENT (the folder has none) or another negative errno; the caller closes *head_out. */
int ash_model_open_head(const char *path, struct ash_model **head_out, struct ash_err *err);

struct ash_quantised;
/* The weights of its folder that are quantised as others publish them (model/quantised/quantised.h), or NULL. Borrowed;
 * gone when the weights are owned. */
const struct ash_quantised *ash_model_quantised(const struct ash_model *model);

#endif
