/* job_post - the sections of a job file that belong to post-training: examples, pairs, rewards, answers, adapters. */
#ifndef ASH_TRAIN_JOB_POST_H
#define ASH_TRAIN_JOB_POST_H

#include <stdbool.h>
#include <stdint.h>
#include "base/opts.h"

/* The training method: train.method. */
enum ash_job_method {
    ASH_METHOD_PRETRAIN,
    ASH_METHOD_SFT,
    ASH_METHOD_DPO,
    ASH_METHOD_REWARD,
    ASH_METHOD_RL,
    ASH_METHOD_DISTILL
};
extern const char *const ash_job_method_names[];

/* Which tokens of an example are learned. */
enum ash_train_on { ASH_TRAIN_ON_ASSISTANT, ASH_TRAIN_ON_LAST, ASH_TRAIN_ON_ALL };

struct ash_job_sft {
    bool packing;
    int truncate; /* enum ash_truncate */
    int train_on; /* enum ash_train_on */
};

enum ash_dpo_loss {
    ASH_DPO_SIGMOID,
    ASH_DPO_ROBUST,
    ASH_DPO_HINGE,
    ASH_DPO_IPO,
    ASH_DPO_ORPO,
    ASH_DPO_SIMPO,
    ASH_DPO_SIGMOID_NORM,
    ASH_DPO_APO_ZERO,
    ASH_DPO_NCA,
    ASH_DPO_KTO,
};

struct ash_job_dpo {
    int loss; /* enum ash_dpo_loss */
    double beta, label_smoothing, gamma, sft_weight;
    double desirable_weight, undesirable_weight; /* of chosen and rejected answers (kto) */
    const char *reference;                       /* NULL: the model that training starts from */
};

struct ash_job_distill {
    const char *teacher; /* model folder */
    double beta, temperature, sft_weight;
};

struct ash_job_reward {
    double center;
};

struct ash_job_lora {
    int64_t rank; /* 0: all weights are trained */
    double alpha, dropout;
    struct ash_opt_list targets, modules_to_save, rank_pattern;
    bool rslora;
    int bias;            /* enum ash_lora_bias */
    const char *adapter; /* a PEFT folder to start from */
};

enum ash_rl_algorithm { ASH_RL_GRPO, ASH_RL_RLOO, ASH_RL_REINFORCE, ASH_RL_PPO, ASH_RL_DISTILL, ASH_RL_RAFT };
enum ash_rl_loss { ASH_RL_TOKEN_MEAN, ASH_RL_SEQ_MEAN_TOKEN_MEAN, ASH_RL_SEQ_MEAN_TOKEN_SUM_NORM };
enum ash_rl_policy_loss { ASH_RL_CLIP, ASH_RL_CISPO };
enum ash_rl_ratio { ASH_RL_RATIO_TOKEN, ASH_RL_RATIO_SEQUENCE };
enum ash_rl_estimator { ASH_RL_K1, ASH_RL_K2, ASH_RL_K3 };
enum ash_rl_kl_in { ASH_RL_KL_LOSS, ASH_RL_KL_REWARD };

/* Action when the policy has collapsed. */
enum ash_job_collapse { ASH_JOB_COLLAPSE_STOP, ASH_JOB_COLLAPSE_BACK };
#define ASH_JOB_BACKS_MAX 64

struct ash_job_rl {
    int algorithm; /* enum ash_rl_algorithm */
    const char *prompts;
    struct ash_opt_list rewards;
    int64_t prompts_per_step, samples;
    const char *environment;                  /* a program's command; NULL: none */
    int64_t turns;                            /* of the policy in one answer, at most */
    int policy_loss;                          /* enum ash_rl_policy_loss */
    double clip, clip_high, delta, dual_clip; /* but for clip, 0: none */
    int loss, ratio;                          /* enum ash_rl_loss, enum ash_rl_ratio */
    bool scale_rewards;
    double kl_coef;
    int kl_in, kl_estimator; /* enum ash_rl_kl_in, enum ash_rl_estimator */
    double entropy;
    int64_t epochs, minibatches;
    bool mask_truncated;
    int64_t overlong_buffer;    /* tokens before the limit that cost reward; 0: none */
    double overlong_penalty;    /* of an answer at the limit */
    int64_t sampling_rounds;    /* 1: a group whose rewards are all equal is kept */
    double min_entropy, max_kl; /* the guard's bounds; 0: none */
    double min_length, max_length;
    int on_collapse; /* enum ash_job_collapse */
    int64_t max_backs;
    const char *reference;
    const char *critic; /* ppo: where the critic starts; NULL: as the policy */
    double critic_lr;   /* 0: that of the policy */
    double gamma, lambda, value_clip;
};

/* Who samples: the processes that train, or others. */
enum ash_job_rollout_mode { ASH_ROLLOUT_TOGETHER, ASH_ROLLOUT_APART };

struct ash_job_rollout {
    double temperature;
    int64_t top_k; /* 0: all ids */
    double top_p;  /* 1: all ids */
    int64_t max_tokens, max_prompt_tokens, lag;
    int64_t chunk; /* tokens of an answer from one version of the weights; 0: all */
    int64_t eval_every, eval_count;
    bool keep_best;
    int mode;        /* enum ash_job_rollout_mode */
    int64_t procs;   /* apart: of the processes of the job, the samplers */
    double silence;  /* apart: seconds after which the prompts of a silent sampler are drawn elsewhere */
    double patience; /* apart: seconds without any sampler, after which the run ends */
    struct ash_opt_list url;
    const char *url_model; /* NULL: a server's first */
    int64_t url_requests, url_tries;
    double url_timeout, max_weight;
};

extern const struct ash_opt_table ash_job_sft_table, ash_job_dpo_table, ash_job_reward_table, ash_job_lora_table,
    ash_job_distill_table, ash_job_rl_table, ash_job_rollout_table;

#endif
