/* make: a rollout from its first prompt to its record. */
#include "post/rl/rl_priv.h"

/* A critic values the sequences of all answers, from which advantages follow. Without one, advantages decide which
 * answers are put into sequences. */
static int judge(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    int rc = rl->shape.has_critic ? ash_rl_arrange(rl, rollout, err) : ash_rl_judge(rl, rollout, err);

    if (rc == 0 && rl->shape.has_critic) rc = ash_critic_values(rl, rollout, err);
    if (rc < 0) return rc;
    return rl->shape.has_critic ? ash_rl_judge(rl, rollout, err) : ash_rl_arrange(rl, rollout, err);
}

int ash_rl_make_rollout(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t number, uint64_t version,
                        struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    int rc = ash_rl_sample(rl, trainer, number, version, err);

    if (rc == 0) rc = ash_rl_run_reference(rl, rollout, err);
    if (rc == 0) rc = judge(rl, rollout, err);
    if (rc == 0) ash_rl_record(rl, rollout);
    return rc < 0 ? rc : ash_rl_guard(rl, rollout, err);
}
