/* tokenize_eos - which token ends a document. */
#ifndef ASH_TRAIN_TOKENIZE_EOS_H
#define ASH_TRAIN_TOKENIZE_EOS_H

#include <stdint.h>
#include "ashlar/err.h"
#include "text/tokenizer/tokenizer.h"

/* The id of the token that ends a document: eos is its content, "none" (-1), or "auto" (or NULL): the one in
 * generation_config.json, config.json or tokenizer_config.json of dir, else the first of the usual ones that the
 * vocabulary has. -EINVAL if there is no such token; err has the remedy. */
int ash_tokenizer_find_eos(const char *dir, const struct ash_tokenizer *tokenizer, const char *eos, int32_t *id_out,
                           struct ash_err *err);

#endif
