/* sentencepiece - tokenizers from SentencePiece's .model files. */
#ifndef ASH_TEXT_TOKENIZER_SENTENCEPIECE_H
#define ASH_TEXT_TOKENIZER_SENTENCEPIECE_H

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

/* From the bytes of a file of unigram or BPE pieces. more: added tokens beyond them, as a tokenizer.json lists them, or
 * NULL. Other kinds are -ENOTSUP, damaged files -EINVAL. */
int ash_tokenizer_from_sentencepiece(const void *data, size_t size_bytes, const json_t *more, const char *name,
                                     struct ash_tokenizer **tokenizer_out, struct ash_err *err);

#endif
