/* stage_order: 1F1B and its interleaved form, as a function from the number of an operation to the operation. */
#include "train/layout/stage_order.h"

#include <errno.h>

#include "base/assert.h"
#include "base/math.h"

int ash_stage_order_check(const struct ash_stage_order *order, struct ash_err *err)
{
    ash_assert(order->ranks > 0 && order->rank < order->ranks && order->chunks > 0);
    if (order->chunks == 1 || order->micros % order->ranks == 0) return 0;
    return ash_err_set(
        err, -EINVAL,
        "mesh.interleave=%zu takes micro-batches %zu at a time, and a rank has %zu of them in a step: change "
        "train.micro_batch, train.grains or mesh.pp, or set mesh.interleave=1",
        order->chunks, order->ranks, order->micros);
}

size_t ash_stage_order_count(const struct ash_stage_order *order)
{
    return 2 * order->micros * order->chunks;
}

/* Forwards before the first backward. */
static size_t warmup(const struct ash_stage_order *order)
{
    size_t total = order->micros * order->chunks, later = order->ranks - 1 - order->rank;
    size_t ahead = order->chunks == 1 ? later : 2 * later + (order->chunks - 1) * order->ranks;

    return ash_min(ahead, total);
}

/* The n-th forward, or backward, of a rank. */
static struct ash_stage_op nth(const struct ash_stage_order *order, bool backward, size_t n)
{
    size_t round = order->ranks * order->chunks, chunk = n % round / order->ranks;

    ash_assert(chunk < order->chunks);
    if (order->chunks == 1) return (struct ash_stage_op){backward, 0, n};
    return (struct ash_stage_op){backward, backward ? order->chunks - 1 - chunk : chunk,
                                 n / round * order->ranks + n % order->ranks};
}

struct ash_stage_op ash_stage_order_at(const struct ash_stage_order *order, size_t index)
{
    size_t total = order->micros * order->chunks, ahead = warmup(order), pair = index - ahead;

    ash_assert(index < ash_stage_order_count(order));
    if (index < ahead) return nth(order, false, index);
    if (pair >= 2 * (total - ahead)) return nth(order, true, index - total);
    return pair % 2 == 0 ? nth(order, false, ahead + pair / 2) : nth(order, true, pair / 2);
}

size_t ash_stage_order_depth(const struct ash_stage_order *order, size_t chunk)
{
    size_t depth = 0, most = 0;

    ash_assert(chunk < order->chunks);
    for (size_t i = 0; i < ash_stage_order_count(order); i++) {
        struct ash_stage_op op = ash_stage_order_at(order, i);
        if (op.chunk != chunk) continue;
        depth += op.backward ? (size_t)-1 : 1;
        most = ash_max(most, depth);
    }
    return most;
}
