/* tokenize_eos - which token ends a document. */
#ifndef ASH_TRAIN_TOKENIZE_EOS_H
#define ASH_TRAIN_TOKENIZE_EOS_H

#include <stdint.h>
#include "ashlar/err.h"
#include "text/tokenizer.h"

/* The id of the token that ends a document: eos is its content, "none" (-1), or "auto" (or NULL): what
 * generation_config.json, config.json or tokenizer_config.json in dir name, else the first of the usual ones that the
 * vocabulary has. -EINVAL when there is no such token; err says what to do. */
int ash_tokenizer_find_eos(const char *dir, const struct ash_tokenizer *tokenizer, const char *eos, int32_t *id_out,
                           struct ash_err *err);

#endif
