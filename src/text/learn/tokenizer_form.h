/* tokenizer_form - a learned tokenizer as the files that the Hugging Face library reads. Special tokens have the first
 * ids, then come the bytes, then what was learned. */
#ifndef ASH_TEXT_LEARN_TOKENIZER_FORM_H
#define ASH_TEXT_LEARN_TOKENIZER_FORM_H

#include <jansson.h>
#include "ashlar/err.h"
#include "text/learn/bpe_learner.h"

enum ash_learned_pattern { ASH_LEARNED_GPT2, ASH_LEARNED_LLAMA3, ASH_LEARNED_QWEN2, ASH_LEARNED_TEKKEN };

extern const char *const ash_learned_patterns[]; /* their names, NULL-terminated */

struct ash_tokenizer_form {
    enum ash_learned_pattern pattern; /* how text is cut into words: as this family does */
    const char *const *special;       /* tokens that no text becomes; the first one ends a text */
    size_t special_count;
};

/* Check special tokens, and add the bytes that a learned token must not have to *reserved (owned, zero-initialised).
 * Returns 0, -EINVAL with a sentence, or -ENOMEM. */
int ash_tokenizer_form_check(const struct ash_tokenizer_form *form, struct ash_words *reserved, struct ash_err *err);
/* tokenizer.json: a new reference, or NULL when out of memory. */
json_t *ash_tokenizer_form_json(const struct ash_tokenizer_form *form, const struct ash_bpe_learner *learner);
/* tokenizer_config.json, likewise. */
json_t *ash_tokenizer_form_config(const struct ash_tokenizer_form *form);

#endif
