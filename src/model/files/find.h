/* find - the models in a folder of models, their names, and how large their files are. */
#ifndef ASH_MODEL_FILES_FIND_H
#define ASH_MODEL_FILES_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* The last part of a path, without its .gguf: a model's name, which the caller frees. NULL without memory. */
char *ash_model_default_name(const char *path);
/* Bytes of the weights that path names (a folder or a GGUF file); 0: they cannot be seen from here. */
uint64_t ash_model_weight_bytes(const char *path);
/* Call see for every model right below dir, in the order of their names: folders with a config.json, an
 * adapter_config.json or one GGUF file, and GGUF files. name is the file's, without .gguf; path is valid during the
 * call. Returns 0, the first negative value of see, or a negative errno. */
int ash_model_find_in(const char *dir, int (*see)(void *ctx, const char *name, const char *path), void *ctx,
                      struct ash_err *err);

#endif
