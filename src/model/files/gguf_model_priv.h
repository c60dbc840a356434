/* gguf_model - a model in a GGUF file: its metadata as a config.json, its tensors as the parameters of the list. */
#ifndef ASH_MODEL_FILES_GGUF_MODEL_PRIV_H
#define ASH_MODEL_FILES_GGUF_MODEL_PRIV_H

#include "model/model_priv.h"
#include "storage/gguf/gguf.h"

/* How many elements of a row share a scale where blocks of 32 all have theirs (Q8_0): ASH_QUANT_GROUP, or absent. Other
 * programs need not know it: the blocks are valid by themselves. */
#define ASH_GGUF_SCALE_GROUP "ashlar.scale_group"
#define ASH_GGUF_ROPE_FREQS "rope_freqs.weight" /* divisors of the rotary frequencies */

/* An architecture of GGUF files that Ashlar reads and writes. */
struct ash_gguf_arch {
    const char *name;
    const char *family; /* its model_type */
    bool interleaved;   /* rows of q and k are reordered so that the two dims that rotate together are neighbours */
};

/* The architecture that a model of this type is written as, or NULL. */
const struct ash_gguf_arch *ash_gguf_arch_of(const struct ash_model_config *config);

/* The description of the model in file. Refuses architectures and options that Ashlar does not compute, by name. It
 * borrows from file. */
int ash_gguf_model_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err);
/* Bind every parameter of model to file, which model then owns (on failure too). Every tensor must have its
 * parameter. */
int ash_gguf_model_map(struct ash_model *model, struct ash_gguf *file, struct ash_err *err);

/* The name of parameter `index` in a GGUF file, into buf. -ENOTSUP for a role that has none. */
int ash_gguf_model_name(const struct ash_model *model, size_t index, char *buf, size_t buf_bytes, struct ash_err *err);

#endif
