/* unigram_priv - unigram vocabularies, and SentencePiece's rules of characters. */
#ifndef ASH_TEXT_TOKENIZER_UNIGRAM_PRIV_H
#define ASH_TEXT_TOKENIZER_UNIGRAM_PRIV_H

#include "text/tokenizer/tokenizer_priv.h"

/* Read "model" of that type into a zeroed struct; *unknown_out: its unk_id, or -1. On error fini frees it. */
int ash_tok_unigram_load(struct ash_tok_model *model, const json_t *object, int32_t *unknown_out, struct ash_err *err);
/* As ash_tok_model_encode. */
int ash_tok_unigram_encode(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                           struct ash_ids *ids, struct ash_err *err);

/* Read precompiled_charsmap. Returns 0, -EINVAL or -ENOMEM. The caller owns *map_out. */
int ash_tok_charsmap_open(const char *base64, struct ash_tok_charsmap **map_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_tok_charsmap_close(struct ash_tok_charsmap *map);
/* Append text (valid UTF-8, not empty) as the rules make it. 0 or -ENOMEM. */
int ash_tok_charsmap_apply(const struct ash_tok_charsmap *map, struct ash_tok_span text, struct ash_str *out);

/* The same by SentencePiece's own way: the longest rule at each place. */
int ash_tok_charsmap_apply_longest(const struct ash_tok_charsmap *map, struct ash_tok_span text, struct ash_str *out);

#endif
