/* chunks - which weights draw which tokens. Versions are counted in rollouts here: version v has learned from v of
 * them. Without rollout.chunk all tokens of rollout n are version n - lag's. With it that version draws so many of an
 * answer, the next one as many more, and version n - 1 the rest: its answers are whole before step n. */
#ifndef ASH_POST_RL_CHUNKS_H
#define ASH_POST_RL_CHUNKS_H

#include "train/job/job.h"
#include "train/trainer.h"

struct ash_policy_run;
struct ash_rollout;

/* The first version that draws of a rollout. */
uint64_t ash_chunks_first(const struct ash_job *job, uint64_t number);
/* The last one. */
uint64_t ash_chunks_last(const struct ash_job *job, uint64_t number);
/* Tokens of an answer, at most, once a version and those before it have drawn. */
size_t ash_chunks_reach(const struct ash_job *job, uint64_t number, uint64_t version);
/* The version that draws a token. */
uint64_t ash_chunks_version(const struct ash_job *job, uint64_t number, size_t token);

/* Have all versions drawn that draw of a rollout? */
bool ash_chunks_is_whole(const struct ash_policy_run *rl, const struct ash_rollout *rollout);
/* Versions below this draw of a rollout while the run stands before `step`, or has prepared it where that is not the
 * first step of a rollout. */
uint64_t ash_chunks_due(const struct ash_policy_run *rl, uint64_t number, uint64_t step);
/* chunks_draw.c: a rollout without tokens, with its prompts. Returns 0 or an error. */
int ash_chunks_begin(struct ash_policy_run *rl, uint64_t number, struct ash_err *err);
/* Forget the tokens of version `drawn` and later ones. */
void ash_chunks_cut(const struct ash_policy_run *rl, struct ash_rollout *rollout, uint64_t drawn);
/* find.c: read a rollout as it is when versions below `drawn` have drawn of it. Returns 1, 0 where its record has less,
 * or an error. */
int ash_chunks_reread(struct ash_policy_run *rl, uint64_t number, uint64_t drawn, struct ash_err *err);
/* chunks_draw.c: with rollout.chunk, and samplers and trainer together: the tokens that the weights before `step` draw,
 * the first one of a rollout. Rollouts that are whole then are rewarded, judged and recorded. All ranks call it. */
int ash_chunks_draw(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err);

#endif
