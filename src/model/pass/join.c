/* join: the plain way is one product that adds; the others keep the block's output for the backward pass. */
#include "model/pass/join.h"

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/gather.h"
#include "model/pass/norm.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/stream.h"

static struct ash_norm_params norm_params(const struct ash_pass_step *step, size_t layer, enum ash_block block)
{
    const int32_t *param = step->model->layers[layer].param;

    if (block == ASH_BLOCK_STATE) return (struct ash_norm_params){ASH_NO_PARAM, ASH_NO_PARAM};
    return block == ASH_BLOCK_ATTN ? (struct ash_norm_params){param[ASH_ROLE_POST1], param[ASH_ROLE_POST1_BIAS]}
                                   : (struct ash_norm_params){param[ASH_ROLE_POST2], param[ASH_ROLE_POST2_BIAS]};
}

static const struct ash_join_acts *acts_of(const struct ash_pass_step *step, size_t layer, enum ash_block block)
{
    const struct ash_layer_acts *acts = &step->acts->layers[layer];

    return block == ASH_BLOCK_ATTN ? &acts->attn_join : &acts->ffn_join;
}

static bool has_norm(const struct ash_pass_step *step, size_t layer, enum ash_block block)
{
    return norm_params(step, layer, block).weight != ASH_NO_PARAM;
}

/* The factor of a block's output; 0: none. */
static double scale_of(const struct ash_pass_step *step, enum ash_block block)
{
    const struct ash_model_form *form = &step->model->config.form;

    if (form->block_scale[block] == 0) return form->residual_scale;
    return form->block_scale[block] * (form->residual_scale != 0 ? form->residual_scale : 1);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

float *ash_join_output(const struct ash_pass_step *step, size_t layer, enum ash_block block)
{
    return has_norm(step, layer, block) ? acts_of(step, layer, block)->y : step->acts->scratch.residual;
}

/* The norm of the stream after a block, where the family has one. */
static void norm_sum(const struct ash_pass_step *step, size_t layer, enum ash_block block, float *x)
{
    const int32_t *param = step->model->layers[layer].param;
    struct ash_norm_params attn = {param[ASH_ROLE_SUM1], param[ASH_ROLE_SUM1_BIAS]},
                           ffn = {param[ASH_ROLE_SUM2], param[ASH_ROLE_SUM2_BIAS]};

    ash_norm_in_place(step, block == ASH_BLOCK_ATTN ? attn : ffn, x);
}

void ash_join_add(const struct ash_pass_step *step, size_t layer, enum ash_block block, const float *before,
                  float *after)
{
    const struct ash_row_ops *row = step->exec->ops->row;
    double scale = scale_of(step, block);
    size_t count = step->own.count * step->model->config.hidden;
    float *out = step->acts->scratch.residual;

    ash_assert(before != NULL && after != NULL);
    if (has_norm(step, layer, block)) {
        struct ash_norm_acts acts = acts_of(step, layer, block)->norm;

        acts.out = out;
        ash_norm_forward(step, norm_params(step, layer, block), acts_of(step, layer, block)->y, &acts);
    }
    if (scale != 0) row->scale(step->exec, out, (float)scale, count);
    row->add(step->exec, before, out, count, after);
    norm_sum(step, layer, block, after);
}

void ash_join_product(const struct ash_pass_step *step, size_t layer, enum ash_block block,
                      struct ash_linear_group *group, const float *before, float *after)
{
    struct ash_linear_out *out = &group->outs[0];

    if (!has_norm(step, layer, block) && scale_of(step, block) == 0) {
        ash_row_parallel_add(step, group, before, after);
        norm_sum(step, layer, block, after);
        return;
    }
    ash_assert(group->out_count == 1);
    out->y = ash_join_output(step, layer, block);
    out->y_stride = step->model->config.hidden;
    if (ash_gathers(step))
        ash_copy_columns(step->exec, step->rows, step->model->config.hidden,
                         (struct ash_rows_from){ash_gather_product(step, group), step->model->config.hidden},
                         (struct ash_rows_to){ash_join_output(step, layer, block), step->model->config.hidden});
    else if (step->axes->tp.size > 1)
        ash_row_parallel_forward(step, out->weight, out->bias, group->x, group->x_stride, out->y);
    else
        ash_linear_project(step, group);
    ash_join_add(step, layer, block, before, after);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

const float *ash_join_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                               enum ash_block block)
{
    struct ash_scratch *s = &step->acts->scratch;
    double scale = scale_of(step, block);
    size_t hidden = step->model->config.hidden;

    if (!has_norm(step, layer, block) && scale == 0) return ash_stream_gather(step, s->dx, s->dy_gathered);
    ash_assert(s->djoin != NULL && !step->axes->shared_grads);
    ash_copy_columns(step->exec, step->own.count, hidden, (struct ash_rows_from){s->dx, hidden},
                     (struct ash_rows_to){s->djoin, hidden});
    if (scale != 0) step->exec->ops->row->scale(step->exec, s->djoin, (float)scale, step->own.count * hidden);
    if (has_norm(step, layer, block))
        ash_norm_backward_to(step, sink, norm_params(step, layer, block), acts_of(step, layer, block)->y,
                             &acts_of(step, layer, block)->norm, s->djoin, s->djoin);
    return ash_stream_gather(step, s->djoin, s->dy_gathered);
}
