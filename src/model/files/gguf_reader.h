/* gguf_reader - the metadata of a GGUF file, as they are read into a config.json. */
#ifndef ASH_MODEL_FILES_GGUF_READER_H
#define ASH_MODEL_FILES_GGUF_READER_H

#include <string.h>

#include "model/files/gguf_model_priv.h"

#define ASH_GGUF_KEY_BYTES 96

struct ash_gguf_reader {
    struct ash_gguf *file;
    const char *name; /* of the architecture */
    const struct ash_gguf_arch *arch;
    const struct ash_family *family;
    int64_t layers, heads, hidden, experts, window, scores;
    char key[ASH_GGUF_KEY_BYTES]; /* the last one asked for */
};

/* "llama.block_count" of "block_count", until the next call; what begins with "tokenizer." stays. */
const char *ash_gguf_key_of(struct ash_gguf_reader *reader, const char *name);
/* A whole number, or an array that has the same one for each layer. Returns 1 if it is there, 0 or a negative errno. */
int ash_gguf_get_int(struct ash_gguf_reader *reader, const char *name, int64_t *value_out, struct ash_err *err);
/* Float32 in the file, float64 in a config.json: the shortest decimal that names the float, which its makers wrote. */
double ash_gguf_widen(double value);

/* Is attention latent? */
static inline bool ash_gguf_is_latent(const struct ash_gguf_reader *reader)
{
    return reader->family->names[ASH_ROLE_KV_UP] != NULL && strncmp(reader->family->type, "deepseek", 8) == 0;
}

/* Sizes of latent attention, into json. Returns 0 or a negative errno. */
int ash_gguf_add_latent(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err);
/* gguf_state.c: sizes of recurrent states, of a family that has nothing else. */
int ash_gguf_add_states(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err);
/* gguf_rope.c: which share of a head is rotated, into json. Returns 0 or a negative errno. */
int ash_gguf_add_rotary_share(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err);
/* The same of scaled positions. */
int ash_gguf_add_rope_scaling(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err);
/* Factors of frequencies that a tensor has, into config, which borrows them. Returns 0 or a negative errno. */
int ash_gguf_read_factors(struct ash_gguf_reader *reader, struct ash_model_config *config, struct ash_err *err);

#endif
