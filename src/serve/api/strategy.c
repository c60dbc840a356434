/* strategy: votes of answers, weighed by a verifier or by the model's own probabilities. */
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

/* What an answer weighs. A verifier's failure is the call's error. */
static int weigh(struct ash_api_call *call, const struct ash_api_choice *choice, const char *text, double *weight_out)
{
    const struct ash_api_engine *engine = &call->api->engine;
    size_t count = choice->tokens.count;
    struct ash_api_weighed weighed = {.text = text,
                                      .prompt_ids = choice->request.prompt,
                                      .prompt_tokens = choice->request.prompt_count,
                                      .tokens = count,
                                      .has_ended = choice->has_stopped || choice->end.finish == ASH_FINISH_EOS};
    struct ash_err err = {0};
    int32_t *ids;
    int rc;

    *weight_out = exp(ash_api_choice_logprob(choice));
    if (engine->weigh == NULL || call->sampling.strategy == ASH_STRATEGY_MAJORITY) return 0;
    ids = calloc(count + 1, sizeof(*ids));
    if (ids == NULL) return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        ids[i] = choice->tokens.items[i].id;
    weighed.ids = ids;
    rc = engine->weigh(engine->weigh_ctx, &weighed, weight_out, &err);
    free(ids);
    if (rc < 0) ash_api_err_set(&call->err, 500, "verifier_error", NULL, "the verifier: %s", err.text);
    return rc;
}

int ash_strategy_choose(struct ash_api_call *call, size_t prompt, const char *const *texts, size_t *chosen_out)
{
    size_t count = call->sampling.best_of;
    struct ash_vote *votes = calloc(count, sizeof(*votes));
    struct ash_str *parts = calloc(count, sizeof(*parts));
    int rc = votes != NULL && parts != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = ash_vote_part(texts[i], call->sampling.vote_on, &parts[i]);
        votes[i].text = parts[i].data;
        if (rc == 0) rc = weigh(call, &call->choices[prompt * count + i], texts[i], &votes[i].weight);
    }
    if (rc == 0) *chosen_out = ash_votes_choose(votes, count, call->sampling.strategy);
    for (size_t i = 0; parts != NULL && i < count; i++)
        ash_str_fini(&parts[i]);
    free(parts);
    free(votes);
    return rc;
}
