/* The router of phimoe in plain C: sparsemixer without its drawn choices, which the reference library makes in training
 * alone. */
#include "compute/ref/ref_priv.h"

#include "base/assert.h"
#include "compute/lanes.h"
#include "compute/mathf.h"

/* The largest logit that is not taken, the lower index on a tie; NaN loses to everything. */
static size_t best_left(const float *logits, size_t count, const bool *taken)
{
    size_t best = count;

    for (size_t e = 0; e < count; e++)
        if (!taken[e] && (best == count || logits[e] > logits[best] || (logits[best] != logits[best]))) best = e;
    return best;
}

/* share[e] = the softmax over the logits that are left, within the tolerance of the best; 0 elsewhere. */
static void share_left(const struct ash_route_args *args, const float *logits, size_t best, const bool *taken,
                       float *share)
{
    float lanes[ASH_LANES] = {0}, max = logits[best], sum;

    for (size_t e = 0; e < args->experts; e++) {
        float size = fabsf(logits[e]) > max ? fabsf(logits[e]) : max;
        bool is_far = (max - logits[e]) / size > args->tolerance;

        share[e] = taken[e] || is_far ? 0.0f : ash_expf(logits[e] - max);
        lanes[e % ASH_LANES] = lanes[e % ASH_LANES] + share[e];
    }
    sum = ash_lanes_fold(lanes);
    for (size_t e = 0; e < args->experts; e++)
        share[e] = share[e] / sum;
}

void ash_ref_mixer_forward(const struct ash_route_args *args, size_t row)
{
    const float *logits = &args->logits[row * args->experts];
    bool taken[ASH_ROUTE_EXPERTS_MAX] = {false};
    float share[ASH_ROUTE_EXPERTS_MAX];

    ash_assert(args->tolerance > 0 && args->choices <= args->experts);
    for (size_t s = 0; s < args->choices; s++) {
        size_t best = best_left(logits, args->experts, taken);

        share_left(args, logits, best, taken, share);
        args->index[row * args->choices + s] = (int32_t)best;
        args->weight[row * args->choices + s] = share[best] * args->scale;
        taken[best] = true;
    }
}

/* Through each choice's softmax; which experts are within the tolerance counts as constant. */
void ash_ref_mixer_backward(const struct ash_route_args *args, size_t row)
{
    const float *logits = &args->logits[row * args->experts];
    float *dlogits = &args->dlogits[row * args->experts];
    bool taken[ASH_ROUTE_EXPERTS_MAX] = {false};
    float share[ASH_ROUTE_EXPERTS_MAX];

    ash_assert(args->tolerance > 0 && args->choices <= args->experts);
    for (size_t e = 0; e < args->experts; e++)
        dlogits[e] = 0.0f;
    for (size_t s = 0; s < args->choices; s++) {
        size_t best = (size_t)args->index[row * args->choices + s];
        float dshare = args->dweight[row * args->choices + s] * args->scale, part;

        share_left(args, logits, best, taken, share);
        part = dshare * share[best];
        for (size_t e = 0; e < args->experts; e++)
            dlogits[e] = fmaf(part, (e == best ? 1.0f : 0.0f) - share[e], dlogits[e]);
        taken[best] = true;
    }
}
