/* rl_priv - a run of reinforcement learning: prompts, sampler, answers, and training on them. */
#ifndef ASH_POST_RL_RL_PRIV_H
#define ASH_POST_RL_RL_PRIV_H

#include <jansson.h>
#include <limits.h>
#include "post/rl/apart.h"
#include "post/rl/chunks.h"
#include "post/rl/external.h"
#include "post/rl/prompts.h"
#include "post/rl/rewards.h"
#include "post/rl/rl.h"
#include "model/pass/pass.h"
#include "post/reward/program.h"
#include "record/event_file.h"
#include "serve/engine/core.h"

/* The ids that the tokens of an answer were drawn from, where filters leave some alone. */
struct ash_kept_ids {
    int32_t *ids; /* [count], token by token, of each ascending */
    size_t count, room;
    size_t *ends; /* [max_tokens]: in ids, of each token; NULL: every token was drawn from all ids */
};

/* One answer of a batch. */
struct ash_answer_row {
    size_t prompt;  /* of the batch */
    int32_t *ids;   /* [max_tokens] */
    float *logps;   /* [max_tokens]: the sampler's; 0 where the environment spoke */
    float *sampled; /* [max_tokens]: a server's, where logps are the trainer's; NULL: there is none */
    uint8_t *given; /* [max_tokens]: 1 where the environment spoke; NULL: there is none */
    struct ash_kept_ids kept;
    double *reference;  /* [max_tokens]: of the frozen reference; NULL: none */
    float *values;      /* ppo, [max_tokens]: the critic's, when it was sampled; else NULL */
    double *returns;    /* ppo, [max_tokens]: what values should have been; else NULL */
    double *advantages; /* [max_tokens], of each token; NULL: advantage is that of all */
    size_t count;       /* tokens, with the end */
    bool has_ended;
    double reward, advantage; /* advantage: with advantages, their mean */
};

/* What one step (or several, with rl.shape.epochs and rl.shape.minibatches) learns from. */
struct ash_rollout {
    uint64_t number;                /* 0 is the first; UINT64_MAX: empty */
    uint64_t version;               /* steps that the weights had done when it was begun */
    uint64_t drawn;                 /* versions below this have drawn their tokens of it (chunks.h) */
    struct ash_prompt *prompts;     /* [prompts_per_step] */
    uint64_t *prompt_numbers;       /* [prompts_per_step]: which ones they are (prompts.h) */
    struct ash_answer_row *answers; /* [prompts_per_step * samples], prompt by prompt */
    size_t *bin_of;                 /* [answers] */
    size_t *row_of;                 /* [answers]: first row in its sequence */
    size_t *bin_counts;             /* [minibatches] */
    double *weight_tokens;          /* [minibatches]: all tokens of the answers that count */
    double mean_reward, mean_length, ended_share;
    double entropy;     /* mean of minus log-probabilities of all tokens: an estimate of it */
    double kl;          /* mean divergence of a token from the reference (k3); 0 without one */
    double age, oldest; /* steps from the weights that drew a token to those that it is first learned with */
    size_t same_groups; /* groups whose rewards are all equal: nothing is learned from them */
    size_t replaced;    /* groups that dynamic sampling replaced */
};

/* Tokens of a step: those whose ratio was out of bounds below, above; all that had a ratio; those whose log-probability
 * was the sampler's, to the bit. */
enum ash_rl_count { ASH_RL_CLIPPED_LOW, ASH_RL_CLIPPED_HIGH, ASH_RL_WEIGHED, ASH_RL_CHECKED, ASH_RL_COUNTS };

/* Sizes of a rollout, and what its answers have beside tokens. */
struct ash_rl_shape {
    size_t prompts, answers, max_tokens; /* answers: of all prompts; max_tokens: of one */
    size_t epochs, minibatches;
    bool has_kept;      /* filters leave some ids alone: rollout.top_k, rollout.top_p */
    bool has_reference; /* log-probabilities of the reference are wanted */
    bool has_critic;
    bool has_teacher;          /* the reference is one: it says what tokens are worth */
    bool has_token_advantages; /* each token has its own */
};

/* Text and tokens of the policy. */
struct ash_rl_text {
    struct ash_tokenizer *tokenizer;
    struct ash_chat_template *template; /* NULL: the model has none */
    int32_t eos[16];
    size_t eos_count;
};

/* The engine loop on the policy's weights. */
struct ash_rl_sampler {
    struct ash_core *core;         /* NULL: not open yet in this epoch */
    struct ash_model *copy;        /* the whole policy, where ranks share the trainer's model; NULL: none */
    const struct ash_model *model; /* of core: copy, or the trainer's; of the epoch */
};

/* A frozen model whose log-probabilities the policy is compared with. */
struct ash_rl_reference {
    struct ash_model *model; /* NULL: not open, or none is wanted */
    struct ash_pass *pass;
};

