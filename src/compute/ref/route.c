/* Expert routing in plain C: scores of a token over experts, the best few of them, their weights; and the gradient of
 * those. The rules are those of the mixtral, qwen3_moe and deepseek_v3 families. */
#include "compute/ref/ref_priv.h"

#include "base/assert.h"
#include "compute/lanes.h"
#include "compute/mathf.h"

#define ROUTE_MIN_ROWS 8
#define ROUTE_NORM_FLOOR 1e-20f /* added to the sum of sigmoid weights before dividing, as deepseek does */

/* score[e] of one row: softmax over the experts, or a sigmoid each. */
static void score_row(const struct ash_route_args *args, const float *logits, float *score)
{
    float lanes[ASH_LANES] = {0}, max = -INFINITY, sum;

    if (args->sigmoid) {
        for (size_t e = 0; e < args->experts; e++)
            score[e] = ash_sigmoidf(logits[e]);
        return;
    }
    for (size_t e = 0; e < args->experts; e++)
        max = logits[e] > max ? logits[e] : max;
    for (size_t e = 0; e < args->experts; e++) {
        score[e] = ash_expf(logits[e] - max);
        lanes[e % ASH_LANES] = lanes[e % ASH_LANES] + score[e];
    }
    sum = ash_lanes_fold(lanes);
    for (size_t e = 0; e < args->experts; e++)
        score[e] = score[e] / sum;
}

/* The largest of x[0..count) that is not yet taken, the lower index on a tie. NaN loses to everything, so that an index
 * in range always comes out. */
static size_t take_best(const float *x, size_t count, bool *taken)
{
    size_t best = count;

    for (size_t n = 0; n < count; n++)
        if (!taken[n] && (best == count || x[n] > x[best] || (x[best] != x[best] && x[n] == x[n]))) best = n;
    taken[best] = true;
    return best;
}

/* Sum of the best two choice scores of a group. */
static float group_score(const float *choice, size_t count)
{
    bool taken[ASH_ROUTE_EXPERTS_MAX] = {false};
    float best = choice[take_best(choice, count, taken)];

    return count > 1 ? best + choice[take_best(choice, count, taken)] : best;
}

/* Choice scores of experts outside the best groups become 0 (not minus infinity: with a negative bias they may still
 * win). */
static void mask_groups(const struct ash_route_args *args, float *choice)
{
    float score[ASH_ROUTE_EXPERTS_MAX];
    bool kept[ASH_ROUTE_EXPERTS_MAX] = {false};
    size_t size = args->experts / args->groups;

    for (size_t g = 0; g < args->groups; g++)
        score[g] = group_score(&choice[g * size], size);
    for (size_t n = 0; n < args->top_groups; n++)
        take_best(score, args->groups, kept);
    for (size_t e = 0; e < args->experts; e++)
        if (!kept[e / size]) choice[e] = 0.0f;
}

/* What the chosen scores are divided by. */
static float weight_sum(const struct ash_route_args *args, const float *score, const int32_t *index)
{
    float lanes[ASH_LANES] = {0};

    if (!args->normalize) return 1.0f;
    for (size_t s = 0; s < args->choices; s++)
        lanes[s % ASH_LANES] = lanes[s % ASH_LANES] + score[index[s]];
    return ash_lanes_fold(lanes) + (args->sigmoid ? ROUTE_NORM_FLOOR : 0.0f);
}

static void forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_route_args *args = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float score[ASH_ROUTE_EXPERTS_MAX], choice[ASH_ROUTE_EXPERTS_MAX], sum;
        bool taken[ASH_ROUTE_EXPERTS_MAX] = {false};
        int32_t *index = &args->index[r * args->choices];

        if (args->tolerance > 0) {
            ash_ref_mixer_forward(args, r);
            continue;
        }
        score_row(args, &args->logits[r * args->experts], score);
        for (size_t e = 0; e < args->experts; e++)
            choice[e] = args->choice_bias != NULL ? score[e] + args->choice_bias[e] : score[e];
        if (args->groups > 1) mask_groups(args, choice);
        for (size_t s = 0; s < args->choices; s++)
            index[s] = (int32_t)take_best(choice, args->experts, taken);
        sum = weight_sum(args, score, index);
        for (size_t s = 0; s < args->choices; s++)
            args->weight[r * args->choices + s] = score[index[s]] / sum * args->scale;
    }
}

static void check_args(const struct ash_route_args *args)
{
    ash_assert(args->experts <= ASH_ROUTE_EXPERTS_MAX && args->choices <= ASH_ROUTE_CHOICES_MAX);
    ash_assert(args->choices <= args->experts);
    ash_assert(args->groups <= 1 || (args->experts % args->groups == 0 && args->top_groups <= args->groups));
}

static void forward(struct ash_exec *exec, const struct ash_route_args *args)
{
    check_args(args);
    ash_workers_run(exec->workers, args->rows, ROUTE_MIN_ROWS, forward_rows, (void *)args);
}

