/* job: checks between settings, and numbers for settings of "choose". */
#include "train/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/math.h"

#define WARMUP_STEPS 100    /* at most */
#define MICRO_ROWS_MAX 4096 /* rows of a pass that are enough to keep the machine busy */

static int resolve_length(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_train *train = &job->train;
    int64_t step_tokens;

    if (__builtin_mul_overflow(train->global_batch, job->data.seq_tokens, &step_tokens))
        return ash_err_set(err, -EINVAL, "train.global_batch times data.seq is absurdly large");
    if (train->steps > 0 && train->tokens > 0 && train->steps != (train->tokens - 1) / step_tokens + 1)
        return ash_err_set(err, -EINVAL,
                           "train.steps=%lld and train.tokens=%lld contradict each other: give one of them",
                           (long long)train->steps, (long long)train->tokens);
    if (train->steps == 0 && train->tokens == 0)
        return ash_err_set(err, -EINVAL, "how long to train? give train.steps or train.tokens");
    if (train->steps == 0) train->steps = (train->tokens - 1) / step_tokens + 1;
    return 0;
}

static int resolve_batch(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_train *train = &job->train;

    if (train->grains == 0) {
        train->grains = 8;
        while (train->global_batch % train->grains != 0)
            train->grains /= 2;
    }
    if (train->global_batch % train->grains != 0)
        return ash_err_set(err, -EINVAL, "train.grains=%lld does not divide train.global_batch=%lld",
                           (long long)train->grains, (long long)train->global_batch);
    int64_t grain = train->global_batch / train->grains;
    if (train->micro_batch == 0) {
        train->micro_batch = grain;
        while (grain % train->micro_batch != 0 ||
               (train->micro_batch > 1 && train->micro_batch * job->data.seq_tokens > MICRO_ROWS_MAX))
            train->micro_batch--;
    }
    if (grain % train->micro_batch != 0)
        return ash_err_set(err, -EINVAL,
                           "train.micro_batch=%lld does not divide a grain of %lld sequences (global_batch / grains)",
                           (long long)train->micro_batch, (long long)grain);
    return 0;
}

/* The default warm-up, shortened to fit the run. */
static int64_t choose_warmup(const struct ash_job *job)
{
    int64_t room = job->train.steps;

    if (job->schedule.kind == ASH_LR_WSD) room -= job->schedule.decay_steps;
    if (room < 0) room = 0; /* the decay is refused next */
    return ash_min(WARMUP_STEPS, room / 10);
}

static int resolve_schedule(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_schedule *schedule = &job->schedule;
    long long steps = job->train.steps;

    if (schedule->kind == ASH_LR_WSD && schedule->decay_steps == 0)
        schedule->decay_steps = (int64_t)(schedule->decay_share * (double)steps);
    if (schedule->warmup < 0) schedule->warmup = choose_warmup(job);
    if (schedule->warmup > steps)
        return ash_err_set(err, -EINVAL,
                           "schedule.warmup=%lld is longer than the run of %lld steps: give a shorter one (0: none)",
                           (long long)schedule->warmup, steps);
    if (schedule->kind == ASH_LR_WSD && schedule->decay_steps > steps - schedule->warmup)
        return ash_err_set(err, -EINVAL, "schedule: %lld steps of warm-up and %lld of decay do not fit into %lld steps",
                           (long long)schedule->warmup, (long long)schedule->decay_steps, steps);
    return 0;
}

/* How the heads share the model's width. */
static int resolve_heads(struct ash_job_model *model, bool gpt2, struct ash_err *err)
{
    if (model->kv_heads == 0) model->kv_heads = model->heads;
    if (model->heads % model->kv_heads != 0)
        return ash_err_set(err, -EINVAL, "model.kv_heads=%lld does not divide model.heads=%lld",
                           (long long)model->kv_heads, (long long)model->heads);
    if ((model->head_dim == 0 || gpt2) && model->hidden % model->heads != 0)
        return ash_err_set(err, -EINVAL, "model.heads=%lld does not divide model.hidden=%lld", (long long)model->heads,
                           (long long)model->hidden);
    if (gpt2 &&
        (model->kv_heads != model->heads || (model->head_dim != 0 && model->head_dim != model->hidden / model->heads)))
        return ash_err_set(err, -EINVAL, "gpt2 has neither model.kv_heads nor model.head_dim: leave both out");
    if (model->head_dim == 0) model->head_dim = model->hidden / model->heads;
    if (model->head_dim > ASH_ATTN_HEAD_MAX)
        return ash_err_set(err, -EINVAL, "a head of %lld (model.hidden / model.heads) is wider than %d",
                           (long long)model->head_dim, ASH_ATTN_HEAD_MAX);
    if (model->head_dim % 2 != 0 && !gpt2)
        return ash_err_set(err, -EINVAL, "model.head_dim=%lld must be even for rotary positions",
                           (long long)model->head_dim);
    return 0;
}

