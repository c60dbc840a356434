/* Recurrent states in plain C: a head's state goes from row to row. Backward makes the states of a few rows again from
 * the one before them that forward kept, and walks back. */
#include "compute/ref/state_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/workers.h"
#include "compute/lanes.h"
#include "compute/mathf.h"
#include "compute/ref/ref.h"

#define SOFTPLUS_LINEAR 20.0f /* from here on it is its argument */

static float softplus(float x)
{
    float e, u;

    if (x > SOFTPLUS_LINEAR) return x;
    e = ash_expf(x);
    u = 1.0f + e;
    return u == 1.0f ? e : ash_logf(u) * (e / (u - 1.0f));
}

/* What a head reads in a row. */
struct row {
    const float *x, *b, *c;
    float raw, step, decay, a; /* decay: exp of the parameter */
};

static struct row row_of(const struct ash_scan_args *args, size_t head, size_t r)
{
    const float *xbc = args->xbc + r * args->xbc_stride, *groups = xbc + args->heads * args->dims;
    size_t group = head / (args->heads / args->groups);
    struct row row = {.x = xbc + head * args->dims,
                      .b = groups + group * args->size,
                      .c = groups + (args->groups + group) * args->size,
                      .raw = args->raw[r * args->raw_stride + head] + args->step_bias[head],
                      .decay = ash_expf(args->decay[head])};

    row.step = softplus(row.raw);
    if (row.step < args->step_min) row.step = args->step_min;
    if (row.step > args->step_max) row.step = args->step_max;
    row.a = ash_expf(-row.decay * row.step);
    return row;
}

/* to = from after the row. */
static void advance(const struct ash_scan_args *args, const struct row *row, const float *from, float *to)
{
    for (size_t d = 0; d < args->dims; d++) {
        float u = row->step * row->x[d];

        for (size_t n = 0; n < args->size; n++)
            to[d * args->size + n] = fmaf(from[d * args->size + n], row->a, u * row->b[n]);
    }
}

static float dot(const float *a, const float *b, size_t count)
{
    float lanes[ASH_LANES] = {0};

    for (size_t n = 0; n < count; n++)
        lanes[n % ASH_LANES] = fmaf(a[n], b[n], lanes[n % ASH_LANES]);
    return ash_lanes_fold(lanes);
}

