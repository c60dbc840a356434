/* rollout: answers from the engine loop, in the trainer's process and on its weights, or on a whole copy of them where
 * ranks share a model. A draw is a function of (seed, rollout, prompt, sample, position). Ranks share the prompts;
 * everyone gets all answers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "post/rl/rl_priv.h"
#include "train/layout/collect.h"

static bool is_end(const struct ash_policy_run *rl, int32_t id)
{
    for (size_t i = 0; i < rl->eos_count; i++)
        if (rl->eos[i] == id) return true;
    return false;
}

/* The end of an answer is one of its tokens: it is learned like any other. */
static int take(void *ctx, const struct ash_token *token)
{
    struct ash_asked *asked = ctx;
    struct ash_answer_row *row = asked->row;

    ash_assert(row->count < asked->rl->max_tokens);
    row->ids[row->count] = token->id;
    row->logps[row->count] = token->logprob;
    if (row->kept.ends != NULL) asked->rc = ash_rl_kept_add(row, row->count, token->kept, token->kept_count);
    row->count++;
    row->has_ended = is_end(asked->rl, token->id);
    return row->has_ended || asked->rc < 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct ash_asked *asked = ctx;

    if (asked->rc < 0)
        ash_err_set(&asked->err, asked->rc, "out of memory for the ids that were kept");
    else
        asked->rc = end->rc;
    if (end->rc < 0) asked->err = end->err;
}

/* The model that samples: the trainer's, or where ranks share that, a whole copy with the values of now. */
static int find_sampled(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_model **model_out,
                        struct ash_err *err)
{
    struct ash_model *held = ash_trainer_state(trainer)->model;
    int rc = 0;

    *model_out = held;
    if (ash_trainer_get_facts(trainer).whole) return 0;
    if (rl->copy == NULL) {
        const struct ash_model_config *config = ash_model_get_config(held);

        json_incref(config->source); /* a new model takes over one reference */
        rc = ash_model_blank_slice(config, NULL, &rl->copy, err);
        if (rc < 0) json_decref(config->source);
        if (rc == 0) ash_model_round_bf16(rl->copy, rl->job->train.precision == ASH_JOB_BF16);
    }
    if (rc == 0) rc = ash_collect_model(ash_trainer_stages(trainer), rl->copy, err);
    *model_out = rl->copy;
    return rc;
}

int ash_rl_open_core(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_err *err)
{
    const struct ash_job *job = rl->job;
    struct ash_core_opts opts = {.max_seqs = ash_min(rl->answer_count, 256),
                                 .max_tokens = (size_t)(job->rollout.max_prompt_tokens + job->rollout.max_tokens),
                                 .logprob_sharpness = (float)(1.0 / job->rollout.temperature)};
    struct ash_model *model = NULL;
    int rc = find_sampled(rl, trainer, &model, err);

    rl->sampled = rc == 0 ? model : NULL;
    if (rc < 0 || rl->core != NULL) return rc;
    rc = ash_rewards_use(rl->rewards, ash_trainer_exec(trainer), ash_tokenizer_hash(rl->tokenizer), opts.max_tokens,
                         err);
    if (rc < 0) return rc;
    return ash_core_open(model, ash_trainer_exec(trainer), &opts, &rl->core, err);
}

/* No tokens yet. */
static void clear(struct ash_answer_row *row)
{
    row->count = 0;
    row->has_ended = false;
    ash_rl_kept_clear(row);
}

struct ash_asked *ash_rl_ask(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row,
                             const struct ash_sampler_opts *sampler, uint64_t salt)
{
    struct ash_asked *asked = calloc(1, sizeof(*asked));

    if (asked == NULL) return NULL;
    clear(row);
    asked->row = row;
    asked->rl = rl;
    asked->request = (struct ash_request){.prompt = prompt->ids.data,
                                          .prompt_count = prompt->ids.count,
                                          .sampler = *sampler,
                                          .max_tokens = rl->max_tokens,
                                          .wants_logprobs = true,
                                          .wants_kept = row->kept.ends != NULL,
                                          .salt = salt,
                                          .take = take,
                                          .done = take_end,
                                          .ctx = asked};
    return asked;
}

int ash_rl_answer_all(struct ash_policy_run *rl, struct ash_asked **asked, size_t count, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ash_core_submit(rl->core, &asked[i]->request, err);
    while (ash_core_step(rl->core) > 0)
        ;
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (asked[i]->rc < 0)
            rc = ash_err_set(err, asked[i]->rc, "an answer could not be sampled: %s", asked[i]->err.text);
    return rc;
}

