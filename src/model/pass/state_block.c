/* state_block: see the header. */
#include "model/pass/state_block.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/backends/state_ops.h"
#include "model/pass/cache_step.h"
#include "model/pass/copy.h"
#include "model/pass/join.h"
#include "model/pass/linear_grads.h"
#include "model/pass/norm.h"
#include "model/pass/state_project.h"
#include "model/state_widths.h"

/* The batch's rows, document by document and, with a cache, page by page. Returns how many sequences. */
static size_t list_seqs(const struct ash_pass_step *step, size_t layer)
{
    size_t count = 0;

    for (size_t i = 0; i < step->batch->doc_count; i++) {
        const struct ash_doc *doc = &step->batch->docs[i];
        size_t done = 0, part;

        for (; done < doc->count; done += part) {
            size_t at = doc->pos + done, page = at / ASH_CACHE_PAGE_TOKENS;
            struct ash_state_seq *seq = &step->state_seqs[count++];

            part =
                step->cache == NULL ? doc->count : ash_min(doc->count - done, (page + 1) * ASH_CACHE_PAGE_TOKENS - at);
            *seq = (struct ash_state_seq){.row = doc->row + done, .count = part};
            if (step->cache == NULL) continue;
            seq->to = ash_cache_state(step->cache, doc->pages[page], layer);
            if (at > 0) seq->from = ash_cache_state(step->cache, doc->pages[(at - 1) / ASH_CACHE_PAGE_TOKENS], layer);
        }
    }
    return count;
}

static struct ash_conv_args conv_args(const struct ash_pass_step *step, size_t layer, size_t seq_count)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *param = step->model->layers[layer].param;
    struct ash_state_acts *acts = &step->acts->layers[layer].state;
    struct ash_state_widths widths = ash_state_widths_of(c);

    ash_assert(layer < c->layers);
    return (struct ash_conv_args){.channels = widths.channels,
                                  .taps = c->state.taps,
                                  .seqs = step->state_seqs,
                                  .seq_count = seq_count,
                                  .x = acts->all + widths.inner,
                                  .x_stride = widths.all,
                                  .weight = ash_model_vector(step->model, param[ASH_ROLE_STATE_CONV]),
                                  .bias = ash_model_vector(step->model, param[ASH_ROLE_STATE_CONV_BIAS]),
                                  .out = acts->xbc};
}

static struct ash_scan_args scan_args(const struct ash_pass_step *step, size_t layer, size_t seq_count)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_state_config *s = &c->state;
    const int32_t *param = step->model->layers[layer].param;
    struct ash_state_acts *acts = &step->acts->layers[layer].state;
    struct ash_state_widths widths = ash_state_widths_of(c);
    size_t keys = s->groups * s->size; /* the delta rule's rows have queries (C), keys (B), values (x) */
    const float *raw = acts->all + widths.inner + widths.channels;

    ash_assert(layer < c->layers);
    return (struct ash_scan_args){.rows = step->rows,
                                  .heads = s->heads,
                                  .groups = s->groups,
                                  .dims = s->head_dim,
                                  .size = s->size,
                                  .seqs = step->state_seqs,
                                  .seq_count = seq_count,
                                  .state_offset = ash_state_conv_floats(c),
                                  .xbc = acts->xbc,
                                  .xbc_stride = widths.channels,
                                  .x_at = s->is_delta ? 2 * keys : 0,
                                  .b_at = s->is_delta ? keys : widths.inner,
                                  .c_at = s->is_delta ? 0 : widths.inner + keys,
                                  .raw = raw,
                                  .raw_stride = widths.all,
                                  .beta = s->is_delta ? raw + s->heads : NULL,
                                  .step_bias = ash_model_vector(step->model, param[ASH_ROLE_STATE_STEP_BIAS]),
                                  .decay = ash_model_vector(step->model, param[ASH_ROLE_STATE_DECAY]),
                                  .skip = ash_model_vector(step->model, param[ASH_ROLE_STATE_SKIP]),
                                  .step_min = (float)s->step_min,
                                  .step_max = (float)s->step_max,
                                  .y = acts->y,
                                  .kept = acts->kept};
}

/* Part `group` of the norm of what the gate let through, or will. */
static struct ash_norm_args part_norm(const struct ash_pass_step *step, size_t layer, size_t group)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_state_acts *acts = &step->acts->layers[layer].state;
    bool is_one = c->state.norm_shares_weight; /* one call for all groups */
    size_t inner = ash_state_widths_of(c).inner, cols = inner / c->state.norm_groups, first = group * cols;

    ash_assert(layer < c->layers && group < c->state.norm_groups);
    return (struct ash_norm_args){
        .rows = step->rows,
        .groups = is_one ? c->state.norm_groups : 1,
        .cols = cols,
        .x_stride = inner,
        .y_stride = inner,
        .x = (c->state.norm == ASH_STATE_NORM_BEFORE_GATE ? acts->y : acts->gated) + first,
        .weight = ash_model_vector(step->model, step->model->layers[layer].param[ASH_ROLE_STATE_NORM]) + first,
        .eps = (float)c->norm_eps,
        .y = acts->normed + first,
        .rstd = acts->rstd + group * step->rows,
        .round_bf16 = step->model->round_bf16,
        .seq_rows = step->seq_rows};
}

