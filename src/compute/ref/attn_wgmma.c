/* Attention whose products are bf16 with Hopper's tensor cores (wgmma.h), in plain C. Scores, probabilities times
 * values, and all gradients grow by steps of 16: over dims, over keys counted from position 0, or over query rows
 * counted from the document's first. What a row does not see takes part as zeros, which change no sum. Maximum, weights
 * (as powers of two) and their sum stay float32, blocks and sums as in attn.c; probabilities and gradients of scores
 * are rounded to bf16 before they multiply. */
#include "compute/ref/wgmma.h"

#include <string.h>
#include "base/math.h"
#include "compute/attn_pages.h"
#include "compute/mathf.h"
#include "compute/ref/attn_rows.h"

#define GROUP ASH_WGMMA_GROUP

/* One head of a row as bf16 values, with zeros up to a multiple of GROUP. */
struct line {
    float x[ASH_ATTN_HEAD_MAX + GROUP];
};

static void read_line(const void *data, enum ash_dtype dtype, size_t dim_stride, size_t count, struct line *line)
{
    for (size_t d = 0; d < ash_round_up(count, GROUP); d++)
        line->x[d] = d < count ? ash_bf16_round(ref_read(data, dtype, d * dim_stride)) : 0.0f;
}

static void read_key(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j, size_t g,
                     struct line *line)
{
    struct ash_attn_run run = ash_attn_keys(args, seq, j, g);

    read_line(run.data, args->kv_dtype, run.dim_stride, args->dim_k, line);
}

static void read_value(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j, size_t g,
                       struct line *line)
{
    struct ash_attn_run run = ash_attn_values(args, seq, j, g);

    read_line(run.data, args->kv_dtype, run.dim_stride, args->dim_v, line);
}

static void read_query(const struct ash_attn_args *args, size_t row, size_t h, struct line *line)
{
    size_t at = row * args->q_stride + h * args->dim_k;

    if (args->q_bf16 != NULL)
        read_line(args->q_bf16 + at, ASH_BF16, 1, args->dim_k, line);
    else
        read_line(args->q + at, ASH_F32, 1, args->dim_k, line);
}

static void read_dout(const struct ash_attn_args *args, size_t row, size_t h, struct line *line)
{
    read_line(args->dout + row * args->out_stride + h * args->dim_v, ASH_F32, 1, args->dim_v, line);
}

static float dot(const struct line *a, const struct line *b, size_t count)
{
    float sum = 0.0f;

    for (size_t d = 0; d < count; d += GROUP)
        sum = ash_wgmma_step(sum, a->x + d, b->x + d);
    return sum;
}