/* dscore[s] of the chosen experts: through the scale and the division by their sum. */
static void backward_weights(const struct ash_route_args *args, const float *score, const int32_t *index,
                             const float *dweight, float *dscore)
{
    float lanes[ASH_LANES] = {0}, sum = weight_sum(args, score, index), mean = 0.0f;

    if (args->normalize) {
        for (size_t s = 0; s < args->choices; s++)
            lanes[s % ASH_LANES] = fmaf(dweight[s], score[index[s]], lanes[s % ASH_LANES]);
        mean = ash_lanes_fold(lanes) / sum;
    }
    for (size_t s = 0; s < args->choices; s++)
        dscore[s] = (dweight[s] - mean) / sum * args->scale;
}

/* dlogits of a row: through the sigmoids, or through the softmax over all experts. */
static void backward_scores(const struct ash_route_args *args, const float *score, const int32_t *index,
                            const float *dscore, float *dlogits)
{
    float lanes[ASH_LANES] = {0}, dot;

    for (size_t e = 0; e < args->experts; e++)
        dlogits[e] = 0.0f;
    for (size_t s = 0; s < args->choices; s++)
        dlogits[index[s]] = dscore[s];
    if (args->sigmoid) {
        for (size_t e = 0; e < args->experts; e++)
            dlogits[e] = dlogits[e] * (score[e] * (1.0f - score[e]));
        return;
    }
    for (size_t s = 0; s < args->choices; s++)
        lanes[s % ASH_LANES] = fmaf(dscore[s], score[index[s]], lanes[s % ASH_LANES]);
    dot = ash_lanes_fold(lanes);
    for (size_t e = 0; e < args->experts; e++)
        dlogits[e] = score[e] * (dlogits[e] - dot);
}

static void backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_route_args *args = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float score[ASH_ROUTE_EXPERTS_MAX], dscore[ASH_ROUTE_CHOICES_MAX];
        const int32_t *index = &args->index[r * args->choices];

        if (args->tolerance > 0) {
            ash_ref_mixer_backward(args, r);
            continue;
        }
        score_row(args, &args->logits[r * args->experts], score);
        backward_weights(args, score, index, &args->dweight[r * args->choices], dscore);
        backward_scores(args, score, index, dscore, &args->dlogits[r * args->experts]);
    }
}

static void backward(struct ash_exec *exec, const struct ash_route_args *args)
{
    check_args(args);
    ash_workers_run(exec->workers, args->rows, ROUTE_MIN_ROWS, backward_rows, (void *)args);
}

/* A counting sort: pairs are few, and one thread keeps the order plain to see. */
static void group(struct ash_exec *exec, const struct ash_route_group_args *args)
{
    size_t next[ASH_ROUTE_EXPERTS_MAX + 1] = {0}, pairs = args->rows * args->choices;

    (void)exec;
    for (size_t i = 0; i < pairs; i++)
        next[args->index[i] + 1]++;
    for (size_t e = 0; e < args->experts; e++)
        next[e + 1] += next[e];
    for (size_t e = 0; e <= args->experts; e++) {
        if (args->offsets != NULL) args->offsets[e] = next[e];
        if (args->starts != NULL) args->starts[e] = (int32_t)next[e];
    }
    for (size_t i = 0; i < pairs; i++) {
        size_t at = next[args->index[i]]++;
        args->order[at] = (int32_t)(i / args->choices);
        args->flat[at] = (int32_t)i;
        args->where[i] = (int32_t)at;
    }
}

static void grouped(struct ash_exec *exec, const struct ash_grouped_args *args)
{
    for (size_t g = 0; g < args->groups; g++) {
        size_t first = (size_t)args->starts[g], count = (size_t)args->starts[g + 1] - first;

        if (count == 0) continue;
        exec->ops->matrix->gemm(
            exec, &(struct ash_gemm_args){.M = count,
                                          .N = args->N,
                                          .K = args->K,
                                          .a = {args->x + first * args->x_stride, ASH_F32, args->x_stride, 1},
                                          .b = args->w[g].mat,
                                          .c = args->y + first * args->y_stride,
                                          .c_stride = args->y_stride,
                                          .accumulate = args->accumulate,
                                          .round_bf16 = args->round_bf16});
    }
}

static void grouped_grad(struct ash_exec *exec, const struct ash_grouped_grad_args *args)
{
    for (size_t g = 0; g < args->groups; g++) {
        size_t first = (size_t)args->starts[g], count = (size_t)args->starts[g + 1] - first;

        exec->ops->matrix->gemm(
            exec, &(struct ash_gemm_args){.M = args->M,
                                          .N = args->N,
                                          .K = count,
                                          .a = {args->dy + first * args->dy_stride, ASH_F32, 1, args->dy_stride},
                                          .b = {args->x + first * args->x_stride, ASH_F32, args->x_stride, 1},
                                          .c = args->dw[g],
                                          .c_stride = args->N,
                                          .accumulate = args->accumulate,
                                          .round_bf16 = args->round_bf16,
                                          .cut_anywhere = true});
    }
}

const struct ash_route_ops ash_ref_route = {
    .forward = forward, .backward = backward, .group = group, .grouped = grouped, .grouped_grad = grouped_grad};
