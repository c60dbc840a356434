/* post - the replacement of data.train in a post-training job: examples, pairs or answers as a source, and the
 * objective on them. Lives around a run (train/run/run.h). */
#ifndef ASH_POST_POST_H
#define ASH_POST_POST_H

#include <stdio.h>
#include "train/job/job.h"
#include "train/trainer.h"

struct ash_post;
struct ash_worker_opts; /* post/rl/rl.h */

/* Open the parts of job->train.method; nothing for pretrain. Borrows job and group until close. dir: the run's folder,
 * for files next to its log. screen (may be NULL): for messages before the first step. All ranks call it. Returns 0 or
 * an error with a sentence; the caller closes *post_out after the run. */
int ash_post_open(const struct ash_job *job, struct ash_group *group, const char *dir, FILE *screen,
                  struct ash_post **post_out, struct ash_err *err);
/* Be a sampler of the job's run (train.method=rl) until that is over: ash_rl_work. */
int ash_post_sample(struct ash_post *post, const struct ash_worker_opts *opts, struct ash_err *err);
/* NULL is a no-op. */
void ash_post_close(struct ash_post *post);
/* For ash_run_opts.parts: NULL for pretrain. Borrowed until close. */
const struct ash_trainer_parts *ash_post_parts(const struct ash_post *post);

#endif
