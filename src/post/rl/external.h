/* external - answers of servers with OpenAI's API (rollout.url). A server's log-probabilities are not the trainer's: it
 * computes its own of the same tokens, which ratios compare with, and an importance weight corrects for the
 * difference. */
#ifndef ASH_POST_RL_EXTERNAL_H
#define ASH_POST_RL_EXTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_answer_row;
struct ash_external;
struct ash_policy_run;
struct ash_rollout;
struct ash_trainer;

/* How far servers and trainer are apart in a rollout, over the tokens that a server has weighed. */
struct ash_mismatch {
    double tokens, kl; /* kl: mean divergence of a token from the server's model to the trainer's (k3) */
    double max_ratio;  /* the largest probability of the trainer by the server's */
    double cut;        /* the share of weights that were cut */
};

/* What comes from a server for one request. */
struct ash_external_answer {
    int32_t *ids; /* [room], the caller's */
    float *logps; /* [room], likewise; NaN: the server says nothing of this token */
    size_t room, count;
    bool has_ended;
    int64_t end_id; /* the id at which it stopped, where the server says so; else -1 */
};

/* NULL in *external_out if the job names no servers. Borrows rl until close. Returns 0 or an error. */
int ash_external_open(struct ash_policy_run *rl, struct ash_external **external_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_external_close(struct ash_external *external);
/* The answers that are this rank's, from servers. Blocks; other ranks have theirs. Returns 0 or an error. */
int ash_external_sample(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                        const bool *is_own, struct ash_err *err);

/* external_correct.c: the trainer's log-probabilities of the tokens of open groups, in the place of the servers',
 * which rows keep as `sampled`. All ranks call it. */
int ash_external_correct(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_rollout *rollout,
                         const bool *is_open, struct ash_err *err);
/* external_correct.c: the importance weight of a token; 1 without servers. */
double ash_external_weight(const struct ash_policy_run *rl, const struct ash_answer_row *row, size_t token);
/* external_correct.c: over all answers of a rollout. */
struct ash_mismatch ash_external_mismatch(const struct ash_policy_run *rl, const struct ash_rollout *rollout);
/* external_correct.c: with the epoch of the policy's ranks. */
void ash_external_end(struct ash_external *external);

/* external_parse.c: read the answer of POST /v1/completions, of one choice: vLLM's token_ids, "token_id:N" in the place
 * of tokens, or llama.cpp's content. Returns 0 or -EBADMSG with a sentence. */
int ash_external_parse(const char *text, size_t size_bytes, struct ash_external_answer *answer, struct ash_err *err);

#endif
