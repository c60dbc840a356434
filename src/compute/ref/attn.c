/* Attention in plain C: blocks of ASH_ATTN_BLOCK keys counted from position 0, one running maximum per query row, so
 * that a row's result depends on the row and its keys alone. Backward recomputes the scores from the saved log-sum:
 * memory stays linear. */
#include "compute/family_math.h"
#include "compute/ref/attn_rows.h"

#include "base/assert.h"
#include "compute/attn_pages.h"
#include "compute/mathf.h"

/* Scaled, and perhaps capped, score of query q (one head, dim_k) with key j of kv head g. */
static float score(const struct ash_attn_args *args, const struct ash_attn_seq *seq, const float *q, size_t j, size_t g)
{
    struct ash_attn_run key = ash_attn_keys(args, seq, j, g);
    float acc = 0.0f;

    for (size_t d = 0; d < args->dim_k; d++)
        acc = fmaf(q[d], ref_read(key.data, args->kv_dtype, d * key.dim_stride), acc);
    acc = acc * args->scale;
    return args->cap == 0 ? acc : ash_cap(acc, args->cap);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* What a query row carries from block to block: maximum, sum of exponentials, weighted sum of values. */
struct running {
    float max, sum;
    float acc[ASH_ATTN_HEAD_MAX];
};

/* Fold the visible keys of one block into the running state. */
static void forward_block(const struct ash_attn_args *args, const struct ash_attn_seq *seq, const float *q, size_t g,
                          struct ash_ref_keys keys, struct running *run)
{
    size_t base = keys.begin / ASH_ATTN_BLOCK * ASH_ATTN_BLOCK;
    float p[ASH_ATTN_BLOCK] = {0}, lanes[ASH_LANES] = {0}, max = run->max, alpha;

    for (size_t j = keys.begin; j < keys.end; j++) {
        p[j - base] = score(args, seq, q, j, g);
        max = p[j - base] > max ? p[j - base] : max;
    }
    alpha = ash_expf(run->max - max);
    for (size_t j = keys.begin; j < keys.end; j++)
        p[j - base] = ash_expf(p[j - base] - max);
    for (size_t n = 0; n < ASH_ATTN_BLOCK; n++)
        lanes[n % ASH_LANES] = lanes[n % ASH_LANES] + p[n];
    run->max = max;
    run->sum = fmaf(run->sum, alpha, ash_lanes_fold(lanes));
    for (size_t d = 0; d < args->dim_v; d++) {
        run->acc[d] = run->acc[d] * alpha;
        for (size_t j = keys.begin; j < keys.end; j++)
            run->acc[d] =
                fmaf(p[j - base], ref_read(ash_attn_values(args, seq, j, g).data, args->kv_dtype, d), run->acc[d]);
    }
}

/* A unit is one query row of one head. */
static void forward_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t i, h = unit % args->heads, g = h / (args->heads / args->kv_heads);
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->heads, &i);
        struct ash_ref_keys seen = ash_ref_seen_keys(args, seq, i);
        size_t row = seq->q_row + i;
        struct running run = {.max = -INFINITY};

        for (size_t b = seen.begin / ASH_ATTN_BLOCK; b * ASH_ATTN_BLOCK < seen.end; b++) {
            struct ash_ref_keys keys = {.begin = b * ASH_ATTN_BLOCK, .end = (b + 1) * ASH_ATTN_BLOCK};

            keys.begin = keys.begin < seen.begin ? seen.begin : keys.begin;
            keys.end = keys.end > seen.end ? seen.end : keys.end;
            forward_block(args, seq, &args->q[row * args->q_stride + h * args->dim_k], g, keys, &run);
        }
        for (size_t d = 0; d < args->dim_v; d++)
            args->out[row * args->out_stride + h * args->dim_v + d] = run.acc[d] / run.sum;
        if (args->lse != NULL) args->lse[row * args->heads + h] = run.max + ash_logf(run.sum);
    }
}