/* Everyone gets every rank's answers: what a rank has not sampled is zeros. */
static int share(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    size_t width = 2 * rl->max_tokens + 2, count = rl->answer_count * width;
    int32_t *all = calloc(count, sizeof(*all));
    int rc;

    if (rl->group == NULL) {
        free(all);
        return 0;
    }
    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the answers of a step");
    for (size_t a = 0; a < rl->answer_count; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        memcpy(all + a * width, row->ids, row->count * sizeof(int32_t));
        memcpy(all + a * width + rl->max_tokens, row->logps, row->count * sizeof(float));
        all[a * width + 2 * rl->max_tokens] = (int32_t)row->count;
        all[a * width + 2 * rl->max_tokens + 1] = row->has_ended;
    }
    rc = ash_group_all_reduce(rl->group, all, all, count, ASH_COLL_I32, ASH_COLL_SUM, err);
    for (size_t a = 0; rc == 0 && a < rl->answer_count; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        row->count = (size_t)all[a * width + 2 * rl->max_tokens];
        row->has_ended = all[a * width + 2 * rl->max_tokens + 1] != 0;
        memcpy(row->ids, all + a * width, row->count * sizeof(int32_t));
        memcpy(row->logps, all + a * width + rl->max_tokens, row->count * sizeof(float));
    }
    free(all);
    return rc;
}

/* What an answer loses that ends near the limit, or there (DAPO's soft punishment). */
static double overlong_cost(const struct ash_policy_run *rl, size_t tokens)
{
    double buffer = (double)rl->job->rl.overlong_buffer, beyond = (double)tokens - ((double)rl->max_tokens - buffer);

    return buffer > 0 && beyond > 0 ? rl->job->rl.overlong_penalty * beyond / buffer : 0.0;
}

int ash_rl_decode(const struct ash_policy_run *rl, const struct ash_answer_row *row, struct ash_str *text,
                  struct ash_err *err)
{
    size_t count = row->count - row->has_ended, vocab = ash_tokenizer_vocab_size(rl->tokenizer), known = 0;
    int32_t *ids = calloc(count + 1, sizeof(*ids));
    int rc = ids != NULL ? ash_str_adds(text, "") : -ENOMEM;

    if (rc < 0) {
        free(ids);
        return ash_err_set(err, rc, "out of memory for an answer");
    }
    for (size_t t = 0; t < count; t++)
        if ((size_t)row->ids[t] < vocab) ids[known++] = row->ids[t];
    rc = ash_tokenizer_decode(rl->tokenizer, ids, known, true, text, err);
    free(ids);
    return rc;
}

int ash_rl_reward(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row,
                  struct ash_err *err)
{
    struct ash_rewarded rewarded = {.prompt = prompt->text,
                                    .answer = prompt->answer,
                                    .prompt_ids = prompt->ids.data,
                                    .prompt_tokens = prompt->ids.count,
                                    .ids = row->ids,
                                    .tokens = row->count,
                                    .has_ended = row->has_ended,
                                    .may_have_work = rl->job->arithmetic.work};
    struct ash_str text = {0};
    int rc = ash_rl_decode(rl, row, &text, err);

    rewarded.text = text.data;
    if (rc == 0) rc = ash_rewards_get(rl->rewards, &rewarded, &row->reward, err);
    if (rc == 0) row->reward -= overlong_cost(rl, row->count);
    ash_str_fini(&text);
    return rc;
}

/* Prompts for the groups that are open. Each rollout has prompts for all of its rounds, whether it needs them or not:
 * which ones they are does not depend on what other rollouts found. */
static int get_prompts(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                       struct ash_err *err)
{
    uint64_t seed = (uint64_t)rl->job->train.seed, rounds = (uint64_t)rl->job->rl.sampling_rounds;

    for (size_t p = 0; p < rl->prompt_count; p++) {
        int rc;

        if (!is_open[p]) continue;
        rollout->prompt_numbers[p] = (rollout->number * rounds + round) * rl->prompt_count + p;
        ash_prompt_fini(&rollout->prompts[p]);
        rc = ash_prompts_get(rl->prompts, seed, rollout->prompt_numbers[p], false, &rollout->prompts[p], err);
        if (rc < 0) return rc;
        if (rollout->prompts[p].ids.count > (size_t)rl->job->rollout.max_prompt_tokens)
            return ash_err_set(err, -EOVERFLOW, "prompt '%.60s...' has %zu tokens: raise rollout.max_prompt_tokens",
                               rollout->prompts[p].text, rollout->prompts[p].ids.count);
    }
    return 0;
}

