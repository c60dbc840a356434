/* gguf_model - a model in a GGUF file: its metadata as a config.json, its tensors as the parameters of the list. */
#ifndef ASH_MODEL_FILES_GGUF_MODEL_PRIV_H
#define ASH_MODEL_FILES_GGUF_MODEL_PRIV_H

#include "model/files/gguf_arch.h"
#include "model/model_priv.h"
#include "storage/gguf/gguf.h"

/* How many elements of a row share a scale where blocks of 32 all have theirs (Q8_0): ASH_QUANT_GROUP, or absent. Other
 * programs need not know it: the blocks are valid by themselves. */
#define ASH_GGUF_SCALE_GROUP "ashlar.scale_group"
#define ASH_GGUF_ROPE_FREQS "rope_freqs.weight" /* divisors of the rotary frequencies */
#define ASH_GGUF_ROPE_LONG "rope_factors_long.weight"
#define ASH_GGUF_ROPE_SHORT "rope_factors_short.weight"

/* The description of the model in file. Refuses architectures and options that Ashlar does not compute, by name. It
 * borrows from file. */
int ash_gguf_model_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err);
/* The same of the folder that it could have been written from. */
int ash_gguf_folder_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err);
/* Bind every parameter of model to file, which model then owns (on failure too). Every tensor must have its
 * parameter. */
int ash_gguf_model_map(struct ash_model *model, struct ash_gguf *file, struct ash_err *err);

/* gguf_latent.c: bind the matrices that make keys and values of compressed rows, in memory that model owns, where the
 * file has them in two parts, and mark these as used. Returns 0 or a negative errno. */
int ash_gguf_join_latent(struct ash_model *model, struct ash_gguf *file, bool *used, struct ash_err *err);

/* gguf_state.c: bind what states decay by, in memory that model owns: a file has it as the rate itself. 0 or a negative
 * errno. */
int ash_gguf_join_states(struct ash_model *model, struct ash_err *err);

/* The tensor that holds a parameter. */
struct ash_gguf_place {
    char name[96];
    enum ash_role role;
    size_t expert; /* of all of a layer: which part of it; of others 0 */
};

/* What a parameter is for, and of experts (of those here): whose. */
struct ash_gguf_role_at {
    enum ash_role role; /* ASH_ROLE_COUNT: none */
    size_t expert;
};

/* Of parameter `index`. */
struct ash_gguf_role_at ash_gguf_role_of(const struct ash_model *model, size_t index);
/* The place of parameter `index` in a GGUF file. -ENOTSUP for a role that has none. */
int ash_gguf_place_of(const struct ash_model *model, size_t index, struct ash_gguf_place *place_out,
                      struct ash_err *err);

#endif
