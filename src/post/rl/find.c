/* find: a rollout that earlier weights sampled, from its record. */
#include <errno.h>

#include "post/rl/rl_priv.h"

int ash_chunks_reread(struct ash_policy_run *rl, uint64_t number, uint64_t drawn, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    uint64_t last = ash_chunks_last(rl->job, number);
    bool is_part = drawn <= last;
    int rc = ash_rl_reread(rl, number, is_part, rollout, err);

    if (rc > 0 && !is_part) rollout->drawn = last + 1;
    if (rc > 0 && is_part && rollout->drawn >= drawn)
        ash_chunks_cut(rl, rollout, drawn);
    else if (rc <= 0 || is_part)
        rollout->number = UINT64_MAX;
    return rc < 0 ? rc : rollout->number == number;
}

int ash_rl_find_rollout(struct ash_policy_run *rl, uint64_t number, uint64_t drawn, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    uint64_t seed = (uint64_t)rl->job->train.seed;
    int rc = ash_chunks_reread(rl, number, drawn, err);

    for (size_t p = 0; rc > 0 && p < rl->shape.prompts; p++) {
        int got;

        ash_prompt_fini(&rollout->prompts[p]);
        got = ash_prompts_get(rl->prompts, seed, rollout->prompt_numbers[p], false, &rollout->prompts[p], err);
        if (got < 0) rc = got;
    }
    if (rc == 0)
        return ash_err_set(err, -ENOENT, "rollout %llu was sampled by earlier weights, and its record is gone",
                           (unsigned long long)number);
    if (rc < 0 || !ash_chunks_is_whole(rl, rollout)) return rc < 0 ? rc : 0;
    rc = ash_rl_run_reference(rl, rollout, err);
    if (rc == 0) rc = ash_rl_judge(rl, rollout, err);
    return rc < 0 ? rc : ash_rl_arrange(rl, rollout, err);
}
