/* rl_samplers - which processes of `ashlar rl` train, and which sample (rollout.mode=apart). */
#ifndef ASH_CMD_RL_SAMPLERS_H
#define ASH_CMD_RL_SAMPLERS_H

#include "collective/member/launch_env.h"
#include "train/job/job.h"

/* What this process does in a job: with rollout.mode=apart the last rollout.procs of all processes sample, and env is
 * then that of the others. A process that was started alone starts all of them, and does not return. *samples: does it
 * sample (in: it was told to)? job gets this process's share of threads. Returns 0 or an error with a sentence. */
int ash_cmd_rl_part(struct ash_job *job, int argc, char **argv, struct ash_launch_env *env, bool *samples,
                    struct ash_err *err);
/* Sample for the run in out. Returns the exit code. */
int ash_cmd_rl_sample(const struct ash_job *job, const char *out, const struct ash_launch_env *env,
                      const char *job_dir);
/* Mark in a file, for the supervisor, that this process is a rank now (orchestrate/node/supervisor.h). job_dir NULL:
 * nothing to do. */
void ash_cmd_mark_placed(const char *job_dir);

#endif
