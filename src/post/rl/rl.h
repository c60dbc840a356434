/* rl - reinforcement learning from answers that the trained model samples itself, in the trainer's process: the
 * sampler's log-probabilities are the trainer's, to the bit. */
#ifndef ASH_POST_RL_RL_H
#define ASH_POST_RL_RL_H

#include <stdio.h>
#include "train/job/job.h"
#include "train/trainer.h"

struct ash_policy_run;

/* Prompts, rewards, tokenizer and reference of a job. Borrows job, group and dir until close. Returns 0 or an error
 * with a sentence. */
int ash_rl_open(const struct ash_job *job, struct ash_group *group, const char *dir, FILE *screen,
                struct ash_policy_run **rl_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_rl_close(struct ash_policy_run *rl);
/* Parts of a trainer; borrowed until close. */
struct ash_trainer_parts ash_rl_parts(struct ash_policy_run *rl);

/* A process that samples for a run (rollout.mode=apart). */
struct ash_worker_opts {
    size_t here;               /* processes of the job on this machine, which share its cores */
    const char *job_dir;       /* the job's folder (collective/member/membership.h); NULL: it has none */
    void (*placed)(void *ctx); /* called when the run has taken it; NULL: nothing to do */
    void *ctx;
};
struct ash_lora;
/* Sample for the run in rl's folder until it is over. lora: its adapters; NULL: it trains all weights. Returns 0,
 * -EBADE (it does not fit the run), -ENOTCONN (no rank that trains answers) or another error with a sentence. */
int ash_rl_work(struct ash_policy_run *rl, const struct ash_lora *lora, const struct ash_worker_opts *opts,
                struct ash_err *err);

#endif