static int sample_own(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                      struct ash_err *err)
{
    size_t samples = (size_t)rl->job->rl.samples, count = 0;
    size_t rank = rl->group != NULL ? ash_group_rank(rl->group) : 0,
           size = rl->group != NULL ? ash_group_size(rl->group) : 1;
    uint64_t draws = ash_rl_draws(rl, rollout->number);
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    struct ash_asked **asked = calloc(rl->answer_count, sizeof(struct ash_asked *));
    int rc = 0;

    if (asked == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the answers of a step");
    sampler.temperature = rl->job->rollout.temperature;
    sampler.top_k = (size_t)rl->job->rollout.top_k;
    sampler.top_p = rl->job->rollout.top_p;
    for (size_t a = 0; rc == 0 && a < rl->answer_count; a++) {
        uint64_t prompt = round * rl->prompt_count + a / samples;
        uint64_t words[5] = {(uint64_t)rl->job->train.seed, rollout->number, prompt, a % samples, draws};
        struct ash_answer_row *row = &rollout->answers[a];

        if (!is_open[a / samples]) {
            if (rank != 0) clear(row); /* everyone has it already: one rank shares it again */
            continue;
        }
        clear(row);
        if (a / samples % size != rank) continue;
        sampler.seed = ash_hash_bytes(words, (draws > 0 ? 5 : 4) * sizeof(words[0]), 0);
        asked[count] = ash_rl_ask(rl, &rollout->prompts[a / samples], row, &sampler, rollout->version + 1);
        if (asked[count] == NULL)
            rc = ash_err_set(err, -ENOMEM, "out of memory for an answer");
        else
            count++;
    }
    if (rc == 0) rc = ash_rl_answer_all(rl, asked, count, err);
    for (size_t i = 0; i < count; i++)
        free(asked[i]);
    free(asked);
    return rc;
}

static int reward_own(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                      struct ash_err *err)
{
    size_t samples = (size_t)rl->job->rl.samples;
    int rc = 0;

    if (ash_rl_recall(rl, rollout, round)) return 0;
    for (size_t a = 0; rc == 0 && a < rl->answer_count; a++) {
        if (!is_open[a / samples]) continue;
        rc = ash_rl_reward(rl, &rollout->prompts[a / samples], &rollout->answers[a], err);
        if (rc < 0)
            ash_err_prefix(err, rc, "rollout %llu, prompt %zu, sample %zu", (unsigned long long)rollout->number,
                           a / samples, a % samples);
    }
    return rc;
}

/* Rewards of the open groups. What a program says may differ from one time to the next: the first rank asks, all get
 * what it heard, its error too. */
static int reward_open(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                       struct ash_err *err)
{
    size_t count = rl->answer_count;
    double *all;
    int rc = 0, shared;

    if (rl->group == NULL || ash_rewards_is_pure(rl->rewards)) return reward_own(rl, rollout, round, is_open, err);
    all = calloc(count + 1, sizeof(*all));
    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for rewards");
    if (ash_group_rank(rl->group) == 0) {
        rc = reward_own(rl, rollout, round, is_open, err);
        all[count] = rc;
        for (size_t a = 0; a < count; a++)
            all[a] = rollout->answers[a].reward;
    }
    shared = ash_group_all_reduce(rl->group, all, all, count + 1, ASH_COLL_F64, ASH_COLL_SUM, err);
    for (size_t a = 0; shared == 0 && a < count; a++)
        rollout->answers[a].reward = all[a];
    if (shared < 0)
        rc = shared;
    else if (rc == 0 && all[count] < 0)
        rc = ash_err_set(err, (int)all[count], "the first rank has no rewards");
    free(all);
    return rc;
}

/* Sample and reward the groups that are open. */
static int run_round(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                     struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns(), sampled_ns;
    int rc = get_prompts(rl, rollout, round, is_open, err);

    if (rc == 0) rc = sample_own(rl, rollout, round, is_open, err);
    if (rc == 0) rc = share(rl, rollout, err);
    if (rc == 0) rc = ash_rl_kept_share(rl, rollout, err);
    sampled_ns = ash_clock_ns();
    if (rc == 0) rc = reward_open(rl, rollout, round, is_open, err);
    rl->seconds[0] += (double)(sampled_ns - start_ns) * 1e-9;
    rl->seconds[1] += (double)(ash_clock_ns() - sampled_ns) * 1e-9;
    return rc;
}

bool ash_rl_is_same_group(const struct ash_policy_run *rl, const struct ash_rollout *rollout, size_t prompt)
{
    size_t samples = (size_t)rl->job->rl.samples;
    const struct ash_answer_row *group = &rollout->answers[prompt * samples];

    for (size_t s = 1; s < samples; s++)
        if (group[s].reward != group[0].reward) return false;
    return true;
}

int ash_rl_sample(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t number, uint64_t version,
                  struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    bool *is_open = calloc(rl->prompt_count, sizeof(*is_open));
    size_t open = rl->prompt_count, rounds = (size_t)rl->job->rl.sampling_rounds;
    int rc =
        is_open == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a rollout") : ash_rl_open_core(rl, trainer, err);

    rollout->number = number;
    rollout->version = version;
    rollout->replaced = 0;
    for (size_t p = 0; rc == 0 && p < rl->prompt_count; p++)
        is_open[p] = true;
    for (size_t round = 0; rc == 0 && round < rounds && open > 0; round++) {
        rollout->replaced += round > 0 ? open : 0;
        rc = run_round(rl, rollout, round, is_open, err);
        open = 0;
        for (size_t p = 0; rc == 0 && p < rl->prompt_count; p++) {
            is_open[p] = ash_rl_is_same_group(rl, rollout, p);
            open += is_open[p];
        }
    }
    free(is_open);
    return rc;
}
