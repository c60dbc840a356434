/* guard: has the policy collapsed? A rollout is judged before anything is learned from it. */
#include <errno.h>

#include "base/math.h"
#include "post/rl/rl_priv.h"

/* Nothing is before the first step. */
static bool goes_back(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    return rl->job->rl.on_collapse == ASH_JOB_COLLAPSE_BACK && rollout->version > 0 &&
           ash_max(rl->rollbacks.tries, rl->rollbacks.count) < (size_t)rl->job->rl.max_backs;
}

/* A figure of a rollout that is past its bound. */
struct excess {
    const char *what;
    double value;
    const char *setting;
    double bound;
};

static int stop(struct ash_policy_run *rl, const struct ash_rollout *rollout, struct excess excess, struct ash_err *err)
{
    if (goes_back(rl, rollout)) {
        rl->rollbacks.tries = ash_max(rl->rollbacks.tries, rl->rollbacks.count) + 1;
        rl->rollbacks.collapsed_step = rollout->version;
        return ash_err_set(err, -ENOTRECOVERABLE,
                           "the policy collapses: %s of rollout %llu is %.4g, and %s=%.4g (time %zu of rl.max_backs)",
                           excess.what, (unsigned long long)rollout->number, excess.value, excess.setting, excess.bound,
                           rl->rollbacks.tries);
    }
    return ash_err_set(err, -ECANCELED,
                       "the policy collapses: %s of rollout %llu is %.4g, and %s=%.4g. The last checkpoint is from "
                       "before; continue from it with a smaller optimizer.lr, a larger rl.kl_coef or rl.entropy, or "
                       "another bound",
                       excess.what, (unsigned long long)rollout->number, excess.value, excess.setting, excess.bound);
}

int ash_rl_guard(struct ash_policy_run *rl, const struct ash_rollout *rollout, struct ash_err *err)
{
    const struct ash_job_rl *opts = &rl->job->rl;
    double length = rollout->mean_length;
    struct excess excess = {0};

    if (opts->min_entropy > 0 && rollout->entropy < opts->min_entropy)
        excess = (struct excess){"the entropy", rollout->entropy, "rl.min_entropy", opts->min_entropy};
    else if (opts->max_kl > 0 && rollout->kl > opts->max_kl)
        excess = (struct excess){"the divergence from the reference", rollout->kl, "rl.max_kl", opts->max_kl};
    else if (opts->min_length > 0 && length < opts->min_length)
        excess = (struct excess){"the mean length", length, "rl.min_length", opts->min_length};
    else if (opts->max_length > 0 && length > opts->max_length)
        excess = (struct excess){"the mean length", length, "rl.max_length", opts->max_length};
    return excess.what != NULL ? stop(rl, rollout, excess, err) : 0;
}