/* sums[d] plus GROUP products: weights times dim d of lines. */
static void add_lines(float *sums, size_t count, const float weights[GROUP], const struct line lines[GROUP])
{
    for (size_t d = 0; d < count; d++) {
        float column[GROUP];

        for (size_t n = 0; n < GROUP; n++)
            column[n] = lines[n].x[d];
        sums[d] = ash_wgmma_step(sums[d], weights, column);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* What a query row carries from block to block: largest product with a key, sum of weights, weighted sum of values. */
struct running {
    float max, sum;
    float acc[ASH_ATTN_HEAD_MAX];
};

/* Fold the visible keys of one block into the running state. */
static void forward_block(const struct ash_attn_args *args, const struct ash_attn_seq *seq, const struct line *q,
                          size_t g, struct ash_ref_keys keys, struct running *run)
{
    size_t base = keys.begin / ASH_ATTN_BLOCK * ASH_ATTN_BLOCK;
    float p[ASH_ATTN_BLOCK] = {0}, lanes[ASH_LANES] = {0}, max = run->max, alpha, scale2 = args->scale * ASH_LOG2E;
    struct line lines[GROUP];

    for (size_t j = keys.begin; j < keys.end; j++) {
        read_key(args, seq, j, g, lines);
        p[j - base] = dot(q, lines, args->dim_k);
        max = p[j - base] > max ? p[j - base] : max;
    }
    alpha = ash_exp2_weight(fmaf(run->max, scale2, -(max * scale2)));
    for (size_t j = keys.begin; j < keys.end; j++)
        p[j - base] = ash_exp2_weight(fmaf(p[j - base], scale2, -(max * scale2)));
    for (size_t n = 0; n < ASH_ATTN_BLOCK; n++) {
        lanes[n % ASH_LANES] = lanes[n % ASH_LANES] + p[n];
        p[n] = ash_bf16_round(p[n]);
    }
    run->max = max;
    run->sum = fmaf(run->sum, alpha, ash_lanes_fold(lanes));
    for (size_t d = 0; d < args->dim_v; d++)
        run->acc[d] = run->acc[d] * alpha;
    for (size_t first = 0; first < ASH_ATTN_BLOCK; first += GROUP) {
        memset(lines, 0, sizeof(lines));
        for (size_t n = 0; n < GROUP; n++)
            if (base + first + n >= keys.begin && base + first + n < keys.end)
                read_value(args, seq, base + first + n, g, &lines[n]);
        add_lines(run->acc, args->dim_v, p + first, lines);
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
        struct ash_ref_keys seen = ash_ref_visible_keys(args, seq->pos + i);
        size_t row = seq->q_row + i;
        struct running run = {.max = -INFINITY};
        struct line q;

        read_query(args, row, h, &q);
        for (size_t b = seen.begin / ASH_ATTN_BLOCK; b * ASH_ATTN_BLOCK < seen.end; b++) {
            struct ash_ref_keys keys = {.begin = b * ASH_ATTN_BLOCK, .end = (b + 1) * ASH_ATTN_BLOCK};

            keys.begin = keys.begin < seen.begin ? seen.begin : keys.begin;
            keys.end = keys.end > seen.end ? seen.end : keys.end;
            forward_block(args, seq, &q, g, keys, &run);
        }
        for (size_t d = 0; d < args->dim_v; d++) {
            size_t at = row * args->out_stride + h * args->dim_v + d;

            args->out[at] = run.acc[d] / run.sum;
            if (args->out_bf16 != NULL) args->out_bf16[at] = ash_f32_to_bf16(args->out[at]);
        }
        if (args->lse != NULL) args->lse[row * args->heads + h] = fmaf(run.max, args->scale, ash_logf(run.sum));
    }
}

static void forward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    if (!args->round_bf16) {
        ash_ref_attn.forward(exec, args);
        return;
    }
    ash_assert(args->scale > 0.0f); /* the largest product is the largest score */
    ash_ref_attn_forward(exec, args, forward_units);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* A query row of one head, as backward reads it. */
struct query {
    struct line q, dout;
    float lse, delta;
};

static void open_query(const struct ash_attn_args *args, size_t row, size_t h, struct query *query)
{
    read_query(args, row, h, &query->q);
    read_dout(args, row, h, &query->dout);
    query->lse = args->lse[row * args->heads + h];
    query->delta = ash_ref_row_delta(args, row, h);
}

/* Probability of the pair (query row, key), and the gradient of its scaled score: bf16 values. */
struct pair {
    float p, ds;
};

static struct pair backward_pair(const struct ash_attn_args *args, const struct query *query, const struct line *k,
                                 const struct line *v)
{
    float s = dot(&query->q, k, args->dim_k), dp = dot(&query->dout, v, args->dim_v);
    float p = ash_exp2_weight(fmaf(s, args->scale * ASH_LOG2E, -(query->lse * ASH_LOG2E)));

    return (struct pair){ash_bf16_round(p), ash_bf16_round((p * (dp - query->delta)) * args->scale)};
}

/* dq of one row of one head: groups of keys ascending. */
static void backward_queries(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t i, h = unit % args->heads, g = h / (args->heads / args->kv_heads);
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->heads, &i);
        struct ash_ref_keys seen = ash_ref_visible_keys(args, i);
        float *dq = &args->dq[(seq->q_row + i) * args->q_stride + h * args->dim_k];
        struct query query;

        open_query(args, seq->q_row + i, h, &query);
        for (size_t d = 0; d < args->dim_k; d++)
            dq[d] = 0.0f;
        for (size_t first = seen.begin / GROUP * GROUP; first < seen.end; first += GROUP) {
            struct line keys[GROUP] = {0}, value;
            float ds[GROUP] = {0};

            for (size_t n = 0; n < GROUP; n++) {
                if (first + n < seen.begin || first + n >= seen.end) continue;
                read_key(args, seq, first + n, g, &keys[n]);
                read_value(args, seq, first + n, g, &value);
                ds[n] = backward_pair(args, &query, &keys[n], &value).ds;
            }
            add_lines(dq, args->dim_k, ds, keys);
        }
    }
}

/* Add to dk and dv of key j what query rows first ... first + GROUP - 1 of head h give. */
static void backward_group(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t h, size_t first,
                           size_t j)
{
    size_t g = h / (args->heads / args->kv_heads);
    struct line queries[GROUP] = {0}, douts[GROUP] = {0}, k, v;
    float p[GROUP] = {0}, ds[GROUP] = {0};

    read_key(args, seq, j, g, &k);
    read_value(args, seq, j, g, &v);
    for (size_t n = 0; n < GROUP && first + n < seq->q_count; n++) {
        struct ash_ref_keys seen = ash_ref_visible_keys(args, first + n);
        struct query query;
        struct pair pair;

        if (j < seen.begin || j >= seen.end) continue;
        open_query(args, seq->q_row + first + n, h, &query);
        pair = backward_pair(args, &query, &k, &v);
        queries[n] = query.q;
        douts[n] = query.dout;
        p[n] = pair.p;
        ds[n] = pair.ds;
    }
    add_lines(&seq->dk[j * args->k_stride + g * args->dim_k], args->dim_k, ds, queries);
    add_lines(&seq->dv[j * args->v_stride + g * args->dim_v], args->dim_v, p, douts);
}

/* dk and dv of one key of one kv head: query heads of its group ascending, then groups of query rows ascending. */
static void backward_keys(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;
    size_t group = args->heads / args->kv_heads;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t j, g = unit % args->kv_heads;
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->kv_heads, &j);
        size_t last = args->window != 0 && j + args->window < seq->q_count ? j + args->window : seq->q_count;

        for (size_t h = g * group; h < (g + 1) * group; h++)
            for (size_t first = j / GROUP * GROUP; first < last; first += GROUP)
                backward_group(args, seq, h, first, j);
    }
}

static void backward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    if (!args->round_bf16) {
        ash_ref_attn.backward(exec, args);
        return;
    }
    ash_ref_attn_backward(exec, args, backward_queries, backward_keys);
}

const struct ash_attn_ops ash_ref_attn_wgmma = {.forward = forward, .backward = backward, .kv_write = ash_ref_kv_write};
