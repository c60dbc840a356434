/* tokenize_files - the files that travel with a tokenizer.json, and which token ends a document. */
#ifndef ASH_TRAIN_TOKENIZE_FILES_H
#define ASH_TRAIN_TOKENIZE_FILES_H

#include <stdint.h>
#include "ashlar/err.h"
#include "model/tokenizer.h"

/* Copy tokenizer.json, and tokenizer_config.json, special_tokens_map.json and chat_template.jinja where they exist,
 * into to_dir. from is a folder (a model's, or one of token shards) or the path of a tokenizer.json. Each file is
 * replaced in one step. */
int ash_tokenizer_copy(const char *from, const char *to_dir, struct ash_err *err);

/* The id of the token that ends a document: eos is its content, "none" (-1), or "auto" (or NULL): what
 * generation_config.json, config.json or tokenizer_config.json beside the tokenizer name, else the first of the usual
 * ones that the vocabulary has. -EINVAL when there is no such token; err says what to do. from as above. */
int ash_tokenizer_find_eos(const char *from, const struct ash_tokenizer *tokenizer, const char *eos, int32_t *id_out,
                           struct ash_err *err);

#endif