static float *kept_at(const struct ash_scan_args *args, size_t head, size_t r)
{
    size_t each = args->dims * args->size;

    return args->kept + (r / ASH_STATE_ROWS * args->heads + head) * each;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void forward_seq(const struct ash_scan_args *args, const struct ash_state_seq *seq, size_t head, float *state)
{
    size_t each = args->dims * args->size, at = args->state_offset + head * each;

    if (seq->from != NULL)
        memcpy(state, seq->from + at, each * sizeof(float));
    else
        memset(state, 0, each * sizeof(float));
    for (size_t r = seq->row; r < seq->row + seq->count; r++) {
        struct row row = row_of(args, head, r);
        float *y = args->y + (r * args->heads + head) * args->dims;

        if (args->kept != NULL && r % ASH_STATE_ROWS == 0) memcpy(kept_at(args, head, r), state, each * sizeof(float));
        advance(args, &row, state, state);
        for (size_t d = 0; d < args->dims; d++)
            y[d] = fmaf(args->skip[head], row.x[d], dot(state + d * args->size, row.c, args->size));
    }
    if (seq->to != NULL) memcpy(seq->to + at, state, each * sizeof(float));
}

/* One call of an op, as its workers get it. */
struct scan {
    struct ash_exec *exec;
    const struct ash_scan_args *args;
};

static void forward_heads(void *ctx, size_t begin, size_t end, int worker)
{
    const struct scan *scan = ctx;
    const struct ash_scan_args *args = scan->args;
    float *state = ash_exec_scratch(scan->exec, worker, args->dims * args->size * sizeof(float));

    for (size_t h = begin; h < end; h++)
        for (size_t s = 0; s < args->seq_count; s++)
            forward_seq(args, &args->seqs[s], h, state);
}

static void scan_forward(struct ash_exec *exec, const struct ash_scan_args *args)
{
    struct scan scan = {exec, args};

    ash_assert(args->groups > 0 && args->heads % args->groups == 0);
    ash_workers_run(exec->workers, args->heads, 1, forward_heads, &scan);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Gradients of a head in a row, from before (the state before it), state (after it) and dstate, which becomes that of
 * the state before. */
static void backward_row(const struct ash_scan_args *args, size_t head, size_t r, const float *before,
                         const float *state, float *dstate)
{
    struct row row = row_of(args, head, r);
    size_t size = args->size;
    const float *dy = args->dy + (r * args->heads + head) * args->dims;
    float *dx = args->dxbc + r * args->xbc_stride + head * args->dims;
    float *db = args->work + (2 * r * args->heads + head) * size, *dc = db + args->heads * size;
    float lanes[ASH_LANES] = {0}, dstep = 0.0f, dskip = 0.0f, da;

    memset(db, 0, size * sizeof(float));
    memset(dc, 0, size * sizeof(float));
    for (size_t d = 0; d < args->dims; d++) {
        float u = row.step * row.x[d], du;
        float *ds = dstate + d * size;

        for (size_t n = 0; n < size; n++) {
            ds[n] = fmaf(dy[d], row.c[n], ds[n]);
            dc[n] = fmaf(dy[d], state[d * size + n], dc[n]);
            db[n] = fmaf(ds[n], u, db[n]);
            lanes[n % ASH_LANES] = fmaf(ds[n], before[d * size + n], lanes[n % ASH_LANES]);
        }
        du = dot(ds, row.b, size);
        dx[d] = fmaf(args->skip[head], dy[d], row.step * du);
        dstep = fmaf(row.x[d], du, dstep);
        dskip = fmaf(dy[d], row.x[d], dskip);
        for (size_t n = 0; n < size; n++)
            ds[n] = ds[n] * row.a;
    }
    da = ash_lanes_fold(lanes) * row.a;
    dstep = fmaf(-row.decay, da, dstep);
    if (row.step <= args->step_min || row.step >= args->step_max) dstep = 0.0f;
    args->draw[r * args->draw_stride + head] = dstep * ash_sigmoidf(row.raw);
    args->dparams[2 * r * args->heads + head] = -(row.decay * row.step) * da;
    args->dparams[(2 * r + 1) * args->heads + head] = dskip;
}

/* Rows first ... end - 1 of a sequence, back to front. history: room for ASH_STATE_ROWS + 1 states. */
static void backward_rows(const struct ash_scan_args *args, size_t head, struct ash_range rows, bool begins,
                          float *history, float *dstate)
{
    size_t each = args->dims * args->size;

    if (begins)
        memset(history, 0, each * sizeof(float));
    else
        memcpy(history, kept_at(args, head, rows.first), each * sizeof(float));
    for (size_t i = 0; i < rows.count; i++) {
        struct row row = row_of(args, head, rows.first + i);

        advance(args, &row, history + i * each, history + (i + 1) * each);
    }
    for (size_t i = rows.count; i-- > 0;)
        backward_row(args, head, rows.first + i, history + i * each, history + (i + 1) * each, dstate);
}

static void backward_heads(void *ctx, size_t begin, size_t end, int worker)
{
    const struct scan *scan = ctx;
    const struct ash_scan_args *args = scan->args;
    size_t each = args->dims * args->size;
    float *dstate = ash_exec_scratch(scan->exec, worker, (ASH_STATE_ROWS + 2) * each * sizeof(float));

    for (size_t h = begin; h < end; h++)
        for (size_t s = args->seq_count; s-- > 0;) {
            const struct ash_state_seq *seq = &args->seqs[s];

            memset(dstate, 0, each * sizeof(float));
            for (size_t last = seq->row + seq->count; last > seq->row;) {
                size_t first = ash_max((last - 1) / ASH_STATE_ROWS * ASH_STATE_ROWS, seq->row);

                backward_rows(args, h, (struct ash_range){first, last - first}, first == seq->row, dstate + each,
                              dstate);
                last = first;
            }
        }
}

/* Those of B and C: over the heads of a group. */
static void sum_groups(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_scan_args *args = ctx;
    size_t size = args->size, each = args->heads / args->groups;

    (void)worker;
    for (size_t r = begin; r < end; r++)
        for (size_t part = 0; part < 2 * args->groups; part++) {
            float *out = args->dxbc + r * args->xbc_stride + args->heads * args->dims + part * size;
            const float *from = args->work + 2 * r * args->heads * size + part * each * size;

            for (size_t n = 0; n < size; n++) {
                float sum = 0.0f;

                for (size_t h = 0; h < each; h++)
                    sum = sum + from[h * size + n];
                out[n] = sum;
            }
        }
}

static void scan_backward(struct ash_exec *exec, const struct ash_scan_args *args)
{
    struct scan scan = {exec, args};

    ash_assert(args->kept != NULL && args->work != NULL);
    ash_workers_run(exec->workers, args->heads, 1, backward_heads, &scan);
    ash_workers_run(exec->workers, args->rows, 8, sum_groups, (void *)(uintptr_t)args);
}

const struct ash_state_ops ash_ref_state = {.conv_forward = ash_ref_conv_forward,
                                            .conv_backward = ash_ref_conv_backward,
                                            .scan_forward = scan_forward,
                                            .scan_backward = scan_backward};
