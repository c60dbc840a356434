/* verifier - what weighs answers for --strategy: programs, reward models and checks, a list as rl.rewards has it. */
#ifndef ASH_POST_SEARCH_VERIFIER_H
#define ASH_POST_SEARCH_VERIFIER_H

#include "base/opts.h"
#include "post/rl/rewards.h"
#include "serve/engine.h"

struct ash_verifier;

struct ash_verifier_opts {
    const struct ash_engine *engine; /* whose answers they are; borrowed until close */
    struct ash_exec *exec;           /* what reward models compute with; borrowed until close */
    size_t max_tokens;               /* of prompt and answer */
    bool knows_answers;              /* checks that compare with a right answer are possible */
};

/* items: of --verifier, which errors name. The caller owns *verifier_out. */
int ash_verifier_open(const struct ash_opt_list *items, const struct ash_verifier_opts *opts,
                      struct ash_verifier **verifier_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_verifier_close(struct ash_verifier *verifier);
/* The weight of an answer; without a text of the prompt, that of its ids is taken. Any thread: one after the other. A
 * program that fails is started again for the next one. */
int ash_verifier_weigh(struct ash_verifier *verifier, const struct ash_rewarded *answer, double *weight_out,
                       struct ash_err *err);

#endif
