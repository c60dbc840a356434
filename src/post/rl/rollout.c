/* rollout: answers from the engine loop, in the trainer's process and on its weights, or on a whole copy of them if
 * ranks share a model. A draw is a function of (seed, rollout, prompt, sample, position). Prompts are sharded over the
 * ranks; all ranks get all answers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "post/rl/rl_priv.h"

static bool is_end(const struct ash_policy_run *rl, int32_t id)
{
    for (size_t i = 0; i < rl->text.eos_count; i++)
        if (rl->text.eos[i] == id) return true;
    return false;
}

/* The end of an answer is one of its tokens: it is learned like any other. */
static int take(void *ctx, const struct ash_token *token)
{
    struct ash_asked *asked = ctx;
    struct ash_answer_row *row = asked->row;

    ash_assert(row->count < asked->rl->shape.max_tokens);
    row->ids[row->count] = token->id;
    row->logps[row->count] = token->logprob;
    if (row->given != NULL) row->given[row->count] = 0;
    if (row->kept.ends != NULL) asked->rc = ash_rl_kept_add(row, row->count, token->kept, token->kept_count);
    row->count++;
    row->has_ended = is_end(asked->rl, token->id);
    return row->has_ended || asked->rc < 0;
}

int ash_rl_open_core(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_err *err)
{
    const struct ash_job *job = rl->job;
    struct ash_core_opts opts = {.max_seqs = ash_min(rl->shape.answers, 256),
                                 .max_tokens = (size_t)(job->rollout.max_prompt_tokens + job->rollout.max_tokens),
                                 .logprob_sharpness = (float)(1.0 / job->rollout.temperature)};
    struct ash_model *model = NULL;
    uint64_t start_ns = ash_clock_ns();
    int rc = ash_rl_find_sampled(rl, trainer, &model, err);

    rl->seconds[ASH_RL_HANDOVER] += (double)(ash_clock_ns() - start_ns) * 1e-9;
    rl->sampler.model = rc == 0 ? model : NULL;
    if (rc < 0 || rl->sampler.core != NULL) return rc;
    rc = ash_rewards_use(rl->rewards, ash_trainer_exec(trainer), ash_tokenizer_hash(rl->text.tokenizer),
                         opts.max_tokens, err);
    if (rc < 0) return rc;
    return ash_core_open(model, ash_trainer_exec(trainer), &opts, &rl->sampler.core, err);
}

void ash_rl_unask(struct ash_asked *asked)
{
    if (asked != NULL) free(asked->ids);
    free(asked);
}

struct ash_asked *ash_rl_ask(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row,
                             const struct ash_sampler_opts *sampler, uint64_t salt)
{
    struct ash_asked *asked = calloc(1, sizeof(*asked));

    ash_assert(row->count < rl->shape.max_tokens); /* one without room does not go on */
    if (asked == NULL) return NULL;
    asked->ids = calloc(prompt->ids.count + row->count + 1, sizeof(*asked->ids));
    if (asked->ids == NULL) {
        free(asked);
        return NULL;
    }
    memcpy(asked->ids, prompt->ids.data, prompt->ids.count * sizeof(*asked->ids));
    memcpy(asked->ids + prompt->ids.count, row->ids, row->count * sizeof(*asked->ids));
    asked->row = row;
    asked->rl = rl;
    asked->request = (struct ash_request){.prompt = asked->ids,
                                          .prompt_count = prompt->ids.count + row->count,
                                          .sampler = *sampler,
                                          .max_tokens = rl->shape.max_tokens - row->count,
                                          .wants_logprobs = true,
                                          .wants_kept = row->kept.ends != NULL,
                                          .salt = salt,
                                          .take = take,
                                          .ctx = asked};
    return asked;
}

int ash_rl_answer_all(struct ash_policy_run *rl, struct ash_asked **asked, size_t count, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ash_core_submit(rl->sampler.core, &asked[i]->request, err);
    rc = ash_core_finish(rl->sampler.core, rc, err);
    if (rc < 0) return ash_err_prefix(err, rc, "an answer could not be sampled");
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (asked[i]->rc < 0) rc = ash_err_set(err, asked[i]->rc, "out of memory for the ids that were kept");
    return rc;
}

