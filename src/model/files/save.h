/* save - a model as files: a Hugging Face folder, a PEFT folder or a GGUF file. */
#ifndef ASH_MODEL_FILES_SAVE_H
#define ASH_MODEL_FILES_SAVE_H

#include "model/model.h"

/* Called with how many of all weights are written while a model is saved, on the calling thread. */
struct ash_save_watch {
    void (*saved)(void *ctx, size_t count, size_t total);
    void *ctx;
};

/* Write config.json, generation_config.json and the weights as dtype (F32, BF16, F16) into dir; a tokenizer is copied
 * by the caller. max_shard_bytes as in ash_safetensors_write_folder; watch may be NULL. */
int ash_model_save(const struct ash_model *model, const char *dir, enum ash_dtype dtype, size_t max_shard_bytes,
                   const struct ash_save_watch *watch, struct ash_err *err);

/* The same of a model whose float32 values are elsewhere: read gives count values of parameter index from element first
 * on; parameters are asked for in ascending order, elements of one too. */
typedef int (*ash_model_read)(void *ctx, size_t index, size_t first, size_t count, float *out);
/* Save the model that outline lists; read gives its values. Returns 0, read's error or that of writing. */
int ash_model_save_from(const struct ash_model *outline, ash_model_read read, void *ctx, const char *dir,
                        enum ash_dtype dtype, size_t max_shard_bytes, struct ash_err *err);

/* The files of such a folder that are not weights: config.json and generation_config.json, for weights of dtype. */
int ash_model_save_config(const struct ash_model *model, const char *dir, enum ash_dtype dtype, struct ash_err *err);

/* Write a model as a new GGUF file: matrices as dtype (F32, BF16, F16, Q8_0, Q4_0, Q8_W;
 * F32 where rows are not whole blocks), the rest F32. home: the folder of its tokenizer and chat template, which go
 * into the file; NULL or without a tokenizer.json: the file has no vocabulary. notes (may be NULL) gets what llama.cpp
 * will do otherwise, a sentence a line. watch may be NULL. -ENOTSUP for what such a file cannot say. */
int ash_model_save_gguf(const struct ash_model *model, const char *home, const char *path, enum ash_dtype dtype,
                        struct ash_str *notes, const struct ash_save_watch *watch, struct ash_err *err);

#endif
