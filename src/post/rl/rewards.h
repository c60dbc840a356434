/* rewards - numbers for answers: a weighted list of checks, programs and reward models. */
#ifndef ASH_POST_RL_REWARDS_H
#define ASH_POST_RL_REWARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_exec;
struct ash_rewards;

/* items: KIND or KIND:WEIGHT. arithmetic, exact (blanks around do not count): 1 for the prompt's answer; regex=PATTERN:
 * 1 if it matches somewhere; length=N: minus the tokens beyond N, each 1 / N; ended: 1 for an answer with an end;
 * schema=FILE: 1 for JSON that fits the schema; program=COMMAND: the program's number (post/reward/program.h);
 * model=DIR: the score of a reward model. Returns 0 or an error that names the item. */
int ash_rewards_open(const char *const *items, size_t count, struct ash_rewards **rewards_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_rewards_close(struct ash_rewards *rewards);
/* Open reward models: exec is borrowed until close. tokenizer_hash is the policy's, which must be the
 * reward model's too. max_tokens: of prompt and answer. Nothing to do without one. */
int ash_rewards_use(struct ash_rewards *rewards, struct ash_exec *exec, uint64_t tokenizer_hash, size_t max_tokens,
                    struct ash_err *err);
/* Do they compare with the prompt's answer? */
bool ash_rewards_need_wanted(const struct ash_rewards *rewards);
/* Are rewards deterministic and cheap on every rank? False with programs and models. */
bool ash_rewards_is_pure(const struct ash_rewards *rewards);

/* A rewarded answer. */
struct ash_rewarded {
    const char *prompt, *text; /* text: of the answer, without its end */
    const char *answer;        /* the prompt's */
    const int32_t *prompt_ids, *ids;
    size_t prompt_tokens, tokens, own_tokens; /* own: without the environment's replies */
    bool has_ended;
    bool may_have_work; /* arithmetic: only the text after the last "=" is the answer */
};
/* The weighted sum, a finite number, into *reward_out. Returns 0, or the error of a program or model. */
int ash_rewards_get(struct ash_rewards *rewards, const struct ash_rewarded *answer, double *reward_out,
                    struct ash_err *err);

#endif
