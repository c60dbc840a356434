/* Attention whose products are bf16 with Hopper's tensor cores (wgmma.h), in plain C. Scores, probabilities times
 * values, and all gradients grow by steps of 16: over dims, over keys counted from position 0, or over query rows
 * counted from the document's first. Keys that a row does not see take part as zeros, which change no sum.
 *   - Forward: blocks of ASH_ATTN_KEYS keys, spans of ASH_ATTN_SPAN, both from position 0. In a span weights are powers
 *     of two (ex2.h) relative to a reference that seldom moves; spans are merged ascending. Weights are rounded to bf16
 *     before they multiply, not before they are added up.
 *   - A cap of scores: products are scaled and capped before they become weights, and not scaled again.
 *   - Backward: gradients of scores are rounded to bf16 before they multiply; the scale comes last. dq adds blocks of
 *     ASH_ATTN_KEYS keys, so that each block can be made by another thread block; dk and dv are one sum. */
#include "compute/ref/wgmma.h"

#include <string.h>
#include "base/math.h"
#include "compute/attn_pages.h"
#include "compute/blocks.h"
#include "compute/family_math.h"
#include "compute/mathf.h"
#include "compute/ref/attn_rows.h"
#include "compute/ref/ex2.h"

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
    size_t at = row * args->out_stride + h * args->dim_v;

    if (args->dout_bf16 != NULL)
        read_line(args->dout_bf16 + at, ASH_BF16, 1, args->dim_v, line);
    else
        read_line(args->dout + at, ASH_F32, 1, args->dim_v, line);
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

/* Weights are powers of two relative to a reference: the scaled largest product at some block. It moves to a block's
 * largest if that is above it by more than this, so that sums are seldom scaled. */
#define REFERENCE_SLACK 8.0f

/* What a query row carries from block to block of a span, and from span to span: the reference (a power of two), sums
 * of weights by classes of keys (j modulo ASH_ATTN_CLASSES), of a span or, folded, of all; weighted sums of values. */
struct running {
    float top, classes[ASH_ATTN_CLASSES], sum;
    float acc[ASH_ATTN_HEAD_MAX];
};

/* What the exponent of a product is multiplied by. Capped products are scaled already. */
static float scale_of(const struct ash_attn_args *args)
{
    return args->cap != 0 ? ASH_LOG2E : args->scale * ASH_LOG2E;
}

static float capped(const struct ash_attn_args *args, float product)
{
    return args->cap != 0 ? ash_cap(product * args->scale, args->cap) : product;
}

/* The sum of a class's weights in a block: keys 8 apart in pairs, pairs of half a block ascending, then both halves. */
static float add_class(const float *p, size_t class)
{
    float halves[2];

    for (size_t half = 0; half < 2; half++) {
        const float *at = p + half * ASH_ATTN_KEYS / 2 + class;

        halves[half] = at[0] + at[ASH_ATTN_CLASSES];
        for (size_t n = GROUP; n < ASH_ATTN_KEYS / 2; n += GROUP)
            halves[half] = halves[half] + (at[n] + at[n + ASH_ATTN_CLASSES]);
    }
    return halves[0] + halves[1];
}

/* Products with the visible keys of a block become weights, p[n] that of key base + n. */
static void soften(struct running *span, size_t dims, float scale2, const bool *sees, float *p)
{
    float most = -INFINITY, alpha = 1.0f;

    for (size_t n = 0; n < ASH_ATTN_KEYS; n++)
        if (sees[n] && p[n] > most) most = p[n];
    most = most * scale2;
    if (most > span->top + REFERENCE_SLACK) {
        alpha = ash_ex2(span->top - most);
        span->top = most;
        for (size_t d = 0; d < dims; d++)
            span->acc[d] = span->acc[d] * alpha;
    }
    for (size_t n = 0; n < ASH_ATTN_KEYS; n++)
        p[n] = sees[n] ? ash_ex2(fmaf(p[n], scale2, -span->top)) : 0.0f;
    for (size_t c = 0; c < ASH_ATTN_CLASSES; c++)
        span->classes[c] = fmaf(span->classes[c], alpha, add_class(p, c));
    for (size_t n = 0; n < ASH_ATTN_KEYS; n++)
        p[n] = ash_bf16_round(p[n]);
}

