/* draws: which prompts a rollout has, and with which random numbers they are answered: functions of indices alone. */
#include <errno.h>

#include "base/hash.h"
#include "post/rl/rl_priv.h"

int ash_rl_get_prompts(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                       struct ash_err *err)
{
    uint64_t seed = (uint64_t)rl->job->train.seed, rounds = (uint64_t)rl->job->rl.sampling_rounds;

    for (size_t p = 0; p < rl->shape.prompts; p++) {
        int rc;

        if (is_open != NULL && !is_open[p]) continue;
        rollout->prompt_numbers[p] = (rollout->number * rounds + round) * rl->shape.prompts + p;
        ash_prompt_fini(&rollout->prompts[p]);
        rc = ash_prompts_get(rl->prompts, seed, rollout->prompt_numbers[p], false, &rollout->prompts[p], err);
        if (rc < 0) return rc;
        if (rollout->prompts[p].ids.count > (size_t)rl->job->rollout.max_prompt_tokens)
            return ash_err_set(err, -EOVERFLOW, "prompt '%.60s...' has %zu tokens: raise rollout.max_prompt_tokens",
                               rollout->prompts[p].text, rollout->prompts[p].ids.count);
    }
    return 0;
}

struct ash_sampler_opts ash_rl_sampler_of(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                                          size_t round, size_t a)
{
    size_t samples = (size_t)rl->job->rl.samples;
    uint64_t draws = ash_rl_draws(&rl->rollbacks, rollout->number), prompt = round * rl->shape.prompts + a / samples;
    uint64_t words[5] = {(uint64_t)rl->job->train.seed, rollout->number, prompt, a % samples, draws};
    struct ash_sampler_opts sampler = ash_sampler_defaults();

    sampler.temperature = rl->job->rollout.temperature;
    sampler.top_k = (size_t)rl->job->rollout.top_k;
    sampler.top_p = rl->job->rollout.top_p;
    sampler.seed = ash_hash_bytes(words, (draws > 0 ? 5 : 4) * sizeof(words[0]), 0);
    return sampler;
}