/* PPO's second trained model. */
struct ash_rl_critic {
    struct ash_job job;
    struct ash_trainer *trainer; /* NULL: not open in this epoch */
    struct ash_train_source source;
    struct ash_objective objective;
    uint64_t valued_step; /* the first step that trains on the minibatch whose values are computed */
    double value_loss;    /* of the last step */
};

/* The first rank's files of curves; NULL: not open yet, or not wanted. */
struct ash_rl_curves {
    FILE *file; /* curves.jsonl */
    struct ash_event_file *events;
    uint64_t next_step; /* the step of the last line, plus 1 */
};

/* Where the run went back after a collapse. */
struct ash_rl_rollbacks {
    uint64_t first[ASH_JOB_BACKS_MAX]; /* [count]: the first rollout of each rollback */
    size_t count, tries;               /* tries: also those that came to nothing */
    uint64_t collapsed_step;           /* the step that the guard has refused to make; 0: none */
};

/* The highest mean reward of an evaluation. */
struct ash_rl_best {
    bool is_known;
    double eval; /* is_known */
};

/* Seconds of the run by part. */
enum ash_rl_part { ASH_RL_SAMPLING, ASH_RL_REWARDING, ASH_RL_HANDOVER, ASH_RL_PARTS };

struct ash_policy_run {
    const struct ash_job *job;
    struct ash_group *group; /* of the mesh that runs; NULL: alone */
    const char *dir;
    FILE *screen;
    struct ash_exec *exec;       /* the trainer's */
    const struct ash_lora *lora; /* likewise; NULL: all weights are trained */
    struct ash_rl_shape shape;
    struct ash_rl_text text;
    struct ash_prompt_list *prompts;
    struct ash_rewards *rewards;
    struct ash_program *environment; /* NULL: not started yet, or there is none */
    struct ash_rollout *rollouts;    /* [lag + 1]: number n in n % (lag + 1) */
    size_t rollout_count;
    struct ash_rl_sampler sampler;
    struct ash_rl_reference reference;
    struct ash_rl_critic critic;
    struct ash_rl_curves curves;
    struct ash_rl_rollbacks rollbacks;
    struct ash_rl_best best;
    struct ash_external *external; /* servers sample; NULL: none do */
    struct ash_apart *apart;       /* samplers are other processes; NULL: these sample */
    uint64_t checked;              /* tokens of all ranks whose log-probability was the sampler's, to the bit */
    double counts[ASH_RL_COUNTS];  /* of the step */
    double seconds[ASH_RL_PARTS];
    struct ash_train_source source;
    struct ash_objective objective;
};

/* rollout.c: sample the answers of rollout `number` with the trainer's weights, or have other processes sample them
 * (trainer is not needed then), and reward them. With rollout.chunk they are drawn already. */
int ash_rl_sample(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t number, uint64_t version,
                  struct ash_err *err);
/* sampled.c: the model that samples: the trainer's, or where ranks share that, a whole copy with the values of now. All
 * ranks call it. */
int ash_rl_find_sampled(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_model **model_out,
                        struct ash_err *err);
/* draws.c: prompts for the groups that are open (NULL: all). Each rollout has prompts for all of its rounds, whether it
 * needs them or not: which ones they are does not depend on what other rollouts found. */
int ash_rl_get_prompts(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                       struct ash_err *err);
/* draws.c: the draws of answer a: a function of its indices, and of the position by the sampler itself. */
struct ash_sampler_opts ash_rl_sampler_of(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                                          size_t round, size_t a);
/* make.c: sample rollout `number`, judge it and write its record. trainer: as for ash_rl_sample. All ranks call it. */
int ash_rl_make_rollout(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t number, uint64_t version,
                        struct ash_err *err);
/* One answer on its way. */
struct ash_asked {
    struct ash_request request;
    struct ash_answer_row *row;
    const struct ash_policy_run *rl;
    int32_t *ids; /* prompt and answer so far */
    int rc;
};
/* rollout.c: the core on the present weights, opened on first use. All ranks call it. */
int ash_rl_open_core(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_err *err);
/* rollout.c: submit a prompt, whose answer is appended to row. The caller closes it; NULL: out of memory. */
struct ash_asked *ash_rl_ask(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row,
                             const struct ash_sampler_opts *sampler, uint64_t salt);
/* rollout.c: free a request; NULL is a no-op. */
void ash_rl_unask(struct ash_asked *asked);
/* rollout.c: run submitted requests to their ends. */
int ash_rl_answer_all(struct ash_policy_run *rl, struct ash_asked **asked, size_t count, struct ash_err *err);
/* rollout.c: the reward of an answer, into row->reward. */
int ash_rl_reward(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row,
                  struct ash_err *err);