/* Fold the visible keys of one block into the state of a span. */
static void forward_block(const struct ash_attn_args *args, const struct ash_attn_seq *seq, const struct line *q,
                          size_t g, struct ash_ref_keys keys, struct running *span)
{
    size_t base = keys.begin / ASH_ATTN_KEYS * ASH_ATTN_KEYS;
    float p[ASH_ATTN_KEYS] = {0};
    bool sees[ASH_ATTN_KEYS] = {0};
    struct line lines[GROUP];

    for (size_t j = keys.begin; j < keys.end; j++) {
        read_key(args, seq, j, g, lines);
        p[j - base] = capped(args, dot(q, lines, args->dim_k));
        sees[j - base] = true;
    }
    soften(span, args->dim_v, scale_of(args), sees, p);
    for (size_t first = 0; first < ASH_ATTN_KEYS; first += GROUP) {
        memset(lines, 0, sizeof(lines));
        for (size_t n = 0; n < GROUP; n++)
            if (sees[first + n]) read_value(args, seq, base + first + n, g, &lines[n]);
        add_lines(span->acc, args->dim_v, p + first, lines);
    }
}

/* Add a span's sums to those of the spans before it. */
static void merge_span(const struct running *span, size_t dims, struct running *all)
{
    float classes[ASH_ATTN_CLASSES], top = span->top > all->top ? span->top : all->top;
    float old = ash_ex2(all->top - top), new = ash_ex2(span->top - top);

    memcpy(classes, span->classes, sizeof(classes));
    all->sum = fmaf(all->sum, old, ash_sum_neighbours(classes, ASH_ATTN_CLASSES) * new);
    for (size_t d = 0; d < dims; d++)
        all->acc[d] = fmaf(all->acc[d], old, span->acc[d] * new);
    all->top = top;
}

