/* rl: what happens around the steps of a run. Step s learns from rollout s / epochs, which the weights of `lag`
 * rollouts before sampled. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/files/open.h"
#include "model/lora.h"
#include "post/rl/rl_priv.h"
#include "train/data/tokenize_eos.h"

#define REPORT_STEPS 20

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int evaluate(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, double *share_out,
                    struct ash_err *err)
{
    double share = 0.0;
    int rc = ash_rl_evaluate(rl, trainer, (size_t)rl->job->rollout.eval_count, &share, err);

    *share_out = share;
    if (rc == 0 && rl->screen != NULL)
        fprintf(rl->screen, "eval      step %llu: mean reward %.4f of %lld held-out prompts, greedy\n",
                (unsigned long long)step, share, (long long)rl->job->rollout.eval_count);
    if (rc == 0) ash_rl_keep_best(rl, trainer, step, share);
    return rc;
}

/* The rollouts that earlier weights sampled for this step and later ones. If a rank lacks some of them (the run resumes
 * here, or the rank has just joined), all ranks load them. */
static int find_rollouts(struct ash_policy_run *rl, uint64_t step, struct ash_err *err)
{
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape), first = step / steps;
    uint64_t end = step > 0 ? first + (uint64_t)rl->job->rollout.lag + (step % steps != 0) : first;
    int32_t is_missing = 0;
    int rc = 0;

    for (uint64_t n = first; n < end; n++) {
        const struct ash_rollout *rollout = &rl->rollouts[n % rl->rollout_count];

        is_missing |= rollout->number != n || rollout->drawn < ash_chunks_due(rl, n, step);
    }
    rc = ash_group_all_reduce(rl->group, &is_missing, &is_missing, 1, ASH_COLL_I32, ASH_COLL_MAX, err);
    for (uint64_t n = first; rc == 0 && is_missing != 0 && n < end; n++)
        rc = ash_rl_find_rollout(rl, n, ash_chunks_due(rl, n, step), err);
    return rc;
}

static int prepare(void *ctx, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    struct ash_policy_run *rl = ctx;
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape), lag = (uint64_t)rl->job->rollout.lag, number = step / steps;
    double share = NAN;
    int rc = 0;

    rl->group = ash_trainer_group(trainer);
    rl->exec = ash_trainer_exec(trainer);
    rl->lora = ash_model_get_config(ash_trainer_state(trainer)->model)->lora;
    ash_rl_take_back(rl, step);
    if (step == 0 && rl->job->rollout.eval_every > 0) {
        rc = evaluate(rl, trainer, 0, &share, err);
        if (rc < 0) return rc;
        ash_rl_add_curves(rl, 0, share);
    }
    ash_rl_mend_curves(rl, step);
    memset(rl->counts, 0, sizeof(rl->counts));
    rc = ash_critic_settle(rl, trainer, step, err);
    if (rc == 0 && rl->apart != NULL) return ash_apart_prepare(rl, trainer, step, err);
    if (rc == 0) rc = find_rollouts(rl, step, err);
    if (rc < 0 || step % steps != 0) return rc;
    if (rl->job->rollout.chunk > 0) return ash_chunks_draw(rl, trainer, step, err);
    for (uint64_t n = step == 0 ? 0 : number + lag; rc == 0 && n <= number + lag; n++)
        rc = ash_rl_make_rollout(rl, trainer, n, step, err);
    return rc;
}

/* Each token is counted by the rank that reports its loss. */
static int share_counts(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_err *err)
{
    int rc = 0;

    if (!ash_mesh_is_reporting_rank(ash_trainer_get_facts(trainer).mesh)) memset(rl->counts, 0, sizeof(rl->counts));
    rc = ash_group_all_reduce(rl->group, rl->counts, rl->counts, ASH_RL_COUNTS, ASH_COLL_F64, ASH_COLL_SUM, err);
    if (rc == 0) rl->checked += (uint64_t)rl->counts[ASH_RL_CHECKED];
    return rc;
}

/* Servers and trainer are two models, if only by rounding. */
static void say_mismatch(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    struct ash_mismatch mismatch = ash_external_mismatch(rl, rollout);

    fprintf(rl->screen, "servers   divergence of a token %.3g, largest ratio %.4g, %.2f %% of weights cut\n",
            mismatch.kl, mismatch.max_ratio, 100 * mismatch.cut);
}

/* At the end of a run with samplers apart. */
static void say_shares(const struct ash_policy_run *rl)
{
    struct ash_apart_shares shares = ash_apart_get_shares(rl);

    fprintf(rl->screen,
            "waits     trainer: %.1f %% steps, %.1f %% waits for answers, %.1f %% rewards, %.1f %% publishes weights; "
            "samplers: %.1f %% draw, %.1f %% wait for work, %.1f %% take weights\n",
            100 * shares.steps, 100 * shares.answers, 100 * shares.rewards, 100 * shares.publishing,
            100 * shares.drawing, 100 * shares.waiting, 100 * shares.taking);
}

