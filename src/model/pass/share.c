/* What a pass exchanges with the processes that share it. A rank that is lost ends the pass: the first error is kept,
 * nothing is exchanged after it, and the pass returns it when it gets to its end. */
#include "model/pass/pass_priv.h"

#include <errno.h>

/* Is there anything to do, and still a way to do it? */
static bool goes(const struct ash_pass *pass, const struct ash_axis *axis)
{
    return axis->size > 1 && pass->failed == 0;
}

void ash_share_gather(struct ash_pass *pass, const struct ash_axis *axis, float *data, const size_t *counts)
{
    if (goes(pass, axis)) pass->failed = axis->ops->gather(axis->ctx, data, counts, &pass->failure);
}

void ash_share_exchange(struct ash_pass *pass, const struct ash_axis *axis, const float *in, const size_t *send,
                        float *out, const size_t *recv)
{
    if (goes(pass, axis)) pass->failed = axis->ops->exchange(axis->ctx, in, send, out, recv, &pass->failure);
}

void ash_share_exchange_start(struct ash_pass *pass, const struct ash_axis *axis, const float *in, const size_t *send,
                              float *out, const size_t *recv, void **started_out)
{
    *started_out = NULL;
    if (goes(pass, axis))
        pass->failed = axis->ops->exchange_start(axis->ctx, in, send, out, recv, started_out, &pass->failure);
}

void ash_share_exchange_wait(struct ash_pass *pass, const struct ash_axis *axis, void *started)
{
    struct ash_err err = {0};
    int rc = started != NULL ? axis->ops->exchange_wait(axis->ctx, started, &err) : 0;

    if (rc == 0 || pass->failed < 0) return;
    pass->failed = rc;
    pass->failure = err;
}

void ash_share_broadcast(struct ash_pass *pass, const struct ash_axis *axis, size_t root, float *data, size_t count)
{
    if (goes(pass, axis)) pass->failed = axis->ops->broadcast(axis->ctx, root, data, count, &pass->failure);
}

/* Both sides cut what is long at the same places. */
static size_t message(size_t left)
{
    return left < ASH_AXIS_MESSAGE ? left : ASH_AXIS_MESSAGE;
}

void ash_share_send(struct ash_pass *pass, const struct ash_axis *axis, size_t to, const float *data, size_t count)
{
    for (size_t done = 0, step; done < count && goes(pass, axis); done += step) {
        step = message(count - done);
        pass->failed = axis->ops->send(axis->ctx, to, data + done, step, &pass->failure);
    }
}

void ash_share_recv(struct ash_pass *pass, const struct ash_axis *axis, size_t from, float *data, size_t count)
{
    for (size_t done = 0, step; done < count && goes(pass, axis); done += step) {
        step = message(count - done);
        pass->failed = axis->ops->recv(axis->ctx, from, data + done, step, &pass->failure);
    }
}

void ash_share_say(struct ash_pass *pass, enum ash_share_counter counter, uint64_t value)
{
    const struct ash_axis *all = &pass->together;

    if (pass->failed == 0) all->ops->say(all->ctx, &pass->common.memory, counter, value);
}

/* rank: of all that share the memory. */
static void wait_for(struct ash_pass *pass, size_t rank, enum ash_share_counter counter, uint64_t value)
{
    const struct ash_axis *all = &pass->together;

    if (pass->failed == 0 && rank != all->rank)
        pass->failed = all->ops->wait(all->ctx, &pass->common.memory, rank, counter, value, &pass->failure);
}

void ash_share_wait(struct ash_pass *pass, size_t rank, enum ash_share_counter counter, uint64_t value)
{
    wait_for(pass, pass->together.rank - pass->tp.rank + rank, counter, value);
}

void ash_share_wait_tokens(struct ash_pass *pass, size_t rank, enum ash_share_counter counter, uint64_t value)
{
    wait_for(pass, rank * pass->tp.size + pass->tp.rank, counter, value);
}

void ash_share_meet(struct ash_pass *pass, enum ash_share_counter counter, uint64_t value)
{
    ash_share_say(pass, counter, value);
    for (size_t r = 0; r < pass->tp.size; r++)
        ash_share_wait(pass, r, counter, value);
}

void ash_share_meet_beside(struct ash_pass *pass, size_t but)
{
    ash_share_say(pass, ASH_SHARE_HEADS, ++pass->common.heads);
    ash_parts_take(pass, but);
    for (size_t r = 0; r < pass->cp.size; r++)
        ash_share_wait_tokens(pass, r, ASH_SHARE_HEADS, pass->common.heads);
}

void ash_share_meet_heads(struct ash_pass *pass)
{
    ash_share_meet_beside(pass, SIZE_MAX);
}

int ash_share_result(struct ash_pass *pass, struct ash_err *err)
{
    int rc = pass->failed;

    if (rc < 0 && err != NULL) *err = pass->failure;
    return rc;
}