/* All that a query row sees, span by span. */
static void forward_row(const struct ash_attn_args *args, const struct ash_attn_seq *seq, const struct line *q,
                        size_t g, struct ash_ref_keys seen, struct running *all)
{
    struct running span = {.top = -INFINITY};

    *all = (struct running){.top = -INFINITY};
    for (size_t base = seen.begin / ASH_ATTN_KEYS * ASH_ATTN_KEYS; base < seen.end; base += ASH_ATTN_KEYS) {
        struct ash_ref_keys keys = {.begin = ash_max(base, seen.begin), .end = ash_min(base + ASH_ATTN_KEYS, seen.end)};

        forward_block(args, seq, q, g, keys, &span);
        if ((base + ASH_ATTN_KEYS) % ASH_ATTN_SPAN != 0 && base + ASH_ATTN_KEYS < seen.end) continue;
        merge_span(&span, args->dim_v, all);
        span = (struct running){.top = -INFINITY};
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
        struct running run;
        struct line q;
        float inverse;

        read_query(args, row, h, &q);
        forward_row(args, seq, &q, g, seen, &run);
        inverse = 1.0f / run.sum;
        for (size_t d = 0; d < args->dim_v; d++) {
            size_t at = row * args->out_stride + h * args->dim_v + d;

            if (args->out != NULL) args->out[at] = run.acc[d] * inverse;
            if (args->out_bf16 != NULL) args->out_bf16[at] = ash_f32_to_bf16(run.acc[d] * inverse);
        }
        if (args->lse != NULL) args->lse[row * args->heads + h] = fmaf(run.top, ASH_LN2, ash_logf(run.sum));
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
    float lse2, delta; /* lse2: as a power of two */
    struct ash_ref_keys seen;
};

/* Row sum of dout * out, both rounded: what the softmax takes off every gradient of the row. */
static float row_delta(const struct ash_attn_args *args, size_t row, size_t h)
{
    size_t at = row * args->out_stride + h * args->dim_v;
    struct line dout, out;

    read_dout(args, row, h, &dout);
    if (args->out_bf16 != NULL)
        read_line(args->out_bf16 + at, ASH_BF16, 1, args->dim_v, &out);
    else
        read_line(args->out + at, ASH_F32, 1, args->dim_v, &out);
    return ash_sum_products(dout.x, out.x, ash_round_up(args->dim_v, GROUP));
}

static void open_query(const struct ash_attn_args *args, size_t row, size_t h, struct query *query)
{
    read_query(args, row, h, &query->q);
    read_dout(args, row, h, &query->dout);
    query->lse2 = args->lse[row * args->heads + h] * ASH_LOG2E;
    query->delta = row_delta(args, row, h);
}

/* Probability of the pair (query row, key), and the gradient of its score before the scale: bf16 values. */
struct pair {
    float p, ds;
};

static struct pair backward_pair(const struct ash_attn_args *args, const struct query *query, const struct line *k,
                                 const struct line *v)
{
    float s = capped(args, dot(&query->q, k, args->dim_k)), dp = dot(&query->dout, v, args->dim_v);
    float p = ash_ex2(fmaf(s, scale_of(args), -query->lse2)), ds = p * (dp - query->delta);

    if (args->cap != 0) ds = ds * ash_cap_slope(s, args->cap);
    return (struct pair){ash_bf16_round(p), ash_bf16_round(ds)};
}

/* Add to part what keys first ... first + GROUP - 1 give to dq of one row of one head. */
static void backward_row_group(const struct ash_attn_args *args, const struct ash_attn_seq *seq,
                               const struct query *query, size_t g, size_t first, float *part)
{
    struct line keys[GROUP] = {0}, value;
    float ds[GROUP] = {0};

    for (size_t n = 0; n < GROUP; n++) {
        if (first + n < query->seen.begin || first + n >= query->seen.end) continue;
        read_key(args, seq, first + n, g, &keys[n]);
        read_value(args, seq, first + n, g, &value);
        ds[n] = backward_pair(args, query, &keys[n], &value).ds;
    }
    add_lines(part, args->dim_k, ds, keys);
}

/* dq of one row of one head: blocks of keys ascending, each a sum of its own; in a block groups ascending. */
static void backward_queries(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t i, h = unit % args->heads, g = h / (args->heads / args->kv_heads);
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->heads, &i);
        struct ash_ref_keys seen = ash_ref_visible_keys(args, i);
        float *dq = &args->dq[(seq->q_row + i) * args->q_stride + h * args->dim_k], part[ASH_ATTN_HEAD_MAX] = {0};
        struct query query;

        open_query(args, seq->q_row + i, h, &query);
        query.seen = seen;
        memset(dq, 0, args->dim_k * sizeof(*dq));
        for (size_t first = seen.begin / GROUP * GROUP; first < seen.end; first += GROUP) {
            backward_row_group(args, seq, &query, g, first, part);
            if ((first + GROUP) % ASH_ATTN_KEYS != 0 && first + GROUP < seen.end) continue;
            for (size_t d = 0; d < args->dim_k; d++)
                dq[d] = dq[d] + part[d];
            memset(part, 0, sizeof(part));
        }
        for (size_t d = 0; d < args->dim_k; d++)
            dq[d] = dq[d] * args->scale;
    }
}

/* Sums of one key of one kv head. */
struct key_sums {
    float dk[ASH_ATTN_HEAD_MAX], dv[ASH_ATTN_HEAD_MAX];
};

/* Add to the sums of key j what query rows first ... first + GROUP - 1 of head h give. */
static void backward_key_group(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t h, size_t first,
                               size_t j, struct key_sums *sums)
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
    add_lines(sums->dk, args->dim_k, ds, queries);
    add_lines(sums->dv, args->dim_v, p, douts);
}

/* dk and dv of one key of one kv head: query heads of its group ascending, then groups of query rows ascending; one sum
 * from 0, added to the gradient at its end. */
static void backward_keys(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_attn_args *args = ctx;
    size_t group = args->heads / args->kv_heads;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t j, g = unit % args->kv_heads;
        const struct ash_attn_seq *seq = ash_ref_find_seq(args, unit / args->kv_heads, &j);
        size_t last = args->window != 0 && j + args->window < seq->q_count ? j + args->window : seq->q_count;
        float *dk = &seq->dk[j * args->k_stride + g * args->dim_k];
        float *dv = &seq->dv[j * args->v_stride + g * args->dim_v];
        struct key_sums sums = {0};

        for (size_t h = g * group; h < (g + 1) * group; h++)
            for (size_t first = j / GROUP * GROUP; first < last; first += GROUP)
                backward_key_group(args, seq, h, first, j, &sums);
        for (size_t d = 0; d < args->dim_k; d++)
            dk[d] = fmaf(sums.dk[d], args->scale, dk[d]);
        for (size_t d = 0; d < args->dim_v; d++)
            dv[d] = dv[d] + sums.dv[d];
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
