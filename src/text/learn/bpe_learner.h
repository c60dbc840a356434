/* bpe_learner - byte-pair encoding learned from counted words: the most frequent pair of neighbours becomes one token,
 * until there are enough. Of pairs that are equally frequent the one of the smaller ids is taken (the left one first),
 * so the result depends on the words and their counts alone, and is that of the Hugging Face library. */
#ifndef ASH_TEXT_LEARN_BPE_LEARNER_H
#define ASH_TEXT_LEARN_BPE_LEARNER_H

#include "ashlar/err.h"
#include "text/learn/words.h"

#define ASH_BPE_BYTES 256 /* the first tokens: all bytes, in the order of the characters that stand for them */

struct ash_bpe_learner_opts {
    size_t tokens_max;                /* to learn, the 256 bytes among them */
    uint64_t min_frequency;           /* of a pair that is merged; at least 1 */
    const struct ash_words *reserved; /* bytes that no token may have: special tokens; NULL: none. Borrowed */
};

/* Ids without special tokens; result is that of the token, new or (another pair spells it) an older one. */
struct ash_bpe_merge {
    uint32_t left, right, result;
};

struct ash_bpe_learner; /* one owner thread */

/* Count the pairs of words, which are borrowed during this call only. Returns 0 or -ENOMEM; on 0 the caller owns
 * *learner_out. */
int ash_bpe_learner_open(const struct ash_words *words, const struct ash_bpe_learner_opts *opts,
                         struct ash_bpe_learner **learner_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_bpe_learner_close(struct ash_bpe_learner *learner);
/* Learn at most count merges. Returns 1 while there are more, 0 at the end, or -ENOMEM. */
int ash_bpe_learner_step(struct ash_bpe_learner *learner, size_t count, struct ash_err *err);

/* Tokens by id, the bytes among them: valid until the next step. */
const struct ash_words *ash_bpe_learner_tokens(const struct ash_bpe_learner *learner);
/* Merges in their order: valid until the next step. */
const struct ash_bpe_merge *ash_bpe_learner_merges(const struct ash_bpe_learner *learner, size_t *count_out);
/* How many tokens the words have now, each as often as it is counted. */
uint64_t ash_bpe_learner_text_tokens(const struct ash_bpe_learner *learner);

#endif