/* share.c: give all ranks all answers. is_own [answers]: this rank's, which no other's are. All ranks call it. */
int ash_rl_share(struct ash_group *group, const struct ash_rl_shape *shape, struct ash_rollout *rollout,
                 const bool *is_own, struct ash_err *err);
/* judge.c: are the rewards of a prompt's group all equal? */
bool ash_rl_is_same_group(const struct ash_rl_shape *shape, const struct ash_rollout *rollout, size_t prompt);
/* evaluate.c: greedy answers to count held-out prompts; *share_out: the mean reward. */
int ash_rl_evaluate(struct ash_policy_run *rl, struct ash_trainer *trainer, size_t count, double *share_out,
                    struct ash_err *err);
/* record.c: where rollout `number` is recorded; is_part: as long as it is not whole. Returns 0 or -ENAMETOOLONG. */
int ash_rl_record_path(const struct ash_policy_run *rl, uint64_t number, bool is_part, char path[PATH_MAX]);
/* unused.c: answers that later steps learn from, for ash_trainer_parts. */
int ash_rl_hash_unused(void *ctx, struct ash_group *group, uint64_t step, uint64_t *hash, struct ash_err *err);
/* unused.c: likewise. */
json_t *ash_rl_save_unused(void *ctx, uint64_t step);
/* unused.c: likewise: records that are gone are written again. */
int ash_rl_load_unused(void *ctx, const json_t *kept, struct ash_err *err);
/* record.c: an answer as a line of its record has it. The caller owns it; NULL: out of memory. */
json_t *ash_rl_row_json(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                        const struct ash_answer_row *row);
/* report.c: for ash_trainer_parts. */
json_t *ash_rl_report(void *ctx);
/* record.c: write rollouts/step-N.jsonl, or step-N.part.jsonl of one that is not whole. A failure is a warning. */
void ash_rl_record(const struct ash_policy_run *rl, const struct ash_rollout *rollout);
/* record.c: load one of both; returns 1, or 0 if there is none of that number. */
int ash_rl_reread(struct ash_policy_run *rl, uint64_t number, bool is_part, struct ash_rollout *rollout,
                  struct ash_err *err);
/* record.c: take the rewards of a rollout that was rewarded before, by a run that ended before it had trained on it, so
 * that no reward is computed twice. Only if every answer is the same, and nothing was sampled again (round 0 of one).
 * Returns whether it did. */
bool ash_rl_recall(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round);

/* ---- answer.c ---------------------------------------------------------------------------------------------------- */

/* No tokens yet. */
void ash_rl_clear(struct ash_answer_row *row);
/* Did the environment write this token? */
bool ash_rl_is_given(const struct ash_answer_row *row, size_t token);
/* Tokens of an answer that the policy wrote. */
size_t ash_rl_own_count(const struct ash_answer_row *row);
/* Does an answer count? */
bool ash_rl_counts(const struct ash_policy_run *rl, const struct ash_answer_row *row);
/* Append an answer's text from token `first` on, without its end. Ids that no token has (a padded
 * vocabulary) are nothing. */
int ash_rl_decode(const struct ash_policy_run *rl, const struct ash_answer_row *row, size_t first, struct ash_str *text,
                  struct ash_err *err);

/* ---- frozen.c: without a reference they do nothing --------------------------------------------------------------- */

/* Log-probabilities of a rollout's tokens, into row->reference; ranks share the answers. All ranks call it. */
int ash_rl_run_reference(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err);
/* Log-probabilities of an answer's tokens by the model of a pass, into logps [max_tokens]. */
int ash_rl_weigh_row(const struct ash_policy_run *rl, struct ash_pass *pass, const struct ash_rollout *rollout,
                     const struct ash_answer_row *row, double *logps, struct ash_err *err);
/* With the epoch of the policy's ranks. */
void ash_rl_close_reference(struct ash_policy_run *rl);

/* ---- kept.c: with has_kept only ---------------------------------------------------------------------------------- */

/* Forget the ids of an answer. */
void ash_rl_kept_clear(struct ash_answer_row *row);
/* What token number `token`, the next one, was drawn from. Returns 0 or -ENOMEM. */
int ash_rl_kept_add(struct ash_answer_row *row, size_t token, const int32_t *ids, size_t count);
/* The same again; borrowed from the answer. Nothing (all ids) without has_kept. */
struct ash_kept ash_rl_kept_get(const struct ash_answer_row *row, size_t token);
/* Give all ranks those of all answers, after their tokens. is_own [answers]: this rank's, which no other's are. All
 * ranks call it; nothing happens without has_kept. */
int ash_rl_kept_share(struct ash_group *group, const struct ash_rl_shape *shape, struct ash_rollout *rollout,
                      const bool *is_own, struct ash_err *err);
