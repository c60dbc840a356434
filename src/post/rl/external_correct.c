/* external: the trainer's log-probabilities of tokens that servers drew. Its weights are those that learn next, so the
 * ratio of the first step is exactly 1, and the importance weight has the whole difference between the two models. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "post/rl/external_priv.h"
#include "post/rl/rl_priv.h"

static int open_pass(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_external *external = rl->external;
    struct ash_pass_opts opts = {.max_rows =
                                     (size_t)(rl->job->rollout.max_prompt_tokens + rl->job->rollout.max_tokens)};
    int rc = ash_rl_find_sampled(rl, trainer, &external->weighed, err);

    if (rc < 0 || external->pass != NULL) return rc;
    return ash_pass_open(external->weighed, rl->exec, &opts, &external->pass, err);
}

void ash_external_end(struct ash_external *external)
{
    if (external == NULL) return;
    ash_pass_close(external->pass);
    external->pass = NULL;
}

/* This rank's answers; those of others are zeros. */
static int weigh_own(struct ash_policy_run *rl, const struct ash_rollout *rollout, const bool *is_open, double *logps,
                     struct ash_err *err)
{
    size_t rank = ash_group_rank(rl->group), size = ash_group_size(rl->group), width = rl->shape.max_tokens;
    int rc = 0;

    for (size_t a = rank; rc == 0 && a < rl->shape.answers; a += size)
        if (rollout->answers[a].count > 0 && is_open[rollout->answers[a].prompt])
            rc = ash_rl_weigh_row(rl, rl->external->pass, rollout, &rollout->answers[a], logps + a * width, err);
    return rc;
}

int ash_external_correct(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_rollout *rollout,
                         const bool *is_open, struct ash_err *err)
{
    size_t width = rl->shape.max_tokens, count = rl->shape.answers * width;
    double *logps = calloc(count, sizeof(*logps));
    int rc = logps == NULL ? ash_err_set(err, -ENOMEM, "out of memory for log-probabilities") : 0;

    if (rc == 0) rc = open_pass(rl, trainer, err);
    if (rc == 0) rc = weigh_own(rl, rollout, is_open, logps, err);
    if (rc == 0) rc = ash_group_all_reduce(rl->group, logps, logps, count, ASH_COLL_F64, ASH_COLL_SUM, err);
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        for (size_t t = 0; is_open[row->prompt] && t < row->count; t++) {
            if (ash_rl_is_given(row, t)) continue;
            row->sampled[t] = row->logps[t];
            row->logps[t] = (float)logps[a * width + t];
        }
    }
    free(logps);
    return rc;
}

double ash_external_weight(const struct ash_policy_run *rl, const struct ash_answer_row *row, size_t token)
{
    double most = rl->job->rollout.max_weight;

    if (row->sampled == NULL || most == 0 || isnan(row->sampled[token])) return 1.0;
    return fmin(most, exp((double)row->logps[token] - (double)row->sampled[token]));
}

struct ash_mismatch ash_external_mismatch(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    struct ash_mismatch mismatch = {0};
    double most = rl->job->rollout.max_weight;

    for (size_t a = 0; a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        for (size_t t = 0; row->sampled != NULL && t < row->count; t++) {
            double apart = (double)row->logps[t] - (double)row->sampled[t];

            if (ash_rl_is_given(row, t) || isnan(apart)) continue;
            mismatch.tokens += 1.0;
            mismatch.kl += exp(apart) - 1.0 - apart;
            mismatch.max_ratio = fmax(mismatch.max_ratio, exp(apart));
            mismatch.cut += most > 0 && exp(apart) > most;
        }
    }
    if (mismatch.tokens > 0) mismatch.kl /= mismatch.tokens;
    if (mismatch.tokens > 0) mismatch.cut /= mismatch.tokens;
    return mismatch;
}
