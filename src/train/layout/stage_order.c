/* pipeline: 1F1B and its interleaved form, as a function from the number of an operation to the operation. */
#include "train/layout/stage_order.h"

#include <errno.h>

int ash_stage_order_check(const struct ash_stage_order *pipeline, struct ash_err *err)
{
    if (pipeline->chunks == 1 || pipeline->micros % pipeline->ranks == 0) return 0;
    return ash_err_set(
        err, -EINVAL,
        "mesh.interleave=%zu takes micro-batches %zu at a time, and a rank has %zu of them in a step: change "
        "train.micro_batch, train.grains or mesh.pp, or set mesh.interleave=1",
        pipeline->chunks, pipeline->ranks, pipeline->micros);
}

size_t ash_stage_order_count(const struct ash_stage_order *pipeline)
{
    return 2 * pipeline->micros * pipeline->chunks;
}

/* Forwards before the first backward. */
static size_t warmup(const struct ash_stage_order *p)
{
    size_t total = p->micros * p->chunks, behind = p->ranks - 1 - p->rank;
    size_t ahead = p->chunks == 1 ? behind : 2 * behind + (p->chunks - 1) * p->ranks;

    return ahead < total ? ahead : total;
}

/* The n-th forward, or backward, of a rank. */
static struct ash_stage_op nth(const struct ash_stage_order *p, bool backward, size_t n)
{
    size_t round = p->ranks * p->chunks, chunk = n % round / p->ranks;

    if (p->chunks == 1) return (struct ash_stage_op){backward, 0, n};
    return (struct ash_stage_op){backward, backward ? p->chunks - 1 - chunk : chunk,
                                 n / round * p->ranks + n % p->ranks};
}

struct ash_stage_op ash_stage_order_at(const struct ash_stage_order *p, size_t index)
{
    size_t total = p->micros * p->chunks, ahead = warmup(p), pair = index - ahead;

    if (index < ahead) return nth(p, false, index);
    if (pair >= 2 * (total - ahead)) return nth(p, true, index - total);
    return pair % 2 == 0 ? nth(p, false, ahead + pair / 2) : nth(p, true, pair / 2);
}

size_t ash_stage_order_depth(const struct ash_stage_order *pipeline, size_t chunk)
{
    size_t depth = 0, most = 0;

    for (size_t i = 0; i < ash_stage_order_count(pipeline); i++) {
        struct ash_stage_op op = ash_stage_order_at(pipeline, i);
        if (op.chunk != chunk) continue;
        depth += op.backward ? (size_t)-1 : 1;
        if (depth > most) most = depth;
    }
    return most;
}
