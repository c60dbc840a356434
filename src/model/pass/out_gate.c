/* out_gate: see the header. Rows are independent, so threads change no bit. */
#include "model/pass/out_gate.h"

#include "base/assert.h"
#include "base/workers.h"
#include "compute/lanes.h"
#include "compute/mathf.h"

#define GATE_MIN_ROWS 4

/* What a call's workers get. */
struct gate_call {
    const struct ash_pass_step *step;
    size_t layer;
    const float *dy;
    float *out;
};

static void run(const struct ash_pass_step *step, const struct gate_call *call,
                void (*rows)(void *ctx, size_t begin, size_t end, int worker))
{
    ash_assert(call->layer < step->model->config.layers);
    ash_workers_run(step->exec->workers, step->rows, GATE_MIN_ROWS, rows, (void *)(uintptr_t)call);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gate_call *call = ctx;
    const struct ash_model_config *c = &call->step->model->config;
    const struct ash_attn_acts *acts = &call->step->acts->layers[call->layer].attn;
    size_t dim = c->head_dim, width = c->heads * dim;

    (void)worker;
    for (size_t i = begin * width; i < end * width; i++)
        acts->gated[i] = acts->rows.out[i] * ash_sigmoidf(acts->q_gate[i / dim * 2 * dim + dim + i % dim]);
}

static void backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gate_call *call = ctx;
    const struct ash_model_config *c = &call->step->model->config;
    const struct ash_attn_acts *acts = &call->step->acts->layers[call->layer].attn;
    const struct ash_scratch *s = &call->step->acts->scratch;
    size_t dim = c->head_dim, width = c->heads * dim;

    (void)worker;
    for (size_t i = begin * width; i < end * width; i++) {
        size_t at = i / dim * 2 * dim + dim + i % dim;
        float d = s->dattn.out[i], gate = ash_sigmoidf(acts->q_gate[at]);

        s->dq_gate[at] = (d * acts->rows.out[i]) * (gate * (1.0f - gate));
        s->dattn.out[i] = d * gate;
    }
}

void ash_out_gate_forward(const struct ash_pass_step *step, size_t layer)
{
    run(step, &(struct gate_call){.step = step, .layer = layer}, forward_rows);
}

void ash_out_gate_backward(const struct ash_pass_step *step, size_t layer)
{
    ash_assert(step->acts->scratch.dq_gate != NULL);
    run(step, &(struct gate_call){.step = step, .layer = layer}, backward_rows);
}

void ash_out_gate_copy_queries(const struct ash_pass_step *step, float *gates, float *queries, size_t stride,
                               bool to_gates)
{
    size_t heads = step->model->config.heads, dim = step->model->config.head_dim, row = 2 * heads * dim;

    ash_assert(gates != NULL && queries != NULL);
    step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = step->rows,
                                                                   .blocks = heads,
                                                                   .cols = dim,
                                                                   .src = to_gates ? queries : gates,
                                                                   .src_row = to_gates ? stride : row,
                                                                   .src_block = to_gates ? dim : 2 * dim,
                                                                   .dst = to_gates ? gates : queries,
                                                                   .dst_dtype = ASH_F32,
                                                                   .dst_row = to_gates ? row : stride,
                                                                   .dst_block = to_gates ? 2 * dim : dim});
}

/* ---- shared experts ---------------------------------------------------------------------------------------------- */

static void shared_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gate_call *call = ctx;
    const struct ash_moe_acts *moe = &call->step->acts->layers[call->layer].moe;
    size_t hidden = call->step->model->config.hidden;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float gate = ash_sigmoidf(moe->shared_gate[r]);

        for (size_t c = 0; c < hidden; c++)
            call->out[r * hidden + c] = moe->shared_y[r * hidden + c] * gate;
    }
}

static void shared_backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct gate_call *call = ctx;
    const struct ash_moe_acts *moe = &call->step->acts->layers[call->layer].moe;
    const struct ash_scratch *s = &call->step->acts->scratch;
    size_t hidden = call->step->model->config.hidden;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float gate = ash_sigmoidf(moe->shared_gate[r]), lanes[ASH_LANES] = {0};

        for (size_t c = 0; c < hidden; c++) {
            float d = call->dy[r * hidden + c];

            lanes[c % ASH_LANES] = fmaf(d, moe->shared_y[r * hidden + c], lanes[c % ASH_LANES]);
            s->dshared[r * hidden + c] = d * gate;
        }
        s->dshared_gate[r] = ash_lanes_fold(lanes) * (gate * (1.0f - gate));
    }
}

void ash_shared_gate_forward(const struct ash_pass_step *step, size_t layer, float *out)
{
    ash_assert(out != NULL);
    run(step, &(struct gate_call){.step = step, .layer = layer, .out = out}, shared_rows);
}

void ash_shared_gate_backward(const struct ash_pass_step *step, size_t layer, const float *dy)
{
    ash_assert(dy != NULL && step->acts->scratch.dshared != NULL);
    run(step, &(struct gate_call){.step = step, .layer = layer, .dy = dy}, shared_backward_rows);
}