/* What an answer loses that ends near the limit, or there (DAPO's soft punishment). */
static double overlong_cost(const struct ash_policy_run *rl, size_t tokens)
{
    double buffer = (double)rl->job->rl.overlong_buffer,
           beyond = (double)tokens - ((double)rl->shape.max_tokens - buffer);

    return buffer > 0 && beyond > 0 ? rl->job->rl.overlong_penalty * beyond / buffer : 0.0;
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
                                    .own_tokens = ash_rl_own_count(row),
                                    .has_ended = row->has_ended,
                                    .may_have_work = rl->job->arithmetic.work};
    struct ash_str text = {0};
    int rc = ash_rl_decode(rl, row, ash_rl_last_turn(row), &text, err);

    rewarded.text = text.data;
    if (rc == 0) rc = ash_rewards_get(rl->rewards, &rewarded, &row->reward, err);
    if (rc == 0) row->reward -= overlong_cost(rl, row->count);
    ash_str_fini(&text);
    return rc;
}

/* One turn of the answers that are this rank's: of open groups those that begin or go on. */
static int sample_own(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                      const bool *is_own, struct ash_err *err)
{
    size_t samples = (size_t)rl->job->rl.samples, count = 0;
    struct ash_asked **asked = calloc(rl->shape.answers, sizeof(struct ash_asked *));
    int rc = 0;

    if (asked == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the answers of a step");
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];
        struct ash_sampler_opts sampler = ash_rl_sampler_of(rl, rollout, round, a);

        if (!is_open[a / samples] || !is_own[a] || (row->count > 0 && !ash_rl_goes_on(row))) continue;
        asked[count] = ash_rl_ask(rl, &rollout->prompts[a / samples], row, &sampler, rollout->version + 1);
        if (asked[count] == NULL)
            rc = ash_err_set(err, -ENOMEM, "out of memory for an answer");
        else
            count++;
    }
    if (rc == 0) rc = ash_rl_answer_all(rl, asked, count, err);
    for (size_t i = 0; i < count; i++)
        ash_rl_unask(asked[i]);
    free(asked);
    return rc;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Each group is sampled by one rank, or comes to the first one; closed ones are on all ranks, and the first rank shares
 * them again. */
static bool *find_own(const struct ash_policy_run *rl, const bool *is_open)
{
    size_t samples = (size_t)rl->job->rl.samples;
    size_t rank = ash_group_rank(rl->group), size = ash_group_size(rl->group);
    bool *is_own = calloc(rl->shape.answers, sizeof(*is_own));

    for (size_t a = 0; is_own != NULL && a < rl->shape.answers; a++)
        is_own[a] = rank == (is_open[a / samples] && rl->apart == NULL ? a / samples % size : 0);
    return is_own;
}

/* The first rank gets the environment's replies to all answers that have ended. */
static int hear_all(struct ash_policy_run *rl, struct ash_rollout *rollout, const bool *is_open, size_t turn,
                    struct ash_err *err)
{
    size_t samples = (size_t)rl->job->rl.samples;
    int rc = 0;

    if (ash_group_rank(rl->group) != 0) return 0;
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        if (!is_open[a / samples] || !row->has_ended) continue;
        rc = ash_rl_hear(rl, &rollout->prompts[a / samples], row, turn, err);
        if (rc < 0)
            ash_err_prefix(err, rc, "rollout %llu, prompt %zu, sample %zu", (unsigned long long)rollout->number,
                           a / samples, a % samples);
    }
    return rc;
}

/* Broadcast the first rank's replies or its error. *goes_on_out: does any answer continue? */
static int share_heard(struct ash_policy_run *rl, struct ash_rollout *rollout, int heard, bool *goes_on_out,
                       struct ash_err *err)
{
    bool *is_first = calloc(rl->shape.answers, sizeof(*is_first));
    int32_t code = heard;
    int rc = is_first == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a turn") : 0;

    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++)
        is_first[a] = ash_group_rank(rl->group) == 0;
    if (rc == 0) rc = ash_group_all_reduce(rl->group, &code, &code, 1, ASH_COLL_I32, ASH_COLL_SUM, err);
    if (rc == 0 && code < 0)
        rc = heard < 0 ? heard : ash_err_set(err, code, "the first rank has heard nothing from the environment");
    if (rc == 0) rc = ash_rl_share(rl->group, &rl->shape, rollout, is_first, err);
    *goes_on_out = false;
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++)
        *goes_on_out |= ash_rl_goes_on(&rollout->answers[a]);
    free(is_first);
    return rc;
}

