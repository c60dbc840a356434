/* job - everything that decides what a training run does: one settings table per section of a job file.
 * Settings that change bits (model, data, seed, batch, grains, precision, optimizer, schedule, guard, length) are kept
 * apart from those that do not (micro-batch, recomputation, mesh, threads, how often to log and to save). */
#ifndef ASH_TRAIN_JOB_H
#define ASH_TRAIN_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "base/log.h"
#include "base/opts.h"
#include "compute/backends/backends.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "train/data/arithmetic.h"
#include "train/job/job_post.h"
#include "train/state/guard.h"
#include "train/state/optimizer.h"
#include "train/state/schedule.h"

enum ash_job_precision { ASH_JOB_FP32, ASH_JOB_BF16, ASH_JOB_FP8 };
enum ash_job_shuffle { ASH_JOB_SHUFFLE_FULL, ASH_JOB_SHUFFLE_BLOCK };

enum ash_job_quant { ASH_JOB_QUANT_NONE, ASH_JOB_QUANT_Q8, ASH_JOB_QUANT_Q4, ASH_JOB_QUANT_Q8W };

struct ash_job_model {
    const char *from; /* a Hugging Face folder to start from; NULL: the architecture below with new weights */
    int type;         /* index into ash_job_model_types */
    int quant;        /* enum ash_job_quant: with adapters, the base's format */
    int64_t vocab, hidden, layers, heads, kv_heads, head_dim, ffn, max_positions;
    int64_t experts, experts_per_token, expert_ffn;
    bool tied;
    double rope_theta, norm_eps, init_std;
};

struct ash_job_data {
    const char *train, *valid, *tokenizer;
    int64_t seq_tokens;
    int shuffle; /* enum ash_job_shuffle */
    int64_t block_tokens, mixed_blocks;
};

struct ash_job_train {
    int method; /* enum ash_job_method */
    int64_t steps, tokens;
    int64_t global_batch, grains, micro_batch; /* sequences, count, sequences */
    int precision;                             /* enum ash_job_precision */
    int recompute;                             /* enum ash_recompute */
    int64_t seed;
    int64_t valid_every, valid_batches, save_every, keep, save_wait, hash_every;
    const char *trace; /* "100-105": steps whose trace is left in the run's folder; NULL: none */
};

struct ash_job_save {
    struct ash_opt_list to;   /* places: folders and s3://...; none: the run's folder */
    struct ash_opt_list keep; /* of each place: newest checkpoints that are kept; missing: train.keep */
    int64_t memory_bytes;     /* of a process, for copies of data being written */
};

struct ash_job_log {
    const char *tensorboard; /* a folder for TensorBoard's events; NULL: none */
    double price;            /* dollars an hour of a process; 0: not known */
};

struct ash_job_mesh {
    int64_t dp, fsdp, tp, pp, cp, ep; /* sizes of the axes; dp 0: the remaining ranks */
    int64_t zero;                     /* 1, 2 or 3: what fsdp shards */
    int64_t interleave;               /* chunks of layers per stage */
};

struct ash_job_recover {
    int64_t copies;      /* of every part of the state, in other failure domains */
    int64_t check_every; /* steps between comparisons of copies with their owners; 0: never */
    int64_t audit_every; /* steps between those in which ranks repeat each other's grains; 0: never */
    int64_t min_ranks;   /* fewer end the run */
    int64_t spares;      /* ranks beyond the mesh at the start */
    bool replace_slow;   /* a rank that stays slow gives its place to a spare */
};

struct ash_job_schedule {
    int kind; /* enum ash_lr_schedule_kind */
    int64_t warmup, decay_steps;
    double decay_share, final_share;
};

struct ash_job_guard {
    int nan; /* enum ash_guard_nan */
    double spike_norm, spike_loss;
    int64_t warmup, max_skips;
};

struct ash_job_runtime {
    int64_t threads;
    const char *backend;
    int pin;       /* enum ash_pin */
    int log_level; /* enum ash_log_level */
    int64_t ranks_per_gpu;
};

struct ash_job {
    struct ash_job_model model;
    struct ash_job_data data;
    struct ash_job_train train;
    struct ash_job_save save;
    struct ash_job_log log;
    struct ash_job_mesh mesh;
    struct ash_job_recover recover;
    struct ash_optimizer_opts optimizer;
    struct ash_job_schedule schedule;
    struct ash_job_guard guard;
    struct ash_job_runtime runtime;
    struct ash_job_sft sft;
    struct ash_job_lora lora;
    struct ash_job_dpo dpo;
    struct ash_job_reward reward;
    struct ash_job_distill distill;
    struct ash_job_rl rl;
    struct ash_job_rollout rollout;
    struct ash_arithmetic_opts arithmetic; /* prompts of rl.prompts=arithmetic */
};

#define ASH_JOB_SECTIONS 19

/* One binding per section, bound to the parts of job: for ash_opts_open. */
void ash_job_bind(struct ash_job *job, struct ash_opt_binding bindings[ASH_JOB_SECTIONS]);
/* Checks between table rows (divisibility, required paths), and numbers for settings of "choose": train.steps, grains,
 * micro_batch, schedule.warmup, decay_steps. Returns 0 or -EINVAL naming the settings. */
int ash_job_resolve(struct ash_job *job, struct ash_err *err);

/* Settings of a new model, other than the defaults, that have no effect because of model.from: "model.layers=3, ...",
 * or "" if there are none. Returns buf. */
const char *ash_job_unused(const struct ash_job *job, char *buf, size_t buf_bytes);

/* The job as a YAML job file with every setting; the caller frees *yaml_out. Returns 0 or -ENOMEM. */
int ash_job_print(const struct ash_job *job, char **yaml_out, struct ash_err *err);
/* A resolved job from YAML text. Its strings live as long as *opts_out, which the caller closes. On error job_out is
 * undefined. */
int ash_job_parse(const char *yaml, size_t size_bytes, const char *name, struct ash_job *job_out,
                  struct ash_opts **opts_out, struct ash_err *err);

/* A config.json for model.type with the job's sizes; vocab and eos (-1: none) come from the tokenizer and data. The
 * caller owns *json_out. */
int ash_job_config(const struct ash_job_model *model, size_t vocab, int32_t eos, json_t **json_out,
                   struct ash_err *err);

/* The learning rate over time, of a resolved job. */
struct ash_lr_schedule ash_job_get_schedule(const struct ash_job *job);
/* The device of a process alone: runtime.backend, or a GPU if there is one and the job can use it. cpu_reason: why the
 * default must be the CPU; NULL: it need not. */
void ash_job_choose_backend(const struct ash_job *job, const char *cpu_reason, struct ash_backend_choice *choice_out);
/* Its guard. */
struct ash_guard_opts ash_job_get_guard(const struct ash_job *job);
/* Its passes: rows, backward, recomputation. */
struct ash_pass_opts ash_job_get_pass_opts(const struct ash_job *job);

/* Compare a job with the one that a checkpoint was made by (both resolved). Returns 0, or -EINVAL naming the first
 * setting that would change bits, with both values. Paths are not compared: the data's hash is, elsewhere. */
int ash_job_compare(const struct ash_job *before, const struct ash_job *now, struct ash_err *err);

extern const char *const ash_job_model_types[];

#endif
