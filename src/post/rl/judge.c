/* judge: advantages of a rollout's answers or tokens, and its statistics. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "post/objective/advantages.h"
#include "post/objective/policy.h"
#include "post/rl/rl_priv.h"

bool ash_rl_is_same_group(const struct ash_rl_shape *shape, const struct ash_rollout *rollout, size_t prompt)
{
    size_t samples = shape->answers / shape->prompts;
    const struct ash_answer_row *group = &rollout->answers[prompt * samples];

    ash_assert(prompt < shape->prompts);
    for (size_t s = 1; s < samples; s++)
        if (group[s].reward != group[0].reward) return false;
    return true;
}

/* A divergence in the reward is the answer's whole. It is no part of the record: a run that resumes computes it. */
static double kl_cost(const struct ash_policy_run *rl, const struct ash_answer_row *row)
{
    double sum = 0.0;

    if (rl->job->rl.kl_in != ASH_RL_KL_REWARD || !rl->shape.has_reference) return 0.0;
    for (size_t t = 0; t < row->count; t++)
        if (!ash_rl_is_given(row, t)) sum += (double)row->logps[t] - row->reference[t];
    return rl->job->rl.kl_coef * sum;
}

/* A token's reward: the answer's reward for its last one, a divergence in the reward for each. */
static double token_reward(const struct ash_policy_run *rl, const struct ash_answer_row *row, size_t t)
{
    bool has_kl = rl->job->rl.kl_in == ASH_RL_KL_REWARD && rl->shape.has_reference;
    double kl = has_kl ? (double)row->logps[t] - row->reference[t] : 0.0;

    return (t + 1 == row->count ? row->reward : 0.0) - rl->job->rl.kl_coef * kl;
}

static void fill_table(const struct ash_policy_run *rl, const struct ash_rollout *rollout, double *rewards,
                       double *values, double *mask)
{
    for (size_t a = 0; a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        for (size_t t = 0; ash_rl_counts(rl, row) && t < row->count; t++) {
            size_t i = a * rl->shape.max_tokens + t;

            if (ash_rl_is_given(row, t)) continue;
            rewards[i] = token_reward(rl, row, t);
            values[i] = (double)row->values[t];
            mask[i] = 1.0;
        }
    }
}

/* Of the policy's own tokens. */
static double mean_advantage(const struct ash_answer_row *row)
{
    double sum = 0.0;

    ash_assert(row->advantages != NULL);
    for (size_t t = 0; t < row->count; t++)
        if (!ash_rl_is_given(row, t)) sum += row->advantages[t] / (double)ash_rl_own_count(row);
    return sum;
}

/* PPO: an advantage and a return for each token. */
static int find_token_advantages(const struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    size_t width = rl->shape.max_tokens, count = rl->shape.answers * width;
    double *all = calloc(5 * count, sizeof(*all));
    struct ash_advantages_table table = {.answers = rl->shape.answers, .width = width};

    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for advantages");
    table.rewards = all;
    table.values = all + count;
    table.mask = all + 2 * count;
    fill_table(rl, rollout, all, all + count, all + 2 * count);
    ash_advantages_gae(&table, rl->job->rl.gamma, rl->job->rl.lambda, all + 3 * count, all + 4 * count);
    for (size_t a = 0; a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        memcpy(row->returns, all + 3 * count + a * width, width * sizeof(*all));
        memcpy(row->advantages, all + 4 * count + a * width, width * sizeof(*all));
        row->advantage = mean_advantage(row);
    }
    free(all);
    return 0;
}

/* The reverse divergence of tokens that the policy drew: one that the teacher finds likelier gains. */
static void compare_with_teacher(const struct ash_policy_run *rl, struct ash_rollout *rollout)
{
    for (size_t a = 0; a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        for (size_t t = 0; t < row->count; t++)
            row->advantages[t] = row->reference[t] - (double)row->logps[t];
        row->advantage = mean_advantage(row);
    }
}

