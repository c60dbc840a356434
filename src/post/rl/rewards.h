/* rewards - numbers for answers: a weighted list of checks. Pure functions of prompt and answer. */
#ifndef ASH_POST_RL_REWARDS_H
#define ASH_POST_RL_REWARDS_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

struct ash_rewards;

/* items: KIND or KIND:WEIGHT. arithmetic, exact (blanks around do not count): 1 for the prompt's answer; regex=PATTERN:
 * 1 where it fits somewhere; length=N: minus the tokens beyond N, each 1 / N; ended: 1 for an answer with an end. */
int ash_rewards_open(const char *const *items, size_t count, struct ash_rewards **rewards_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_rewards_close(struct ash_rewards *rewards);

/* What is rewarded. */
struct ash_rewarded {
    const char *text;   /* of the answer, without its end */
    const char *answer; /* the prompt's */
    size_t tokens;
    bool has_ended;
};
/* The weighted sum. */
double ash_rewards_of(const struct ash_rewards *rewards, const struct ash_rewarded *answer);

#endif
