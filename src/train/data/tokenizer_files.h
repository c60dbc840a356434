/* tokenizer_files - the files of a Hugging Face folder that belong to its tokenizer, taken along when
 * a model is saved. */
#ifndef ASH_TRAIN_TOKENIZER_FILES_H
#define ASH_TRAIN_TOKENIZER_FILES_H

#include "ashlar/err.h"
#include "model/config.h"

/* The folder of a tokenizer that is named by its folder or by the path of its tokenizer.json,
 * in dir (PATH_MAX bytes). */
int ash_tokenizer_files_dir(const char *name, char *dir, struct ash_err *err);

/* The name of a file in dir that ash_tokenizer_files_copy could replace, or NULL. */
const char *ash_tokenizer_files_first(const char *dir);

/* The name of file index that a tokenizer may have, or NULL from the count on. */
const char *ash_tokenizer_files_at(size_t index);

/* Copy tokenizer.json, vocabulary, chat template and so on from one folder to another. If there is no
 * tokenizer_config.json (data folders have none), one is written that names the end token of config, so that the
 * transformers library loads the result. from_dir NULL copies nothing. config NULL: plain copies. */
int ash_tokenizer_files_copy(const char *from_dir, const char *to_dir, const struct ash_model_config *config,
                             struct ash_err *err);

#endif
