/* chunks: the versions of tokens, and rollouts that are not whole. */
#include "post/rl/chunks.h"

#include "base/math.h"
#include "post/rl/rl_priv.h"

uint64_t ash_chunks_first(const struct ash_job *job, uint64_t number)
{
    uint64_t lag = (uint64_t)job->rollout.lag;

    return number > lag ? number - lag : 0;
}

uint64_t ash_chunks_last(const struct ash_job *job, uint64_t number)
{
    if (job->rollout.chunk == 0) return ash_chunks_first(job, number);
    return number > 0 ? number - 1 : 0;
}

size_t ash_chunks_reach(const struct ash_job *job, uint64_t number, uint64_t version)
{
    uint64_t lag = (uint64_t)job->rollout.lag, most = (uint64_t)job->rollout.max_tokens;

    if (version >= ash_chunks_last(job, number)) return (size_t)most;
    if (version + lag < number) return 0;
    return (size_t)ash_min(most, (uint64_t)job->rollout.chunk * (version + lag - number + 1));
}

uint64_t ash_chunks_version(const struct ash_job *job, uint64_t number, size_t token)
{
    uint64_t version = ash_chunks_first(job, number), last = ash_chunks_last(job, number);

    while (version < last && ash_chunks_reach(job, number, version) <= token)
        version++;
    return version;
}

bool ash_chunks_is_whole(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    return rollout->drawn > ash_chunks_last(rl->job, rollout->number);
}

uint64_t ash_chunks_due(const struct ash_policy_run *rl, uint64_t number, uint64_t step)
{
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape);

    return ash_min((uint64_t)ash_div_up(step, steps), ash_chunks_last(rl->job, number) + 1);
}

void ash_chunks_cut(const struct ash_policy_run *rl, struct ash_rollout *rollout, uint64_t drawn)
{
    uint64_t first = ash_chunks_first(rl->job, rollout->number);
    size_t reach = drawn > first ? ash_chunks_reach(rl->job, rollout->number, drawn - 1) : 0;

    for (size_t a = 0; a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        if (row->count <= reach) continue;
        row->count = reach;
        row->has_ended = false;
        if (row->kept.ends != NULL) row->kept.count = reach > 0 ? row->kept.ends[reach - 1] : 0;
    }
    rollout->drawn = ash_min(rollout->drawn, ash_max(drawn, first));
}