/* Answers of the open groups, turn after turn. */
static int sample_turns(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                        struct ash_err *err)
{
    size_t samples = (size_t)rl->job->rl.samples, turns = (size_t)rl->job->rl.turns;
    bool *is_own = find_own(rl, is_open), goes_on = true;
    int rc = is_own == NULL ? ash_err_set(err, -ENOMEM, "out of memory for the answers of a step") : 0;

    for (size_t a = 0; a < rl->shape.answers; a++)
        if (is_open[a / samples]) ash_rl_clear(&rollout->answers[a]);
    for (size_t turn = 0; rc == 0 && goes_on; turn++) {
        if (rl->external != NULL)
            rc = ash_external_sample(rl, rollout, round, is_open, is_own, err);
        else
            rc = rl->apart != NULL ? ash_apart_sample(rl, rollout,
                                                      &(struct ash_apart_turn){.round = round,
                                                                               .number = turn,
                                                                               .is_open = is_open,
                                                                               .version = rollout->version,
                                                                               .reach = rl->shape.max_tokens},
                                                      err)
                                   : sample_own(rl, rollout, round, is_open, is_own, err);
        if (rc == 0) rc = ash_rl_share(rl->group, &rl->shape, rollout, is_own, err);
        goes_on = false;
        if (rc == 0 && turn + 1 < turns)
            rc = share_heard(rl, rollout, hear_all(rl, rollout, is_open, turn, err), &goes_on, err);
    }
    free(is_own);
    return rc;
}

static int reward_own(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                      struct ash_err *err)
{
    size_t samples = (size_t)rl->job->rl.samples;
    int rc = 0;

    if (ash_rl_recall(rl, rollout, round)) return 0;
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        if (!is_open[a / samples]) continue;
        rc = ash_rl_reward(rl, &rollout->prompts[a / samples], &rollout->answers[a], err);
        if (rc < 0)
            ash_err_prefix(err, rc, "rollout %llu, prompt %zu, sample %zu", (unsigned long long)rollout->number,
                           a / samples, a % samples);
    }
    return rc;
}

/* Rewards of the open groups. A program's rewards may differ between calls: the first rank computes them, all get its
 * results, its error too. */
static int reward_open(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                       struct ash_err *err)
{
    size_t count = rl->shape.answers;
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
static int run_round(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_rollout *rollout, size_t round,
                     const bool *is_open, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns(), sampled_ns;
    bool is_drawn = rl->job->rollout.chunk > 0; /* with the weights of several steps (chunks.h) */
    int rc = is_drawn ? 0 : ash_rl_get_prompts(rl, rollout, round, is_open, err);

    if (rc == 0 && !is_drawn) rc = sample_turns(rl, rollout, round, is_open, err);
    if (rc == 0 && rl->external != NULL) rc = ash_external_correct(rl, trainer, rollout, is_open, err);
    sampled_ns = ash_clock_ns();
    if (rc == 0) rc = reward_open(rl, rollout, round, is_open, err);
    rl->seconds[ASH_RL_SAMPLING] += (double)(sampled_ns - start_ns) * 1e-9;
    rl->seconds[ASH_RL_REWARDING] += (double)(ash_clock_ns() - sampled_ns) * 1e-9;
    return rc;
}

/* What samples and rewards, open. */
static int open_sampling(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_err *err)
{
    size_t tokens = (size_t)(rl->job->rollout.max_prompt_tokens + rl->job->rollout.max_tokens);

    if (rl->apart == NULL && rl->job->rollout.chunk > 0) return 0; /* it has been open for the draws */
    if (rl->apart == NULL && rl->external == NULL) return ash_rl_open_core(rl, trainer, err);
    return ash_rewards_use(rl->rewards, rl->exec, ash_tokenizer_hash(rl->text.tokenizer), tokens, err);
}

int ash_rl_sample(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t number, uint64_t version,
                  struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    bool *is_open = calloc(rl->shape.prompts, sizeof(*is_open));
    size_t open = rl->shape.prompts, rounds = (size_t)rl->job->rl.sampling_rounds;
    int rc =
        is_open == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a rollout") : open_sampling(rl, trainer, err);

    rollout->number = number;
    rollout->version = version;
    rollout->drawn = ash_chunks_last(rl->job, number) + 1;
    rollout->replaced = 0;
    for (size_t p = 0; rc == 0 && p < rl->shape.prompts; p++)
        is_open[p] = true;
    for (size_t round = 0; rc == 0 && round < rounds && open > 0; round++) {
        rollout->replaced += round > 0 ? open : 0;
        rc = run_round(rl, trainer, rollout, round, is_open, err);
        open = 0;
        for (size_t p = 0; rc == 0 && p < rl->shape.prompts; p++) {
            is_open[p] = ash_rl_is_same_group(&rl->shape, rollout, p);
            open += is_open[p];
        }
    }
    free(is_open);
    return rc;
}