static void forward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    ash_ref_attn_forward(exec, args, forward_units);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* What backward knows about the pair (query row i, key j): its probability, and the gradient of its scaled score. */
struct pair {
    float p, ds;
};

static struct pair backward_pair(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t i, size_t h,
                                 size_t j, float delta)
{
    size_t g = h / (args->heads / args->kv_heads), row = seq->q_row + i;
    const float *dout = &args->dout[row * args->out_stride + h * args->dim_v];
    const float *v = (const float *)seq->v + j * args->v_stride + g * args->dim_v;
    float s = score(args, seq, &args->q[row * args->q_stride + h * args->dim_k], j, g);
    float dp = 0.0f;
    struct pair pair;

    for (size_t d = 0; d < args->dim_v; d++)
        dp = fmaf(dout[d], v[d], dp);
    pair.p = ash_expf(s - args->lse[row * args->heads + h]);
    pair.ds = pair.p * (dp - delta);
    if (args->cap != 0) pair.ds = pair.ds * ash_cap_slope(s, args->cap);
    pair.ds = pair.ds * args->scale;
    return pair;
}

/* dq of one row of one head: keys ascending. */
static void backward_queries(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t i, h = unit % args->heads, g = h / (args->heads / args->kv_heads);
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->heads, &i);
        struct ash_ref_keys seen = ash_ref_visible_keys(args, i);
        size_t row = seq->q_row + i;
        float *dq = &args->dq[row * args->q_stride + h * args->dim_k], delta = ash_ref_row_delta(args, row, h);

        for (size_t d = 0; d < args->dim_k; d++)
            dq[d] = 0.0f;
        for (size_t j = seen.begin; j < seen.end; j++) {
            struct pair pair = backward_pair(args, seq, i, h, j, delta);
            const float *k = (const float *)seq->k + j * args->k_stride + g * args->dim_k;

            for (size_t d = 0; d < args->dim_k; d++)
                dq[d] = fmaf(pair.ds, k[d], dq[d]);
        }
    }
}

/* Add to dk and dv of key j what query row i of head h gives. */
static void backward_key(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t i, size_t h, size_t j)
{
    size_t g = h / (args->heads / args->kv_heads), row = seq->q_row + i;
    const float *q = &args->q[row * args->q_stride + h * args->dim_k];
    const float *dout = &args->dout[row * args->out_stride + h * args->dim_v];
    struct pair pair = backward_pair(args, seq, i, h, j, ash_ref_row_delta(args, row, h));
    float *dk = &seq->dk[j * args->k_stride + g * args->dim_k], *dv = &seq->dv[j * args->v_stride + g * args->dim_v];

    for (size_t d = 0; d < args->dim_k; d++)
        dk[d] = fmaf(pair.ds, q[d], dk[d]);
    for (size_t d = 0; d < args->dim_v; d++)
        dv[d] = fmaf(pair.p, dout[d], dv[d]);
}

/* dk and dv of one key of one kv head: query heads of its group ascending, then query rows ascending. */
static void backward_keys(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;
    size_t group = args->heads / args->kv_heads;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t j, g = unit % args->kv_heads;
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->kv_heads, &j);
        size_t last = args->window != 0 && j + args->window < seq->q_count ? j + args->window : seq->q_count;

        if (args->chunk != 0 && (j / args->chunk + 1) * args->chunk < last) last = (j / args->chunk + 1) * args->chunk;
        for (size_t h = g * group; h < (g + 1) * group; h++)
            for (size_t i = j; i < last; i++)
                backward_key(args, seq, i, h, j);
    }
}

static void backward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    ash_assert(!args->both_ways);
    ash_ref_attn_backward(exec, args, backward_queries, backward_keys);
}

const struct ash_attn_ops ash_ref_attn = {.forward = forward, .backward = backward, .kv_write = ash_ref_kv_write};
