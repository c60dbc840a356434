/* gguf_keys - a model's config as metadata of a GGUF file. */
#ifndef ASH_MODEL_FILES_GGUF_KEYS_H
#define ASH_MODEL_FILES_GGUF_KEYS_H

#include "base/arena.h"
#include "model/files/gguf_model_priv.h"

/* Append llama.cpp's keys for a config. They are in the arena. Returns 0 or -ENOMEM. */
int ash_gguf_add_config(struct ash_gguf_entries *entries, struct ash_arena *arena, const struct ash_gguf_arch *arch,
                        const struct ash_model_config *config, struct ash_err *err);
/* Does file, whose config is read again, say all that config does? Returns 0, or -ENOTSUP with the difference. */
int ash_gguf_check_config(struct ash_gguf *file, const struct ash_model_config *config, struct ash_err *err);

#endif