/* The screen's lines after a step, now and then. */
static void say_step(const struct ash_policy_run *rl, const struct ash_rollout *rollout, uint64_t step)
{
    bool is_last = step == (uint64_t)rl->job->train.steps;

    if (rl->screen == NULL || (step % REPORT_STEPS != 0 && !is_last)) return;
    fprintf(rl->screen,
            "rollout   step %llu: reward %.3f, %.1f tokens, %.0f %% ended, entropy %.3f, %zu of %zu groups agree; "
            "%llu ratios exactly 1; sampling %.1f s, rewards %.1f s\n",
            (unsigned long long)step, rollout->mean_reward, rollout->mean_length, 100 * rollout->ended_share,
            rollout->entropy, rollout->same_groups, rl->shape.prompts, (unsigned long long)rl->checked,
            rl->seconds[ASH_RL_SAMPLING], rl->seconds[ASH_RL_REWARDING]);
    if (rl->external != NULL) say_mismatch(rl, rollout);
    if (rl->apart != NULL && is_last) say_shares(rl);
}

static int finish(void *ctx, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    struct ash_policy_run *rl = ctx;
    int64_t every = rl->job->rollout.eval_every;
    double share = NAN;
    int rc = share_counts(rl, trainer, err);

    if (rc == 0) rc = ash_critic_learn(rl, step, err);
    if (rc < 0) return rc;
    say_step(rl, ash_rl_rollout_of(rl, step - 1), step);
    if (every > 0 && (step % (uint64_t)every == 0 || step == (uint64_t)rl->job->train.steps))
        rc = evaluate(rl, trainer, step, &share, err);
    if (rc == 0) ash_rl_add_curves(rl, step, share);
    return rc;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Zeros for max_tokens tokens where they are needed; *is_short: there was no memory. */
static void *take(const struct ash_policy_run *rl, bool is_needed, size_t token_bytes, bool *is_short)
{
    void *memory = is_needed ? calloc(rl->shape.max_tokens, token_bytes) : NULL;

    *is_short |= is_needed && memory == NULL;
    return memory;
}

static int open_answer(const struct ash_policy_run *rl, struct ash_answer_row *row)
{
    bool is_short = false;

    row->ids = take(rl, true, sizeof(*row->ids), &is_short);
    row->logps = take(rl, true, sizeof(*row->logps), &is_short);
    row->sampled = take(rl, rl->job->rollout.url.count > 0, sizeof(*row->sampled), &is_short);
    row->given = take(rl, rl->job->rl.environment != NULL, sizeof(*row->given), &is_short);
    row->kept.ends = take(rl, rl->shape.has_kept, sizeof(*row->kept.ends), &is_short);
    row->reference = take(rl, rl->shape.has_reference, sizeof(*row->reference), &is_short);
    row->values = take(rl, rl->shape.has_critic, sizeof(*row->values), &is_short);
    row->returns = take(rl, rl->shape.has_critic, sizeof(*row->returns), &is_short);
    row->advantages = take(rl, rl->shape.has_token_advantages, sizeof(*row->advantages), &is_short);
    return is_short ? -ENOMEM : 0;
}

static int open_rollout(const struct ash_policy_run *rl, struct ash_rollout *rollout)
{
    size_t samples = (size_t)rl->job->rl.samples;
    int rc = 0;

    rollout->number = UINT64_MAX;
    rollout->prompts = calloc(rl->shape.prompts, sizeof(*rollout->prompts));
    rollout->prompt_numbers = calloc(rl->shape.prompts, sizeof(*rollout->prompt_numbers));
    rollout->bin_counts = calloc(rl->shape.minibatches, sizeof(*rollout->bin_counts));
    rollout->weight_tokens = calloc(rl->shape.minibatches, sizeof(*rollout->weight_tokens));
    rollout->answers = calloc(rl->shape.answers, sizeof(*rollout->answers));
    rollout->bin_of = calloc(rl->shape.answers, sizeof(*rollout->bin_of));
    rollout->row_of = calloc(rl->shape.answers, sizeof(*rollout->row_of));
    if (rollout->prompts == NULL || rollout->answers == NULL || rollout->bin_of == NULL || rollout->row_of == NULL ||
        rollout->prompt_numbers == NULL || rollout->bin_counts == NULL || rollout->weight_tokens == NULL)
        return -ENOMEM;
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        rollout->answers[a].prompt = a / samples;
        rc = open_answer(rl, &rollout->answers[a]);
    }
    return rc;
}

