/* apart: what a step needs, and what it has begun for later ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "post/rl/rl_priv.h"

static uint64_t version_of(const struct ash_policy_run *rl, uint64_t number)
{
    return ash_chunks_first(rl->job, number) * ash_rl_steps_per_rollout(&rl->shape);
}

/* Have samplers draw a rollout while steps run. */
static int begin(struct ash_policy_run *rl, uint64_t number, uint64_t step, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    uint64_t order;
    int rc;

    if (ash_group_rank(rl->group) != 0) return 0;
    if (rl->job->rollout.chunk > 0)
        return ash_apart_begin_chunks(rl, number, ash_chunks_due(rl, number, step + 1), err);
    rc = ash_chunks_begin(rl, number, err);
    if (rc == 0)
        rc = ash_apart_begin(rl, rollout,
                             &(struct ash_apart_turn){.version = rollout->version, .reach = rl->shape.max_tokens},
                             &order, err);
    rollout->number = UINT64_MAX; /* it has no answers yet */
    return rc;
}

/* ---- rollouts ---------------------------------------------------------------------------------------------------- */

/* Who has a rollout, of all ranks? The first one says whether it can be drawn. */
enum { SOME_LACK, SOME_HAVE, CAN_DRAW, FLAGS };

static bool can_draw(struct ash_policy_run *rl, uint64_t number)
{
    uint64_t version = version_of(rl, number);

    if (rl->apart->desk == NULL) return false;
    if (rl->job->rollout.chunk > 0) return ash_apart_can_draw(rl, number, ash_chunks_last(rl->job, number) + 1);
    return ash_publisher_has(&rl->apart->publisher, ash_apart_slot(rl, version), version);
}

static int draw_whole(struct ash_policy_run *rl, uint64_t number, struct ash_err *err)
{
    int rc = 0;

    if (rl->job->rollout.chunk > 0) rc = ash_apart_draw_chunks(rl, number, ash_chunks_last(rl->job, number) + 1, err);
    return rc < 0 ? rc : ash_rl_make_rollout(rl, NULL, number, version_of(rl, number), err);
}

int ash_apart_have(struct ash_policy_run *rl, uint64_t number, struct ash_err *err)
{
    struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
    bool is_here = rollout->number == number && ash_chunks_is_whole(rl, rollout);
    int32_t flags[FLAGS] = {!is_here, is_here};
    int rc = ash_apart_settle_desk(rl, err); /* the first rank may have been lost since the step */

    if (rc < 0) return rc;
    flags[CAN_DRAW] = !is_here && ash_group_rank(rl->group) == 0 && can_draw(rl, number);
    rc = ash_group_all_reduce(rl->group, flags, flags, FLAGS, ASH_COLL_I32, ASH_COLL_MAX, err);

    if (rc < 0 || flags[SOME_LACK] == 0) return rc;
    rc = flags[SOME_HAVE] == 0 && flags[CAN_DRAW] != 0 ? draw_whole(rl, number, err)
                                                       : ash_rl_find_rollout(rl, number, UINT64_MAX, err);
    if (rc < 0) rollout->number = UINT64_MAX; /* a rank was lost: the answers are not all here */
    return rc == -ENOENT ? -ENOTRECOVERABLE : rc;
}

/* Orders of steps that the run has left. */
static void forget_others(struct ash_apart *apart, uint64_t step)
{
    if (step != apart->next_step && step + 1 != apart->next_step) {
        if (apart->desk != NULL) ash_desk_forget(apart->desk);
        apart->order_count = 0;
    }
    apart->next_step = step + 1;
}

int ash_apart_prepare(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape), lag = (uint64_t)rl->job->rollout.lag, number = step / steps;
    int rc = ash_apart_settle_desk(rl, err);

    if (rl->apart->start_ns == 0) {
        rl->apart->start_ns = ash_clock_ns();
        rl->apart->first_step = step;
    }
    forget_others(rl->apart, step);
    if (rc == 0 && (step % steps != 0 || (lag > 0 && step > 0))) rc = ash_apart_have(rl, number, err);
    if (rc < 0 || step % steps != 0) return rc;
    rc = ash_apart_publish(rl, trainer, step, err);
    if (rc == 0 && lag == 0) return ash_rl_make_rollout(rl, NULL, number, step, err);
    for (uint64_t n = step == 0 ? 0 : number + lag; rc == 0 && n <= number + lag; n++)
        rc = begin(rl, n, step, err);
    return rc == 0 && step == 0 ? ash_apart_have(rl, 0, err) : rc;
}
