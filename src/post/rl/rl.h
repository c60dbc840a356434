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

#endif