static int open_text(struct ash_policy_run *rl, struct ash_err *err)
{
    const struct ash_job *job = rl->job;
    const char *dir = job->data.tokenizer != NULL ? job->data.tokenizer : job->model.from;
    int32_t eos = -1;
    int rc = ash_tokenizer_open(dir, &rl->text.tokenizer, err);

    if (rc < 0) return rc;
    rc = ash_chat_template_open(dir, &rl->text.template, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    rc = ash_tokenizer_find_eos(dir, rl->text.tokenizer, NULL, &eos, err);
    if (rc < 0) return rc;
    if (eos >= 0) rl->text.eos[rl->text.eos_count++] = eos;
    rc = ash_prompts_open(job->rl.prompts, &job->arithmetic, rl->text.tokenizer, rl->text.template, &rl->prompts, err);
    if (rc < 0) return ash_err_prefix(err, rc, "rl.prompts");
    rc = ash_rewards_open((const char *const *)job->rl.rewards.items, job->rl.rewards.count, &rl->rewards, err);
    return rc < 0 ? ash_err_prefix(err, rc, "rl.rewards") : 0;
}

int ash_rl_open(const struct ash_job *job, struct ash_group *group, const char *dir, FILE *screen,
                struct ash_policy_run **rl_out, struct ash_err *err)
{
    struct ash_policy_run *rl;
    int rc;

    if (job->model.from == NULL) return ash_err_set(err, -EINVAL, "rl: which model samples? give model.from");
    rl = calloc(1, sizeof(*rl));
    if (rl == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rl->job = job;
    rl->group = group;
    rl->dir = dir;
    rl->screen = screen;
    rl->shape.prompts = (size_t)job->rl.prompts_per_step;
    rl->shape.answers = rl->shape.prompts * (size_t)job->rl.samples;
    rl->shape.max_tokens = (size_t)job->rollout.max_tokens;
    rl->shape.epochs = (size_t)job->rl.epochs;
    rl->shape.minibatches = (size_t)job->rl.minibatches;
    rl->shape.has_teacher = job->rl.algorithm == ASH_RL_DISTILL;
    rl->shape.has_reference = job->rl.kl_coef > 0 || job->rl.max_kl > 0 || rl->shape.has_teacher;
    rl->shape.has_kept = job->rollout.top_k > 0 || job->rollout.top_p < 1.0;
    rl->shape.has_critic = job->rl.algorithm == ASH_RL_PPO;
    rl->shape.has_token_advantages = rl->shape.has_critic || rl->shape.has_teacher;
    rl->rollout_count = (size_t)job->rollout.lag + 1;
    rl->rollouts = calloc(rl->rollout_count, sizeof(*rl->rollouts));
    rc = rl->rollouts == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : open_text(rl, err);
    for (size_t i = 0; rc == 0 && i < rl->rollout_count; i++)
        if (open_rollout(rl, &rl->rollouts[i]) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory for answers");
    if (rc == 0) rc = ash_rl_read_backs(rl, err);
    if (rc == 0) rc = ash_apart_open(rl, &rl->apart, err);
    if (rc == 0) rc = ash_external_open(rl, &rl->external, err);
    if (rc < 0) {
        ash_rl_close(rl);
        return rc;
    }
    ash_rl_set_parts(rl);
    ash_critic_init(rl);
    *rl_out = rl;
    return 0;
}

static void close_rollout(const struct ash_policy_run *rl, struct ash_rollout *rollout)
{
    for (size_t p = 0; rollout->prompts != NULL && p < rl->shape.prompts; p++)
        ash_prompt_fini(&rollout->prompts[p]);
    for (size_t a = 0; rollout->answers != NULL && a < rl->shape.answers; a++) {
        free(rollout->answers[a].ids);
        free(rollout->answers[a].logps);
        free(rollout->answers[a].sampled);
        free(rollout->answers[a].given);
        free(rollout->answers[a].kept.ids);
        free(rollout->answers[a].kept.ends);
        free(rollout->answers[a].reference);
        free(rollout->answers[a].values);
        free(rollout->answers[a].returns);
        free(rollout->answers[a].advantages);
    }
    free(rollout->prompts);
    free(rollout->answers);
    free(rollout->prompt_numbers);
    free(rollout->bin_counts);
    free(rollout->weight_tokens);
    free(rollout->bin_of);
    free(rollout->row_of);
}

void ash_rl_close(struct ash_policy_run *rl)
{
    if (rl == NULL) return;
    ash_apart_close(rl->apart);
    ash_external_close(rl->external);
    for (size_t i = 0; rl->rollouts != NULL && i < rl->rollout_count; i++)
        close_rollout(rl, &rl->rollouts[i]);
    free(rl->rollouts);
    ash_rl_close_curves(rl);
    ash_rewards_close(rl->rewards);
    ash_program_close(rl->environment);
    ash_prompts_close(rl->prompts);
    ash_chat_template_close(rl->text.template);
    ash_tokenizer_close(rl->text.tokenizer);
    free(rl);
}

/* Before the trainer, and with it the model and the exec that these borrow. */
static void end(void *ctx)
{
    struct ash_policy_run *rl = ctx;

    ash_critic_close(rl);
    ash_external_end(rl->external);
    ash_core_close(rl->sampler.core);
    rl->sampler.core = NULL;
    rl->sampler.model = NULL;
    ash_model_close(rl->sampler.copy);
    rl->sampler.copy = NULL;
    ash_rl_close_reference(rl);
}

struct ash_trainer_parts ash_rl_parts(struct ash_policy_run *rl)
{
    return (struct ash_trainer_parts){.train = &rl->source,
                                      .objective = &rl->objective,
                                      .prepare = prepare,
                                      .finish = finish,
                                      .end = end,
                                      .hash = ash_rl_hash_unused,
                                      .save = ash_rl_save_unused,
                                      .load = ash_rl_load_unused,
                                      .report = ash_rl_report,
                                      .ctx = rl};
}
