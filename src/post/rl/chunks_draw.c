/* chunks: one version draws of all rollouts at once, new answers beside the last tokens of long ones. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/range.h"
#include "post/rl/rl_priv.h"

int ash_chunks_begin(struct ash_policy_run *rl, uint64_t number, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    int rc;

    rollout->number = number;
    rollout->drawn = ash_chunks_first(rl->job, number);
    rollout->version = rollout->drawn * ash_rl_steps_per_rollout(&rl->shape);
    rollout->replaced = 0;
    for (size_t a = 0; a < rl->shape.answers; a++) {
        ash_rl_clear(&rollout->answers[a]);
        rollout->answers[a].reward = 0.0;
    }
    rc = ash_rl_get_prompts(rl, rollout, 0, NULL, err);
    if (rc < 0) rollout->number = UINT64_MAX;
    return rc;
}

/* The rollouts that a version draws of. The first weights draw the first rollouts as well, which nothing was before. */
static struct ash_range rollouts_of(const struct ash_policy_run *rl, uint64_t version)
{
    uint64_t first = version > 0 ? version + 1 : 0;

    return (struct ash_range){(size_t)first, (size_t)(version + (uint64_t)rl->job->rollout.lag - first) + 1};
}

/* Is this answer drawn by this rank? */
static bool is_own(const struct ash_policy_run *rl, size_t a)
{
    return a / (size_t)rl->job->rl.samples % ash_group_size(rl->group) == ash_group_rank(rl->group);
}

/* Ask for the tokens of a rollout that are this rank's to draw. Returns how many answers get some, or -ENOMEM. */
static ssize_t ask(struct ash_policy_run *rl, struct ash_rollout *rollout, uint64_t version, struct ash_asked **asked)
{
    size_t reach = ash_chunks_reach(rl->job, rollout->number, version);
    uint64_t salt = version * ash_rl_steps_per_rollout(&rl->shape) + 1;
    ssize_t count = 0;

    for (size_t a = 0; a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];
        struct ash_sampler_opts sampler = ash_rl_sampler_of(rl, rollout, 0, a);

        if (!is_own(rl, a) || row->has_ended || row->count >= reach) continue;
        asked[count] = ash_rl_ask(rl, &rollout->prompts[row->prompt], row, &sampler, salt);
        if (asked[count] == NULL) return -ENOMEM;
        asked[count++]->request.max_tokens = reach - row->count;
    }
    return count;
}

static int draw_own(struct ash_policy_run *rl, struct ash_range rollouts, uint64_t version, struct ash_err *err)
{
    struct ash_asked **asked = calloc(rollouts.count * rl->shape.answers, sizeof(struct ash_asked *));
    size_t count = 0;
    int rc = asked == NULL ? -ENOMEM : 0;

    for (uint64_t n = rollouts.first; rc == 0 && n < ash_range_end(rollouts); n++) {
        ssize_t more = ask(rl, &rl->rollouts[n % rl->rollout_count], version, asked + count);

        if (more < 0) rc = (int)more;
        if (more > 0) count += (size_t)more;
    }
    rc = rc < 0 ? ash_err_set(err, rc, "out of memory for the answers of a step")
                : ash_rl_answer_all(rl, asked, count, err);
    for (size_t i = 0; asked != NULL && i < rollouts.count * rl->shape.answers; i++)
        ash_rl_unask(asked[i]);
    free(asked);
    return rc;
}

static int share_all(struct ash_policy_run *rl, struct ash_range rollouts, uint64_t version, struct ash_err *err)
{
    bool *own = calloc(rl->shape.answers, sizeof(*own));
    int rc = own == NULL ? ash_err_set(err, -ENOMEM, "out of memory for the answers of a step") : 0;

    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++)
        own[a] = is_own(rl, a);
    for (uint64_t n = rollouts.first; rc == 0 && n < ash_range_end(rollouts); n++) {
        struct ash_rollout *rollout = &rl->rollouts[n % rl->rollout_count];

        rc = ash_rl_share(rl->group, &rl->shape, rollout, own, err);
        if (rc == 0) rollout->drawn = version + 1;
    }
    free(own);
    return rc;
}

/* What a version draws. A rank may have been lost in the midst of it: it begins where the version before has ended. */
static int draw_version(struct ash_policy_run *rl, struct ash_range rollouts, uint64_t version, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns();
    int rc = 0;

    for (uint64_t n = rollouts.first; rc == 0 && n < ash_range_end(rollouts); n++) {
        struct ash_rollout *rollout = &rl->rollouts[n % rl->rollout_count];

        if (rollout->number == n)
            ash_chunks_cut(rl, rollout, version);
        else
            rc = ash_chunks_begin(rl, n, err);
        ash_assert(rc < 0 || rollout->drawn == ash_max(version, ash_chunks_first(rl->job, n)));
    }
    if (rc == 0) rc = draw_own(rl, rollouts, version, err);
    if (rc == 0) rc = share_all(rl, rollouts, version, err);
    rl->seconds[ASH_RL_SAMPLING] += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return rc;
}

int ash_chunks_draw(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    uint64_t version = step / ash_rl_steps_per_rollout(&rl->shape);
    struct ash_range rollouts = rollouts_of(rl, version);
    int rc = ash_rl_open_core(rl, trainer, err);

    if (rc == 0) rc = draw_version(rl, rollouts, version, err);
    for (uint64_t n = rollouts.first; rc == 0 && n < ash_range_end(rollouts); n++) {
        struct ash_rollout *rollout = &rl->rollouts[n % rl->rollout_count];

        if (ash_chunks_is_whole(rl, rollout))
            rc = ash_rl_make_rollout(rl, trainer, n, rollout->version, err);
        else
            ash_rl_record(rl, rollout);
    }
    return rc;
}