/* For a record: a list for each token. The caller owns it. */
json_t *ash_rl_kept_json(const struct ash_answer_row *row);
/* From a record, after the answer's ids. Returns 0, -EBADMSG or -ENOMEM. */
int ash_rl_kept_read(const json_t *all, struct ash_answer_row *row);

/* ---- turns.c ----------------------------------------------------------------------------------------------------- */

/* Has the environment had the last word, so that the policy continues? */
bool ash_rl_goes_on(const struct ash_answer_row *row);
/* The first token of the policy's last turn. */
size_t ash_rl_last_turn(const struct ash_answer_row *row);
/* Get the environment's reply to turn number `turn` of an answer that has ended; it continues if that is not empty. */
int ash_rl_hear(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row, size_t turn,
                struct ash_err *err);
/* For a record, with an environment only: a 0 or 1 for each token. The caller owns it. */
json_t *ash_rl_given_json(const struct ash_answer_row *row);
/* From a record, after the answer's ids. Returns 0 or -EBADMSG. */
int ash_rl_given_read(const json_t *list, struct ash_answer_row *row);

/* ---- learning ---------------------------------------------------------------------------------------------------- */

/* learn.c: where the answers of a rollout lie in sequences. */
int ash_rl_arrange(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err);
/* judge.c: its advantages and statistics. */
int ash_rl_judge(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err);
/* learn.c: the sequence of a slot of a step: grains get sequences in turn. */
size_t ash_rl_bin_of_slot(const struct ash_policy_run *rl, uint64_t slot);
/* learn.c: sequence `bin` of a step's training data; no documents if there is none. */
void ash_rl_read_bin(struct ash_policy_run *rl, uint64_t step, size_t bin, struct ash_sample *sample);
/* find.c: read a rollout that was recorded, and judge and arrange it again, if versions below `drawn` are all that draw
 * of it. All ranks call it. */
int ash_rl_find_rollout(struct ash_policy_run *rl, uint64_t number, uint64_t drawn, struct ash_err *err);

/* ---- critic.c: all of them do nothing without one ---------------------------------------------------------------- */

/* The critic's job and parts. After ash_rl_set_parts. */
void ash_critic_init(struct ash_policy_run *rl);
/* Before a step of the policy: bring the critic to that step, by training or loading. All ranks call it. */
int ash_critic_settle(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err);
/* The values of a rollout's tokens. All ranks call it. */
int ash_critic_values(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err);
/* After the policy's step number `step`: the critic's. All ranks call it. */
int ash_critic_learn(struct ash_policy_run *rl, uint64_t step, struct ash_err *err);
/* First rank: drop its checkpoints after step: the run has gone back to it. */
void ash_critic_forget(const struct ash_policy_run *rl, uint64_t step);
/* With the epoch of the policy's ranks. */
void ash_critic_close(struct ash_policy_run *rl);

/* The rollout that a step learns from. */
struct ash_rollout *ash_rl_rollout_of(struct ash_policy_run *rl, uint64_t step);
/* Steps that learn from one rollout. */
uint64_t ash_rl_steps_per_rollout(const struct ash_rl_shape *shape);
/* curves.c: one line of curves.jsonl for a step that was counted. eval: mean reward of the evaluation, NaN for none.
 * The first rank writes; a full disk is a warning. */
void ash_rl_add_curves(struct ash_policy_run *rl, uint64_t step, double eval);
/* The next line opens them again, and drops those of its step and later ones. */
void ash_rl_close_curves(struct ash_policy_run *rl);
/* Before the step after `step`: if a rank was lost after that one had been made, and with it its line, write the
 * remaining figures. */
void ash_rl_mend_curves(struct ash_policy_run *rl, uint64_t step);
/* guard.c: has the policy collapsed, by the bounds of the job? Returns 0, or -ECANCELED with the bound, the value and
 * the settings to change in err; or -ENOTRECOVERABLE if the run shall roll back (rl.on_collapse). */
int ash_rl_guard(struct ash_policy_run *rl, const struct ash_rollout *rollout, struct ash_err *err);

/* ---- back.c ------------------------------------------------------------------------------------------------------ */

/* Read backs.jsonl, if it is there. */
int ash_rl_read_backs(struct ash_policy_run *rl, struct ash_err *err);
/* The number of rollbacks of a rollout: an input of its draws. */
uint64_t ash_rl_draws(const struct ash_rl_rollbacks *rollbacks, uint64_t number);
/* Before a step: if the run has rolled back to it, have other answers drawn from here on. All ranks call it. */
void ash_rl_take_back(struct ash_policy_run *rl, uint64_t step);

/* best.c: keep the sampled model where this evaluation is the best so far. The first rank writes; a failure is a
 * warning. */
void ash_rl_keep_best(struct ash_policy_run *rl, const struct ash_trainer *trainer, uint64_t step, double eval);
/* learn.c: the source and the objective. */
void ash_rl_set_parts(struct ash_policy_run *rl);

#endif
