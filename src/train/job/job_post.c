/* job: the settings tables of post-training. */
#include "train/job/job_post.h"

#include <stddef.h>

#include "base/assert.h"
#include "model/lora.h"

#define MAX_COUNT 1e15

const char *const ash_job_method_names[] = {"pretrain", "sft", "dpo", "reward", "rl", "distill", NULL};
static const char *const truncate_names[] = {"never", "end", "start", "skip", NULL}; /* as enum ash_truncate */
static const char *const train_on_names[] = {"assistant", "last", "all", NULL};
static const char *const dpo_names[] = {"sigmoid",      "robust",   "hinge", "ipo", "orpo", "simpo",
                                        "sigmoid_norm", "apo_zero", "nca",   "kto", NULL};
static const char *const algorithm_names[] = {"grpo", "rloo", "reinforce++", "ppo", "distill", "raft", NULL};
static const char *const rl_loss_names[] = {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm", NULL};
static const char *const policy_loss_names[] = {"clip", "cispo", NULL};
static const char *const ratio_names[] = {"token", "sequence", NULL};
static const char *const estimator_names[] = {"k1", "k2", "k3", NULL};
static const char *const kl_in_names[] = {"loss", "reward", NULL};

#define SFT(field) offsetof(struct ash_job_sft, field)
static const struct ash_opt sft_opts[] = {
    {"packing", ASH_OPT_BOOL, SFT(packing), "true", "several examples in a sequence, none of which sees another", 0, 0,
     NULL},
    {"truncate", ASH_OPT_CHOICE, SFT(truncate), "never",
     "an example longer than data.seq (half of it for each of a pair): never: an error; else cut, or leave it out", 0,
     0, truncate_names},
    {"train_on", ASH_OPT_CHOICE, SFT(train_on), "assistant",
     "tokens that are learned: what the data marks, only the last such run of each example, or all", 0, 0,
     train_on_names},
};
const struct ash_opt_table ash_job_sft_table = {"sft", "examples (train.method=sft, dpo, reward, distill)", sft_opts,
                                                ASH_COUNT(sft_opts)};

#define DPO(field) offsetof(struct ash_job_dpo, field)
static const struct ash_opt dpo_opts[] = {
    {"loss", ASH_OPT_CHOICE, DPO(loss), "sigmoid", "loss of a pair", 0, 0, dpo_names},
    {"beta", ASH_OPT_DOUBLE, DPO(beta), "0.1", "how far the policy may leave the reference", 0, 1e6, NULL},
    {"label_smoothing", ASH_OPT_DOUBLE, DPO(label_smoothing), "0", "share of pairs that are labelled wrong (robust)", 0,
     0.499999, NULL},
    {"gamma", ASH_OPT_DOUBLE, DPO(gamma), "0.5", "margin of the rewards (simpo)", 0, 1e6, NULL},
    {"sft_weight", ASH_OPT_DOUBLE, DPO(sft_weight), "0",
     "weight of the chosen answers' mean cross-entropy, which is added", 0, 1e6, NULL},
    {"desirable_weight", ASH_OPT_DOUBLE, DPO(desirable_weight), "1", "weight of chosen answers (kto)", 0, 1e6, NULL},
    {"undesirable_weight", ASH_OPT_DOUBLE, DPO(undesirable_weight), "1", "weight of rejected answers (kto)", 0, 1e6,
     NULL},
    {"reference", ASH_OPT_STRING, DPO(reference), NULL,
     "model folder of the frozen reference; default: what training starts from", 0, 0, NULL},
};
const struct ash_opt_table ash_job_dpo_table = {"dpo", "pairs (train.method=dpo)", dpo_opts, ASH_COUNT(dpo_opts)};

#define REWARD(field) offsetof(struct ash_job_reward, field)
static const struct ash_opt reward_opts[] = {
    {"center", ASH_OPT_DOUBLE, REWARD(center), "0", "weight of the squared sum of a pair's rewards", 0, 1e6, NULL},
};
const struct ash_opt_table ash_job_reward_table = {"reward", "a reward model (train.method=reward)", reward_opts,
                                                   ASH_COUNT(reward_opts)};

#define DISTILL(field) offsetof(struct ash_job_distill, field)
static const struct ash_opt distill_opts[] = {
    {"teacher", ASH_OPT_STRING, DISTILL(teacher), NULL, "model folder of the frozen teacher, with the same vocabulary",
     0, 0, NULL},
    {"beta", ASH_OPT_DOUBLE, DISTILL(beta), "0.5",
     "0: KL(teacher, student); 1: KL(student, teacher); between: both from their mixture (Jensen-Shannon)", 0, 1, NULL},
    {"temperature", ASH_OPT_DOUBLE, DISTILL(temperature), "1", "of both distributions", 0.01, 100, NULL},
    {"sft_weight", ASH_OPT_DOUBLE, DISTILL(sft_weight), "0",
     "weight of the targets' mean cross-entropy, which is added", 0, 1e6, NULL},
};
const struct ash_opt_table ash_job_distill_table = {"distill", "a teacher (train.method=distill)", distill_opts,
                                                    ASH_COUNT(distill_opts)};

#define LORA(field) offsetof(struct ash_job_lora, field)
static const struct ash_opt lora_opts[] = {
    {"rank", ASH_OPT_INT, LORA(rank), "0", "rank of the adapters; 0: none, all weights are trained", 0, 65536, NULL},
    {"alpha", ASH_OPT_DOUBLE, LORA(alpha), "16", "adapters are multiplied by alpha / rank", 0, 1e9, NULL},
    {"targets", ASH_OPT_LIST, LORA(targets), "all-linear",
     "matrices with adapters: names, one regular expression, or all-linear", 0, 0, NULL},
    {"rslora", ASH_OPT_BOOL, LORA(rslora), "false", "multiply by alpha / sqrt(rank) instead", 0, 0, NULL},
    {"rank_pattern", ASH_OPT_LIST, LORA(rank_pattern), "", "ranks of some matrices: NAME:RANK", 0, 0, NULL},
    {"modules_to_save", ASH_OPT_LIST, LORA(modules_to_save), "", "modules that are trained whole", 0, 0, NULL},
    {"dropout", ASH_OPT_DOUBLE, LORA(dropout), "0", "share of an adapter's inputs that is left out", 0, 0.999, NULL},
    {"bias", ASH_OPT_CHOICE, LORA(bias), "none",
     "biases that are trained, too: lora_only: of matrices with adapters; all: of the whole model", 0, 0,
     ash_lora_bias_names},
    {"adapter", ASH_OPT_STRING, LORA(adapter), NULL, "PEFT folder to start from", 0, 0, NULL},
};
const struct ash_opt_table ash_job_lora_table = {"lora", "adapters instead of whole weights", lora_opts,
                                                 ASH_COUNT(lora_opts)};

static const char *const on_collapse_names[] = {"stop", "back", NULL};

#define RL(field) offsetof(struct ash_job_rl, field)
static const struct ash_opt rl_opts[] = {
    {"algorithm", ASH_OPT_CHOICE, RL(algorithm), "grpo",
     "how rewards become advantages; distill: those of tokens come from rl.reference, a teacher; raft: the best answer "
     "to each prompt is learned",
     0, 0, algorithm_names},
    {"prompts", ASH_OPT_STRING, RL(prompts), "arithmetic",
     "JSON lines with prompt and answer; or arithmetic: generated sums", 0, 0, NULL},
    {"rewards", ASH_OPT_LIST, RL(rewards), "arithmetic", "KIND or KIND:WEIGHT: arithmetic, exact, length, regex=...", 0,
     0, NULL},
    {"prompts_per_step", ASH_OPT_INT, RL(prompts_per_step), "32", "prompts in a step", 1, 1e7, NULL},
    {"samples", ASH_OPT_INT, RL(samples), "8", "answers to each prompt: a group", 1, 1e6, NULL},
    {"environment", ASH_OPT_STRING, RL(environment), NULL,
     "a program that answers the policy, which continues: COMMAND; default: none", 0, 0, NULL},
    {"turns", ASH_OPT_INT, RL(turns), "1", "turns of the policy in one answer, at most", 1, 1e6, NULL},
    {"policy_loss", ASH_OPT_CHOICE, RL(policy_loss), "clip",
     "clip: the worse of ratio and clipped ratio; cispo: the ratio, cut above, weighs the log-probability", 0, 0,
     policy_loss_names},
    {"clip", ASH_OPT_DOUBLE, RL(clip), "0.2", "ratios below 1 - clip (above 1 + clip) get no gradient", 0, 1e6, NULL},
    {"clip_high", ASH_OPT_DOUBLE, RL(clip_high), "0",
     "the bound above; 0: the same as clip. cispo: the largest ratio; 0: 5", 0, 1e6, NULL},
    {"delta", ASH_OPT_DOUBLE, RL(delta), "0", "ratios are cut at this, whatever the advantage; 0: not", 0, 1e6, NULL},
    {"dual_clip", ASH_OPT_DOUBLE, RL(dual_clip), "0",
     "a token loses at most this multiple of a negative advantage; 0: no limit", 0, 1e6, NULL},
    {"loss", ASH_OPT_CHOICE, RL(loss), "seq-mean-token-mean", "what the loss is a mean of", 0, 0, rl_loss_names},
    {"ratio", ASH_OPT_CHOICE, RL(ratio), "token", "ratios of tokens, or of whole answers", 0, 0, ratio_names},
    {"scale_rewards", ASH_OPT_BOOL, RL(scale_rewards), "true", "divide by the deviation in the group", 0, 0, NULL},
    {"kl_coef", ASH_OPT_DOUBLE, RL(kl_coef), "0", "weight of the divergence from the reference", 0, 1e6, NULL},
    {"kl_in", ASH_OPT_CHOICE, RL(kl_in), "loss", "place of the divergence", 0, 0, kl_in_names},
    {"kl_estimator", ASH_OPT_CHOICE, RL(kl_estimator), "k3", "how it is estimated", 0, 0, estimator_names},
    {"entropy", ASH_OPT_DOUBLE, RL(entropy), "0", "weight of the entropy, which is made larger", 0, 1e6, NULL},
    {"epochs", ASH_OPT_INT, RL(epochs), "1", "times that the answers of a rollout are learned from", 1, 1000, NULL},
    {"minibatches", ASH_OPT_INT, RL(minibatches), "1", "steps in an epoch, each on its share of the prompts", 1, 1e6,
     NULL},
    {"mask_truncated", ASH_OPT_BOOL, RL(mask_truncated), "false", "learn nothing from answers without an end", 0, 0,
     NULL},
    {"overlong_buffer", ASH_OPT_INT, RL(overlong_buffer), "0",
     "the last tokens before rollout.max_tokens, which cost reward (DAPO)", 0, 1e7, NULL},
    {"overlong_penalty", ASH_OPT_DOUBLE, RL(overlong_penalty), "1",
     "what an answer of rollout.max_tokens loses; in the buffer its share of it", 0, 1e6, NULL},
    {"sampling_rounds", ASH_OPT_INT, RL(sampling_rounds), "1",
     "dynamic sampling: so often are groups whose rewards are all equal replaced by other prompts; 1: never", 1, 1000,
     NULL},
    {"min_entropy", ASH_OPT_DOUBLE, RL(min_entropy), "0",
     "the run stops where the mean of minus log-probabilities falls below; 0: never", 0, 1e6, NULL},
    {"max_kl", ASH_OPT_DOUBLE, RL(max_kl), "0",
     "the run stops where a token's mean divergence from the reference (k3) is larger; 0: never", 0, 1e6, NULL},
    {"min_length", ASH_OPT_DOUBLE, RL(min_length), "0",
     "the run stops where the mean answer has fewer tokens; 0: never", 0, 1e7, NULL},
    {"max_length", ASH_OPT_DOUBLE, RL(max_length), "0", "the run stops where the mean answer has more tokens; 0: never",
     0, 1e7, NULL},
    {"on_collapse", ASH_OPT_CHOICE, RL(on_collapse), "stop",
     "past a bound: stop, or go back to the checkpoint before and draw other answers from there", 0, 0,
     on_collapse_names},
    {"max_backs", ASH_OPT_INT, RL(max_backs), "3", "how often a run goes back before it stops", 0, ASH_JOB_BACKS_MAX,
     NULL},
    {"reference", ASH_OPT_STRING, RL(reference), NULL,
     "model folder of the frozen reference, or of the teacher; default: what training starts from", 0, 0, NULL},
    {"critic", ASH_OPT_STRING, RL(critic), NULL,
     "ppo: model folder that the critic starts from, perhaps a reward model; default: what training starts from", 0, 0,
     NULL},
    {"critic_lr", ASH_OPT_DOUBLE, RL(critic_lr), "0", "ppo: learning rate of the critic; 0: optimizer.lr", 0, 1e6,
     NULL},
    {"gamma", ASH_OPT_DOUBLE, RL(gamma), "1", "ppo: discount of the reward from one token to the one before", 0, 1,
     NULL},
    {"lambda", ASH_OPT_DOUBLE, RL(lambda), "0.95", "ppo: share of later errors of the critic in an advantage (GAE)", 0,
     1, NULL},
    {"value_clip", ASH_OPT_DOUBLE, RL(value_clip), "0.2",
     "ppo: values learn nothing from answers further than this from what they were at sampling", 0, 1e6, NULL},
};
const struct ash_opt_table ash_job_rl_table = {"rl", "answers and rewards (train.method=rl)", rl_opts,
                                               ASH_COUNT(rl_opts)};

#define ROLLOUT(field) offsetof(struct ash_job_rollout, field)
static const char *const mode_names[] = {"together", "apart", NULL}; /* as enum ash_job_rollout_mode */
static const struct ash_opt rollout_opts[] = {
    {"temperature", ASH_OPT_DOUBLE, ROLLOUT(temperature), "1", "of the policy, for sampler and trainer alike", 0.01,
     100, NULL},
    {"top_k", ASH_OPT_INT, ROLLOUT(top_k), "0", "sample and learn among the k likeliest ids; 0: all", 0, 1e9, NULL},
    {"top_p", ASH_OPT_DOUBLE, ROLLOUT(top_p), "1", "the same among the fewest that have this probability; 1: all", 1e-6,
     1, NULL},
    {"max_tokens", ASH_OPT_INT, ROLLOUT(max_tokens), "64", "of an answer", 1, 1e7, NULL},
    {"max_prompt_tokens", ASH_OPT_INT, ROLLOUT(max_prompt_tokens), "64", "of a prompt; a longer one is an error", 1,
     1e7, NULL},
    {"lag", ASH_OPT_INT, ROLLOUT(lag), "0", "step s learns from what the weights of step s - lag sampled", 0, 1000,
     NULL},
    {"chunk", ASH_OPT_INT, ROLLOUT(chunk), "0",
     "rollout.lag=2 and more: an answer gets so many tokens from one version of the weights, and the next ones from "
     "the next; 0: all from one",
     0, 1e7, NULL},
    {"eval_every", ASH_OPT_INT, ROLLOUT(eval_every), "0", "steps between greedy evaluations; 0: never", 0, MAX_COUNT,
     NULL},
    {"eval_count", ASH_OPT_INT, ROLLOUT(eval_count), "500", "held-out prompts of an evaluation", 1, 1e9, NULL},
    {"keep_best", ASH_OPT_BOOL, ROLLOUT(keep_best), "true", "keep the model of the best evaluation, in DIR/best", 0, 0,
     NULL},
    {"mode", ASH_OPT_CHOICE, ROLLOUT(mode), "together",
     "who samples: the processes that train, or others (rollout.procs), with the same bits", 0, 0, mode_names},
    {"procs", ASH_OPT_INT, ROLLOUT(procs), "1",
     "rollout.mode=apart: how many of the processes of the job sample; the others train", 1, 4096, NULL},
    {"silence", ASH_OPT_DOUBLE, ROLLOUT(silence), "30",
     "rollout.mode=apart: seconds after which the prompts of a sampler that does not answer are drawn elsewhere", 0.1,
     86400, NULL},
    {"patience", ASH_OPT_DOUBLE, ROLLOUT(patience), "600",
     "rollout.mode=apart: seconds that the run waits where no sampler is left, before it ends", 1, 1e7, NULL},
    {"url", ASH_OPT_LIST, ROLLOUT(url), NULL,
     "servers of OpenAI's API with log-probabilities that sample, instead of this job: http://HOST:PORT", 0, 0, NULL},
    {"url_model", ASH_OPT_STRING, ROLLOUT(url_model), NULL,
     "rollout.url: the model that requests name; default: the first one that a server lists", 0, 0, NULL},
    {"url_requests", ASH_OPT_INT, ROLLOUT(url_requests), "32", "rollout.url: answers on their way at once, of a rank",
     1, 1024, NULL},
    {"url_timeout", ASH_OPT_DOUBLE, ROLLOUT(url_timeout), "600", "rollout.url: seconds for an answer", 0.1, 86400,
     NULL},
    {"url_tries", ASH_OPT_INT, ROLLOUT(url_tries), "5",
     "rollout.url: how often an answer is asked for, each time of the next server, before the run ends", 1, 1000, NULL},
    {"max_weight", ASH_OPT_DOUBLE, ROLLOUT(max_weight), "2",
     "rollout.url: importance weights of tokens, the trainer's probability by the server's, are cut at this; 0: all "
     "weights are 1",
     0, 1e6, NULL},
};
const struct ash_opt_table ash_job_rollout_table = {"rollout", "how answers are sampled (train.method=rl)",
                                                    rollout_opts, ASH_COUNT(rollout_opts)};
