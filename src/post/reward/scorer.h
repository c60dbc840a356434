/* scorer - a frozen reward model: a ...ForSequenceClassification folder with one label, as `ashlar reward` writes
 * it. The score of an answer is that of its last token. One owner thread. */
#ifndef ASH_POST_REWARD_SCORER_H
#define ASH_POST_REWARD_SCORER_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_exec;
struct ash_scorer;

/* Open dir. Borrows exec until close. It reads the policy's ids, so its tokenizer must have tokenizer_hash. max_tokens:
 * of prompt and answer. Returns 0, or -EINVAL where dir is no reward model or reads other ids. */
int ash_scorer_open(const char *dir, struct ash_exec *exec, uint64_t tokenizer_hash, size_t max_tokens,
                    struct ash_scorer **scorer_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_scorer_close(struct ash_scorer *scorer);
/* An answer after its prompt, as ids. */
struct ash_scored {
    const int32_t *prompt, *answer;
    size_t prompt_count, answer_count;
};
/* Its score. Returns 0, -EOVERFLOW (longer than max_tokens) or the pass's error. */
int ash_scorer_score(struct ash_scorer *scorer, const struct ash_scored *scored, double *score_out,
                     struct ash_err *err);

#endif
