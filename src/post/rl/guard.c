/* guard: has the policy collapsed? A rollout is judged before anything is learned from it. */
#include <errno.h>

#include "post/rl/rl_priv.h"

static int stop(const struct ash_rollout *rollout, const char *what, double value, const char *setting, double bound,
                struct ash_err *err)
{
    return ash_err_set(err, -ECANCELED,
                       "the policy collapses: %s of rollout %llu is %.4g, and %s=%.4g. The last checkpoint is from "
                       "before; continue from it with a smaller optimizer.lr, a larger rl.kl_coef or rl.entropy, or "
                       "another bound",
                       what, (unsigned long long)rollout->number, value, setting, bound);
}

int ash_rl_guard(const struct ash_policy_run *rl, const struct ash_rollout *rollout, struct ash_err *err)
{
    const struct ash_job_rl *opts = &rl->job->rl;

    if (opts->min_entropy > 0 && rollout->entropy < opts->min_entropy)
        return stop(rollout, "the entropy", rollout->entropy, "rl.min_entropy", opts->min_entropy, err);
    if (opts->max_kl > 0 && rollout->kl > opts->max_kl)
        return stop(rollout, "the divergence from the reference", rollout->kl, "rl.max_kl", opts->max_kl, err);
    if (opts->min_length > 0 && rollout->mean_length < opts->min_length)
        return stop(rollout, "the mean length", rollout->mean_length, "rl.min_length", opts->min_length, err);
    if (opts->max_length > 0 && rollout->mean_length > opts->max_length)
        return stop(rollout, "the mean length", rollout->mean_length, "rl.max_length", opts->max_length, err);
    return 0;
}