static int resolve_model(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_model *model = &job->model;
    bool gpt2 = strcmp(ash_job_model_types[model->type], "gpt2") == 0;
    int rc;

    if (model->from != NULL) return 0;
    rc = resolve_heads(model, gpt2, err);
    if (rc < 0) return rc;
    if (model->ffn == 0)
        model->ffn = gpt2 ? 4 * model->hidden : (int64_t)ash_round_up((size_t)(model->hidden * 8 / 3), 32);
    if (model->expert_ffn == 0) model->expert_ffn = model->ffn;
    if (gpt2) model->tied = true;
    if (model->max_positions == 0)
        model->max_positions = gpt2 || job->data.seq_tokens > 2048 ? job->data.seq_tokens : 2048;
    if (model->max_positions < job->data.seq_tokens)
        return ash_err_set(err, -EINVAL, "data.seq=%lld is longer than model.max_positions=%lld",
                           (long long)job->data.seq_tokens, (long long)model->max_positions);
    return 0;
}

/* The ratio's bounds: those of the other loss, and those that would never hold or always. */
static int check_policy_loss(const struct ash_job_rl *rl, struct ash_err *err)
{
    double high = rl->clip_high > 0 ? rl->clip_high : rl->clip;
    bool is_cispo = rl->policy_loss == ASH_RL_CISPO;

    if (is_cispo && (rl->delta > 0 || rl->dual_clip > 0))
        return ash_err_set(err, -EINVAL, "%s is a bound of rl.policy_loss=clip; cispo has rl.clip_high alone",
                           rl->delta > 0 ? "rl.delta" : "rl.dual_clip");
    if (is_cispo && rl->ratio == ASH_RL_RATIO_SEQUENCE)
        return ash_err_set(err, -EINVAL, "rl.policy_loss=cispo takes ratios of tokens: leave out rl.ratio=sequence");
    if (rl->delta > 0 && rl->delta <= 1 + high)
        return ash_err_set(err, -EINVAL, "rl.delta=%g is not above the clipped ratio, 1 + %g", rl->delta, high);
    if (rl->dual_clip > 0 && rl->dual_clip <= 1)
        return ash_err_set(err, -EINVAL, "rl.dual_clip=%g must be above 1 (3, for example)", rl->dual_clip);
    return 0;
}

/* A teacher takes the place of rewards: settings that make something of those do not go with it. */
static int check_teacher(const struct ash_job_rl *rl, struct ash_err *err)
{
    if (rl->algorithm != ASH_RL_DISTILL) return 0;
    if (rl->reference == NULL)
        return ash_err_set(err, -EINVAL,
                           "rl.reference is missing: rl.algorithm=distill learns from a teacher, this model folder");
    if (rl->kl_coef > 0)
        return ash_err_set(err, -EINVAL,
                           "rl.kl_coef: the divergence from the teacher is all that rl.algorithm=distill learns from: "
                           "leave it out");
    if (rl->sampling_rounds > 1)
        return ash_err_set(err, -EINVAL,
                           "rl.sampling_rounds replaces groups whose rewards agree; rl.algorithm=distill learns from "
                           "those, too: leave it out");
    return 0;
}

/* What is decided when a rollout is sampled in a process that trains is decided later with samplers apart. */
static int check_apart(const struct ash_job *job, struct ash_err *err)
{
    if (job->rollout.mode != ASH_ROLLOUT_APART || job->rollout.lag == 0) return 0;
    if (job->rl.algorithm == ASH_RL_PPO)
        return ash_err_set(err, -EINVAL,
                           "rollout.mode=apart with rl.algorithm=ppo: the critic values answers when they are sampled; "
                           "set rollout.lag=0");
    if (job->rl.on_collapse == ASH_JOB_COLLAPSE_BACK)
        return ash_err_set(err, -EINVAL,
                           "rollout.mode=apart with rl.on_collapse=back: answers are judged when they are used; set "
                           "rollout.lag=0, or rl.on_collapse=stop");
    return 0;
}