/* Calls of the norm of a row. */
static size_t norm_parts(const struct ash_pass_step *step)
{
    const struct ash_state_config *s = &step->model->config.state;

    return s->norm_shares_weight ? 1 : s->norm_groups;
}

static void norm_forward(const struct ash_pass_step *step, size_t layer)
{
    for (size_t i = 0; i < norm_parts(step); i++) {
        struct ash_norm_args args = part_norm(step, layer, i);

        step->exec->ops->norm->rms_forward(step->exec, &args);
    }
}

/* d becomes the gradient of what the norm reads. */
static void norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, float *d)
{
    const struct ash_model_config *c = &step->model->config;
    int32_t param = step->model->layers[layer].param[ASH_ROLE_STATE_NORM];
    size_t cols = ash_state_widths_of(c).inner / c->state.norm_groups;
    float *dweight = ash_grad_acquire(sink, param, ASH_GRAD_ALL);

    ash_assert(layer < c->layers && d != NULL);
    for (size_t i = 0; i < norm_parts(step); i++) {
        struct ash_norm_args args = part_norm(step, layer, i);

        args.dy = args.dx = d + i * cols;
        args.dweight = dweight != NULL ? dweight + i * cols : NULL;
        step->exec->ops->norm->rms_backward(step->exec, &args);
    }
    ash_grad_release(sink, param, ASH_GRAD_ALL);
}

/* What the scan's output becomes before the projection: through the gate and, before or after it, the norm. */
static const float *gate_forward(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_state_config *s = &step->model->config.state;
    struct ash_state_acts *acts = &step->acts->layers[layer].state;
    struct ash_state_widths widths = ash_state_widths_of(&step->model->config);
    bool is_before = s->norm == ASH_STATE_NORM_BEFORE_GATE;

    ash_assert(layer < step->model->config.layers);
    ash_copy_columns(step->exec, step->rows, widths.inner, (struct ash_rows_from){acts->all, widths.all},
                     (struct ash_rows_to){acts->gate, widths.inner});
    if (is_before) norm_forward(step, layer);
    step->exec->ops->act->swiglu_forward(step->exec, &(struct ash_swiglu_args){.count = step->rows * widths.inner,
                                                                               .gate = acts->gate,
                                                                               .up = is_before ? acts->normed : acts->y,
                                                                               .out = acts->gated});
    if (s->norm == ASH_STATE_NORM_GATED) norm_forward(step, layer);
    return s->norm == ASH_STATE_NORM_GATED ? acts->normed : acts->gated;
}

static struct ash_norm_params norm_params(const struct ash_pass_step *step, size_t layer)
{
    return (struct ash_norm_params){step->model->layers[layer].param[ASH_ROLE_NORM1], ASH_NO_PARAM};
}

void ash_state_block_forward(const struct ash_pass_step *step, size_t layer, const float *in, float *out)
{
    const struct ash_state_ops *ops = ash_state_ops_of(step->exec);
    const int32_t *param = step->model->layers[layer].param;
    struct ash_layer_acts *acts = &step->acts->layers[layer];
    struct ash_state_widths widths = ash_state_widths_of(&step->model->config);
    size_t seqs = list_seqs(step, layer);
    struct ash_conv_args conv = conv_args(step, layer, seqs);
    struct ash_scan_args scan = scan_args(step, layer, seqs);
    const float *gated;

    ash_assert(ops != NULL && in != NULL && out != NULL);
    ash_norm_forward(step, norm_params(step, layer), in, &acts->attn.norm);
    ash_state_project_forward(step, layer, acts->attn.norm.out);
    ops->conv_forward(step->exec, &conv);
    ops->scan_forward(step->exec, &scan);
    gated = gate_forward(step, layer);
    ash_join_product(step, layer, ASH_BLOCK_STATE,
                     &(struct ash_linear_group){
                         .rows = step->rows,
                         .x = gated,
                         .x_stride = widths.inner,
                         .norm = ASH_NO_PARAM,
                         .out_count = 1,
                         .outs[0] = {.weight = param[ASH_ROLE_STATE_OUT], .bias = param[ASH_ROLE_STATE_OUT_BIAS]}},
                     in, out);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Add the sums over columns of x to a vector's gradient. */
static void add_columns(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t param, const float *x,
                        size_t stride)
{
    float *sum = ash_grad_acquire(sink, param, ASH_GRAD_ALL);

    if (sum != NULL)
        step->exec->ops->matrix->column_sum(
            step->exec,
            &(struct ash_column_sum_args){
                .rows = step->rows, .cols = step->model->config.state.heads, .x = x, .stride = stride, .sum = sum});
    ash_grad_release(sink, param, ASH_GRAD_ALL);
}

/* From the gradient of the block's output to those of what the gate and the scan gave. */
static void gate_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *dy)
{
    const int32_t *param = step->model->layers[layer].param;
    const struct ash_state_acts *acts = &step->acts->layers[layer].state;
    struct ash_state_acts *d = &step->acts->scratch.dstate;
    size_t inner = ash_state_widths_of(&step->model->config).inner, hidden = step->model->config.hidden;
    enum ash_state_norm norm = step->model->config.state.norm;
    bool is_before = norm == ASH_STATE_NORM_BEFORE_GATE;

    ash_assert(dy != NULL);
    ash_linear_backward(step, sink, param[ASH_ROLE_STATE_OUT], param[ASH_ROLE_STATE_OUT_BIAS],
                        &(struct ash_linear_io){.rows = step->rows,
                                                .x = norm == ASH_STATE_NORM_GATED ? acts->normed : acts->gated,
                                                .x_stride = inner,
                                                .dy = dy,
                                                .dy_stride = hidden,
                                                .dx = d->normed,
                                                .dx_stride = inner,
                                                .seq_rows = step->seq_rows});
    if (norm == ASH_STATE_NORM_GATED) norm_backward(step, sink, layer, d->normed);
    step->exec->ops->act->swiglu_backward(step->exec,
                                          &(struct ash_swiglu_grad_args){.count = step->rows * inner,
                                                                         .gate = acts->gate,
                                                                         .up = is_before ? acts->normed : acts->y,
                                                                         .dout = d->normed,
                                                                         .dgate = d->gate,
                                                                         .dup = d->y});
    if (is_before) norm_backward(step, sink, layer, d->y);
}

