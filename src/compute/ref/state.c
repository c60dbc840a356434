/* Recurrent states in plain C: a head's state goes from row to row. Backward makes the states of a few rows again from
 * the one before them that forward kept, and walks back. */
#include "compute/ref/state_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/workers.h"
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

/* room: [2, size], which the row may point at. */
static struct ash_state_row row_of(const struct ash_scan_args *args, size_t head, size_t r, float *room)
{
    const float *xbc = args->xbc + r * args->xbc_stride;
    size_t group = head / (args->heads / args->groups);
    struct ash_state_row row = {.x = xbc + args->x_at + head * args->dims,
                                .b = xbc + args->b_at + group * args->size,
                                .c = xbc + args->c_at + group * args->size,
                                .raw = args->raw[r * args->raw_stride + head] + args->step_bias[head],
                                .decay = ash_expf(args->decay[head])};

    row.step = softplus(row.raw);
    if (row.step < args->step_min) row.step = args->step_min;
    if (row.step > args->step_max) row.step = args->step_max;
    row.a = ash_expf(-row.decay * row.step);
    if (args->beta != NULL) ash_ref_delta_row(args, head, r, room, &row);
    return row;
}

/* to = from after the row. */
static void advance(const struct ash_scan_args *args, const struct ash_state_row *row, const float *from, float *to)
{
    if (args->beta != NULL) {
        ash_ref_delta_advance(args, row, from, to);
        return;
    }
    for (size_t d = 0; d < args->dims; d++) {
        float u = row->step * row->x[d];

        for (size_t n = 0; n < args->size; n++)
            to[d * args->size + n] = fmaf(from[d * args->size + n], row->a, u * row->b[n]);
    }
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
    float *room = state + each, skip = args->skip != NULL ? args->skip[head] : 0.0f;

    if (seq->from != NULL)
        memcpy(state, seq->from + at, each * sizeof(float));
    else
        memset(state, 0, each * sizeof(float));
    for (size_t r = seq->row; r < seq->row + seq->count; r++) {
        struct ash_state_row row = row_of(args, head, r, room);
        float *y = args->y + (r * args->heads + head) * args->dims;

        if (args->kept != NULL && r % ASH_STATE_ROWS == 0) memcpy(kept_at(args, head, r), state, each * sizeof(float));
        advance(args, &row, state, state);
        for (size_t d = 0; d < args->dims; d++)
            y[d] = fmaf(skip, row.x[d], ash_ref_state_dot(state + d * args->size, row.c, args->size));
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
    float *state = ash_exec_scratch(scan->exec, worker, (args->dims + 2) * args->size * sizeof(float));

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

/* Gradients of a head in a row. */
static void backward_row(const struct ash_scan_args *args, const struct ash_state_row *given,
                         const struct ash_state_back *back)
{
    struct ash_state_row row = *given;
    const float *before = back->before, *state = back->state;
    size_t size = args->size, r = back->r, head = back->head;
    const float *dy = args->dy + (r * args->heads + head) * args->dims;
    float *dx = args->dxbc + r * args->xbc_stride + args->x_at + head * args->dims;
    float *db = args->work + (2 * r * args->heads + head) * size, *dc = db + args->heads * size;
    float lanes[ASH_LANES] = {0}, dstep = 0.0f, dskip = 0.0f, da;

    memset(db, 0, size * sizeof(float));
    memset(dc, 0, size * sizeof(float));
    for (size_t d = 0; d < args->dims; d++) {
        float u = row.step * row.x[d], du;
        float *ds = back->dstate + d * size;

        for (size_t n = 0; n < size; n++) {
            ds[n] = fmaf(dy[d], row.c[n], ds[n]);
            dc[n] = fmaf(dy[d], state[d * size + n], dc[n]);
            db[n] = fmaf(ds[n], u, db[n]);
            lanes[n % ASH_LANES] = fmaf(ds[n], before[d * size + n], lanes[n % ASH_LANES]);
        }
        du = ash_ref_state_dot(ds, row.b, size);
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

/* Rows first ... end - 1 of a sequence, back to front. history: room for ASH_STATE_ROWS + 1 states; dstate: [dims + 4,
 * size], whose last rows are room for a row of both directions. */
static void backward_rows(const struct ash_scan_args *args, size_t head, struct ash_range rows, bool begins,
                          float *history, float *dstate)
{
    size_t each = args->dims * args->size;
    float *room = dstate + each;

    if (begins)
        memset(history, 0, each * sizeof(float));
    else
        memcpy(history, kept_at(args, head, rows.first), each * sizeof(float));
    for (size_t i = 0; i < rows.count; i++) {
        struct ash_state_row row = row_of(args, head, rows.first + i, room);

        advance(args, &row, history + i * each, history + (i + 1) * each);
    }
    for (size_t i = rows.count; i-- > 0;) {
        struct ash_state_row row = row_of(args, head, rows.first + i, room);
        const float *before = history + i * each;
        struct ash_state_back back = {.head = head,
                                      .r = rows.first + i,
                                      .before = before,
                                      .state = before + each,
                                      .dstate = dstate,
                                      .room = room + 2 * args->size};

        if (args->beta != NULL)
            ash_ref_delta_backward(args, &row, &back);
        else
            backward_row(args, &row, &back);
    }
}

static void backward_heads(void *ctx, size_t begin, size_t end, int worker)
{
    const struct scan *scan = ctx;
    const struct ash_scan_args *args = scan->args;
    size_t each = args->dims * args->size, own = each + 4 * args->size;
    float *dstate = ash_exec_scratch(scan->exec, worker, ((ASH_STATE_ROWS + 1) * each + own) * sizeof(float));

    for (size_t h = begin; h < end; h++)
        for (size_t s = args->seq_count; s-- > 0;) {
            const struct ash_state_seq *seq = &args->seqs[s];

            memset(dstate, 0, each * sizeof(float));
            for (size_t last = seq->row + seq->count; last > seq->row;) {
                size_t first = ash_max((last - 1) / ASH_STATE_ROWS * ASH_STATE_ROWS, seq->row);

                backward_rows(args, h, (struct ash_range){first, last - first}, first == seq->row, dstate + own,
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
            size_t at = part < args->groups ? args->b_at + part * size : args->c_at + (part - args->groups) * size;
            float *out = args->dxbc + r * args->xbc_stride + at;
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