/* Answers that are drawn in pieces are judged when the last one is there. */
static int check_chunk(const struct ash_job *job, struct ash_err *err)
{
    const char *other = job->rl.environment != NULL                    ? "rl.environment"
                        : job->rl.sampling_rounds > 1                  ? "rl.sampling_rounds"
                        : job->rl.on_collapse == ASH_JOB_COLLAPSE_BACK ? "rl.on_collapse=back"
                                                                       : NULL;

    if (job->rollout.chunk == 0) return 0;
    if (job->rollout.lag < 2)
        return ash_err_set(err, -EINVAL,
                           "rollout.chunk=%lld with rollout.lag=%lld: the weights of as many steps draw an answer as "
                           "rollout.lag says, so give 2 or more",
                           (long long)job->rollout.chunk, (long long)job->rollout.lag);
    if (other != NULL)
        return ash_err_set(err, -EINVAL, "rollout.chunk with %s: this wants whole answers; leave one of them out",
                           other);
    return 0;
}

/* A server says how likely a token is to its model as it stands, before any filter. */
static int check_url(const struct ash_job *job, struct ash_err *err)
{
    const char *other = job->rollout.mode == ASH_ROLLOUT_APART ? "rollout.mode=apart"
                        : job->rollout.chunk > 0               ? "rollout.chunk"
                        : job->rollout.top_k > 0               ? "rollout.top_k"
                        : job->rollout.top_p < 1.0             ? "rollout.top_p"
                        : job->rollout.temperature != 1.0      ? "rollout.temperature"
                                                               : NULL;

    if (job->rollout.url.count == 0 || other == NULL) return 0;
    return ash_err_set(err, -EINVAL,
                       "rollout.url with %s: servers draw whole answers from all ids, and their log-probabilities are "
                       "those of temperature 1; leave it out",
                       other);
}

/* Settings that do not go together. */
static int check_rl(const struct ash_job *job, struct ash_err *err)
{
    int rc = check_policy_loss(&job->rl, err);

    if (rc == 0) rc = check_teacher(&job->rl, err);
    if (rc == 0) rc = check_apart(job, err);
    if (rc == 0) rc = check_chunk(job, err);
    return rc < 0 ? rc : check_url(job, err);
}

/* A step of answers fills as many sequences as its prompts and answers need at most. */
static int resolve_rl(struct ash_job *job, struct ash_err *err)
{
    int64_t longest = job->rollout.max_prompt_tokens + job->rollout.max_tokens, fit = job->data.seq_tokens / longest;
    int64_t answers = job->rl.prompts_per_step * job->rl.samples / job->rl.minibatches,
            grains = job->train.grains > 0 ? job->train.grains : 8;

    if (fit == 0)
        return ash_err_set(err, -EINVAL,
                           "data.seq=%lld is shorter than rollout.max_prompt_tokens + rollout.max_tokens = %lld",
                           (long long)job->data.seq_tokens, (long long)longest);
    if (job->rl.prompts_per_step % job->rl.minibatches != 0)
        return ash_err_set(err, -EINVAL, "rl.prompts_per_step=%lld is not a multiple of rl.minibatches=%lld",
                           (long long)job->rl.prompts_per_step, (long long)job->rl.minibatches);
    if (job->rl.overlong_buffer > job->rollout.max_tokens)
        return ash_err_set(err, -EINVAL, "rl.overlong_buffer=%lld is more than rollout.max_tokens=%lld",
                           (long long)job->rl.overlong_buffer, (long long)job->rollout.max_tokens);
    if (job->rl.samples < 2 &&
        (job->rl.algorithm == ASH_RL_GRPO || job->rl.algorithm == ASH_RL_RLOO || job->rl.algorithm == ASH_RL_RAFT))
        return ash_err_set(err, -EINVAL,
                           "rl.samples=1: rl.algorithm=grpo, rloo and raft compare the answers to one prompt: give 2 "
                           "or more");
    if (check_rl(job, err) < 0) return -EINVAL;
    if ((job->rl.environment != NULL) != (job->rl.turns > 1))
        return ash_err_set(err, -EINVAL,
                           "rl.environment and rl.turns=%lld: several turns have an environment between them",
                           (long long)job->rl.turns);
    if (answers < grains) grains = 1;
    job->train.grains = grains;
    job->train.global_batch = (int64_t)ash_round_up(ash_div_up((size_t)answers, (size_t)fit), (size_t)grains);
    return 0;
}

/* Settings of adapters without a rank would train all weights, at a learning rate meant for adapters. */
static int check_lora(const struct ash_job_lora *lora, struct ash_err *err)
{
    bool is_all = lora->targets.count == 1 && strcmp(lora->targets.items[0], "all-linear") == 0;
    const char *given = !is_all                           ? "targets"
                        : lora->rank_pattern.count > 0    ? "rank_pattern"
                        : lora->modules_to_save.count > 0 ? "modules_to_save"
                        : lora->dropout > 0               ? "dropout"
                        : lora->bias != 0                 ? "bias"
                        : lora->rslora                    ? "rslora"
                        : lora->alpha != 16               ? "alpha"
                                                          : NULL;

    if (lora->rank > 0 || lora->adapter != NULL || given == NULL) return 0;
    return ash_err_set(err, -EINVAL, "lora.%s is given, but no adapters are made: set lora.rank (8, for example)",
                       given);
}

