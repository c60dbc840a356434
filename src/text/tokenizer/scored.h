/* scored - merges of vocabularies that have scores (llama's GGUF files, SentencePiece's BPE models). */
#ifndef ASH_TEXT_TOKENIZER_SCORED_H
#define ASH_TEXT_TOKENIZER_SCORED_H

#include "text/tokenizer/tokenizer_priv.h"

/* Fill the model's merges from the scores of its vocabulary's tokens, none of which is NaN; is_made says which tokens
 * merges may make (NULL: all). Returns 0, -E2BIG or -ENOMEM. */
int ash_tok_merge_scored(struct ash_tok_model *model, const float *scores, const bool *is_made, struct ash_err *err);

#endif
