/* strategy: votes of answers, weighed by the model's own probabilities. */
#include "serve/api/strategy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

double ash_api_choice_logprob(const struct ash_api_choice *choice)
{
    double sum = 0;

    for (size_t i = 0; i < choice->tokens.count; i++)
        sum += (double)choice->tokens.items[i].logprob;
    return choice->tokens.count > 0 ? sum / (double)choice->tokens.count : 0;
}

int ash_strategy_choose(const struct ash_api_call *call, size_t prompt, const char *const *texts, size_t *chosen_out)
{
    size_t count = call->sampling.best_of;
    struct ash_vote *votes = calloc(count, sizeof(*votes));
    struct ash_str *parts = calloc(count, sizeof(*parts));
    int rc = votes != NULL && parts != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = ash_vote_part(texts[i], call->sampling.vote_on, &parts[i]);
        votes[i] = (struct ash_vote){parts[i].data, exp(ash_api_choice_logprob(&call->choices[prompt * count + i]))};
    }
    if (rc == 0) *chosen_out = ash_votes_choose(votes, count, call->sampling.strategy);
    for (size_t i = 0; parts != NULL && i < count; i++)
        ash_str_fini(&parts[i]);
    free(parts);
    free(votes);
    return rc;
}