/* An empty word switches validation off, where a job file names some. */
static const char *or_none(const char *word)
{
    return word != NULL && word[0] != '\0' ? word : NULL;
}

/* What cannot compute in e4m3 yet. */
static int check_fp8(const struct ash_job *job, struct ash_err *err)
{
    const char *backend = job->runtime.backend;

    if (job->train.precision != ASH_JOB_FP8) return 0;
    if (job->train.method == ASH_METHOD_RL)
        return ash_err_set(err, -ENOTSUP,
                           "train.precision=fp8 is not for train.method=rl: answers are drawn in bf16; choose "
                           "train.precision=bf16");
    if (backend != NULL && strncmp(backend, "cuda", 4) == 0)
        return ash_err_set(err, -ENOTSUP,
                           "train.precision=fp8 runs on CPUs alone, and runtime.backend=%s asks for a GPU: choose "
                           "train.precision=bf16 there",
                           backend);
    return 0;
}

int ash_job_resolve(struct ash_job *job, struct ash_err *err)
{
    uint64_t first, last;
    int rc = check_lora(&job->lora, err);

    if (rc == 0) rc = check_fp8(job, err);

    if (rc < 0) return rc;
    job->data.valid = or_none(job->data.valid);
    if (job->train.method == ASH_METHOD_RL) {
        rc = resolve_rl(job, err);
        if (rc < 0) return rc;
    } else if (job->data.train == NULL)
        return ash_err_set(err, -EINVAL,
                           "data.train is missing: a folder of token shards (make one with `ashlar data`)");
    if (job->train.method == ASH_METHOD_DISTILL && job->distill.teacher == NULL)
        return ash_err_set(err, -EINVAL, "distill.teacher is missing: the model folder to learn from");
    if (job->train.method == ASH_METHOD_RL && job->recover.audit_every > 0)
        return ash_err_set(err, -EINVAL,
                           "recover.audit_every is not for train.method=rl: ranks do not have each other's "
                           "answers; leave it out");
    rc = resolve_length(job, err);
    if (rc < 0) return rc;
    if (job->train.trace != NULL && ash_number_range(job->train.trace, &first, &last) < 0)
        return ash_err_set(err, -EINVAL, "train.trace=%s is no range of steps: 100-105", job->train.trace);
    rc = resolve_batch(job, err);
    if (rc < 0) return rc;
    rc = resolve_schedule(job, err);
    if (rc < 0) return rc;
    return resolve_model(job, err);
}

struct ash_lr_schedule ash_job_get_schedule(const struct ash_job *job)
{
    return (struct ash_lr_schedule){.kind = (enum ash_lr_schedule_kind)job->schedule.kind,
                                    .steps = (uint64_t)job->train.steps,
                                    .warmup_steps = (uint64_t)job->schedule.warmup,
                                    .decay_steps = (uint64_t)job->schedule.decay_steps,
                                    .peak_lr = job->optimizer.lr,
                                    .final_share = job->schedule.final_share};
}

void ash_job_choose_backend(const struct ash_job *job, const char *cpu_reason, struct ash_backend_choice *choice_out)
{
    struct ash_backend_wish wish = {.asked = job->runtime.backend, .cpu_reason = cpu_reason};

    if (job->train.precision == ASH_JOB_FP8) wish.cpu_reason = "train.precision=fp8 runs on CPUs alone";
    ash_backend_choose(&wish, choice_out);
}

struct ash_pass_opts ash_job_get_pass_opts(const struct ash_job *job)
{
    return (struct ash_pass_opts){.max_rows = (size_t)job->data.seq_tokens * (size_t)job->train.micro_batch,
                                  .backward = true,
                                  .recompute = (enum ash_recompute)job->train.recompute};
}

struct ash_guard_opts ash_job_get_guard(const struct ash_job *job)
{
    return (struct ash_guard_opts){.nan = (enum ash_guard_nan)job->guard.nan,
                                   .norm_factor = job->guard.spike_norm,
                                   .norm_floor = job->optimizer.clip,
                                   .loss_factor = job->guard.spike_loss,
                                   .warmup_steps = (uint64_t)job->guard.warmup,
                                   .max_skips = (uint64_t)job->guard.max_skips};
}