/* From there to the gradient of the projection. */
static void scan_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    const struct ash_state_ops *ops = ash_state_ops_of(step->exec);
    const int32_t *param = step->model->layers[layer].param;
    struct ash_state_acts *d = &step->acts->scratch.dstate;
    struct ash_state_widths widths = ash_state_widths_of(&step->model->config);
    size_t seqs = list_seqs(step, layer), heads = step->model->config.state.heads;
    struct ash_conv_args conv = conv_args(step, layer, seqs);
    struct ash_scan_args scan = scan_args(step, layer, seqs);

    ash_assert(ops != NULL && step->cache == NULL);
    scan.dy = d->y;
    scan.dxbc = d->xbc;
    scan.draw = d->all + widths.inner + widths.channels;
    scan.dbeta = scan.draw + heads;
    scan.draw_stride = widths.all;
    scan.dparams = d->rstd;
    scan.work = d->kept;
    ops->scan_backward(step->exec, &scan);
    add_columns(step, sink, param[ASH_ROLE_STATE_STEP_BIAS], scan.draw, widths.all);
    add_columns(step, sink, param[ASH_ROLE_STATE_DECAY], scan.dparams, 2 * heads);
    if (param[ASH_ROLE_STATE_SKIP] != ASH_NO_PARAM)
        add_columns(step, sink, param[ASH_ROLE_STATE_SKIP], scan.dparams + heads, 2 * heads);
    conv.dout = d->xbc;
    conv.dx = d->all + widths.inner;
    conv.dx_stride = widths.all;
    conv.dweight = ash_grad_acquire(sink, param[ASH_ROLE_STATE_CONV], ASH_GRAD_ALL);
    conv.dbias = ash_grad_acquire(sink, param[ASH_ROLE_STATE_CONV_BIAS], ASH_GRAD_ALL);
    ops->conv_backward(step->exec, &conv);
    ash_grad_release_both(sink, param[ASH_ROLE_STATE_CONV], param[ASH_ROLE_STATE_CONV_BIAS], ASH_GRAD_ALL);
    ash_copy_columns(step->exec, step->rows, widths.inner, (struct ash_rows_from){d->gate, widths.inner},
                     (struct ash_rows_to){d->all, widths.all});
}

void ash_state_block_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    struct ash_layer_acts *acts = &step->acts->layers[layer];
    struct ash_scratch *s = &step->acts->scratch;
    bool both = ash_config_attends(&step->model->config, layer);
    const float *dy = ash_join_backward(step, sink, layer, ASH_BLOCK_STATE);

    ash_assert(layer < step->model->config.layers && step->axes->cp.size == 1 && step->axes->tp.size == 1);
    if (ash_norm_is_recomputed(step, &acts->attn.norm))
        ash_norm_forward(step, norm_params(step, layer), acts->in, &acts->attn.norm);
    gate_backward(step, sink, layer, dy);
    scan_backward(step, sink, layer);
    ash_state_project_backward(step, sink, layer, acts->attn.norm.out, both ? s->dparallel : s->dnorm);
    if (both) return; /* attention's gradient comes first */
    ash_norm_backward(step, sink, norm_params(step, layer), acts->in, &acts->attn.norm, true);
}
