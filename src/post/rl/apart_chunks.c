/* apart_chunks: rollouts that several versions of the weights draw (rollout.chunk). The desk has an order for each
 * version; an answer goes to the next one when its tokens of the one before have come, while the trainer steps. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/math.h"
#include "post/rl/rl_priv.h"

static bool is_published(const struct ash_policy_run *rl, uint64_t version)
{
    uint64_t steps = version * ash_rl_steps_per_rollout(&rl->shape);

    return ash_publisher_has(&rl->apart->publisher, ash_apart_slot(rl, steps), steps);
}

/* The first version from which all below `end` are published. */
static uint64_t first_published(const struct ash_policy_run *rl, uint64_t number, uint64_t end)
{
    uint64_t version = end;

    while (version > ash_chunks_first(rl->job, number) && is_published(rl, version - 1))
        version--;
    return version;
}

/* The tokens of a rollout that are here; or none, if all of its weights are here; or those of its record. Returns 0,
 * -ENOENT or another error. */
static int settle(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    uint64_t first = first_published(rl, number, end);
    int rc;

    if (rollout->number == number && rollout->drawn >= first) {
        ash_chunks_cut(rl, rollout, ash_min(rollout->drawn, end)); /* of an order whose answers came in part, too */
        return 0;
    }
    if (first <= ash_chunks_first(rl->job, number)) return ash_chunks_begin(rl, number, err);
    rc = ash_rl_find_rollout(rl, number, first, err);
    if (rc < 0) rollout->number = UINT64_MAX;
    return rc;
}

bool ash_apart_can_draw(struct ash_policy_run *rl, uint64_t number, uint64_t end)
{
    return first_published(rl, number, end) < end && settle(rl, number, end, NULL) == 0;
}

static int begin_version(struct ash_policy_run *rl, const struct ash_rollout *rollout, uint64_t version,
                         uint64_t *order, struct ash_err *err)
{
    size_t reach = ash_chunks_reach(rl->job, rollout->number, version),
           before = version > rollout->drawn ? ash_chunks_reach(rl->job, rollout->number, version - 1) : 0;
    struct ash_apart_turn turn = {.version = version * ash_rl_steps_per_rollout(&rl->shape),
                                  .reach = reach,
                                  .follows = version > rollout->drawn ? *order : 0,
                                  .more = reach - before};

    if (version > rollout->drawn && (*order == 0 || reach == before)) return 0; /* all answers have ended */
    return ash_apart_begin(rl, rollout, &turn, order, err);
}

int ash_apart_begin_chunks(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err)
{
    const struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    uint64_t order = 0;
    int rc = settle(rl, number, end, err);

    for (uint64_t version = rollout->drawn; rc == 0 && version < end; version++)
        rc = begin_version(rl, rollout, version, &order, err);
    return rc;
}

/* First rank. */
static int take_chunks(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    int rc = ash_apart_begin_chunks(rl, number, end, err);

    while (rc == 0 && rollout->drawn < end) {
        uint64_t order = 0;

        rc = begin_version(rl, rollout, rollout->drawn, &order, err);
        if (rc == 0 && order > 0) rc = ash_apart_take(rl, rollout, order, err);
        if (rc == 0) rollout->drawn++;
    }
    return rc;
}

int ash_apart_draw_chunks(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    bool is_first = ash_group_rank(rl->group) == 0, *is_own = calloc(rl->shape.answers, sizeof(*is_own));
    uint64_t start_ns = ash_clock_ns();
    int rc = is_own == NULL ? ash_err_set(err, -ENOMEM, "out of memory for the answers of a step") : 0;

    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++)
        is_own[a] = is_first;
    if (rc == 0) rc = ash_apart_agree(rl, is_first ? take_chunks(rl, number, end, err) : 0, err);
    if (rc == 0 && !is_first) rc = ash_chunks_begin(rl, number, err);
    if (rc == 0) rc = ash_rl_share(rl->group, &rl->shape, rollout, is_own, err);
    if (rc == 0) rollout->drawn = end;
    free(is_own);
    rl->seconds[ASH_RL_SAMPLING] += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return rc;
}

int ash_apart_have_part(struct ash_policy_run *rl, uint64_t number, uint64_t end, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    int32_t lacks = rollout->number != number || rollout->drawn != end;
    int rc = ash_apart_settle_desk(rl, err);

    if (rc == 0) rc = ash_group_all_reduce(rl->group, &lacks, &lacks, 1, ASH_COLL_I32, ASH_COLL_MAX, err);
    if (rc == 0 && lacks != 0) rc = ash_apart_draw_chunks(rl, number, end, err);
    if (rc == 0 && lacks != 0) ash_rl_record(rl, rollout);
    if (rc < 0) rollout->number = UINT64_MAX;
    return rc == -ENOENT ? -ENOTRECOVERABLE : rc;
}