static int find_advantages(const struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    size_t count = rl->shape.answers, samples = (size_t)rl->job->rl.samples;
    double *rewards = calloc(count, sizeof(*rewards)), *advantages = calloc(count, sizeof(*advantages)),
           *ones = calloc(count, sizeof(*ones));
    int64_t *groups = calloc(count, sizeof(*groups));

    if (rewards == NULL || advantages == NULL || groups == NULL || ones == NULL) {
        free(rewards);
        free(advantages);
        free(groups);
        free(ones);
        return ash_err_set(err, -ENOMEM, "out of memory for advantages");
    }
    for (size_t a = 0; a < count; a++) {
        rewards[a] = rollout->answers[a].reward - kl_cost(rl, &rollout->answers[a]);
        groups[a] = (int64_t)(a / samples);
        ones[a] = 1.0;
    }
    switch ((enum ash_rl_algorithm)rl->job->rl.algorithm) {
    case ASH_RL_RLOO:
        ash_advantages_rloo(rewards, groups, count, advantages);
        break;
    case ASH_RL_RAFT:
        ash_advantages_best(rewards, groups, count, advantages);
        break;
    case ASH_RL_REINFORCE:
        ash_advantages_whiten(rewards, ones, count, advantages);
        break;
    default:
        ash_advantages_group(rewards, groups, count, rl->job->rl.scale_rewards ? 1e-4 : 0.0, false, advantages);
    }
    for (size_t a = 0; a < count; a++)
        rollout->answers[a].advantage = advantages[a];
    free(rewards);
    free(advantages);
    free(groups);
    free(ones);
    return 0;
}

/* Means over all tokens: entropy and divergence, both estimated from sampled tokens. */
static void measure_tokens(const struct ash_policy_run *rl, struct ash_rollout *rollout)
{
    double count = 0.0, slope;

    rollout->entropy = rollout->kl = 0.0;
    for (size_t a = 0; a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        count += (double)ash_rl_own_count(row);
        for (size_t t = 0; t < row->count; t++) {
            if (ash_rl_is_given(row, t)) continue;
            rollout->entropy -= (double)row->logps[t];
            if (rl->shape.has_reference)
                rollout->kl += ash_policy_kl(ASH_KL_K3, (double)row->logps[t] - row->reference[t], &slope);
        }
    }
    if (count > 0) {
        rollout->entropy /= count;
        rollout->kl /= count;
    }
}

/* How old tokens are when their rollout is first learned from. */
static void measure_age(const struct ash_policy_run *rl, struct ash_rollout *rollout)
{
    double steps = (double)ash_rl_steps_per_rollout(&rl->shape), count = 0.0;

    rollout->age = rollout->oldest = 0.0;
    for (size_t a = 0; a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        for (size_t t = 0; t < row->count; t++) {
            double age = (double)(rollout->number - ash_chunks_version(rl->job, rollout->number, t)) * steps;

            if (ash_rl_is_given(row, t)) continue;
            rollout->age += age;
            rollout->oldest = age > rollout->oldest ? age : rollout->oldest;
            count += 1.0;
        }
    }
    if (count > 0) rollout->age /= count;
}

static void summarise(const struct ash_policy_run *rl, struct ash_rollout *rollout)
{
    double n = (double)rl->shape.answers;

    rollout->mean_reward = rollout->mean_length = rollout->ended_share = 0.0;
    rollout->same_groups = 0;
    memset(rollout->weight_tokens, 0, rl->shape.minibatches * sizeof(*rollout->weight_tokens));
    for (size_t a = 0; a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        rollout->mean_reward += row->reward / n;
        rollout->mean_length += (double)ash_rl_own_count(row) / n;
        rollout->ended_share += row->has_ended / n;
        if (ash_rl_counts(rl, row))
            rollout->weight_tokens[a / (rl->shape.answers / rl->shape.minibatches)] += (double)ash_rl_own_count(row);
    }
    measure_tokens(rl, rollout);
    measure_age(rl, rollout);
    for (size_t p = 0; p < rl->shape.prompts; p++)
        rollout->same_groups += ash_rl_is_same_group(&rl->shape, rollout, p);
}

int ash_rl_judge(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    summarise(rl, rollout);
    if (rl->shape.has_teacher) {
        compare_with_teacher(rl, rollout);
        return 0;
    }
    return rl->shape.has_critic ? find_token_advantages(rl, rollout, err) : find_advantages(rl, rollout, err);
}
