/* gather: columns of all ranks, side by side. */
#include "model/pass/gather.h"

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/copy.h"

#define LOGIT_ROWS_MIN 16

/* Floats of a row of attention's output, whole. */
static size_t heads_width(const struct ash_model_config *whole)
{
    return whole->heads * (whole->attn == ASH_ATTN_LATENT ? whole->v_dim : whole->head_dim);
}

int ash_gather_open(struct ash_axes *axes, const struct ash_model *model, size_t max_rows, struct ash_err *err)
{
    const struct ash_model_config *whole = &model->whole;
    const struct ash_axis *outs = &axes->outs;
    size_t widest = ash_max(ash_max(whole->hidden, whole->ffn), ash_max(heads_width(whole), whole->expert.shared_ffn));
    int rc;

    if (outs->size == 1) return 0;
    widest = ash_max(widest, whole->expert.choices * ash_max(whole->hidden, whole->expert.ffn));
    ash_assert(axes->tp.size == 1 && axes->cp.size == 1 && axes->ep.size == 1 && outs->same_node);
    axes->gathered_floats = ash_max(max_rows * widest, LOGIT_ROWS_MIN * whole->vocab);
    rc = outs->ops->shared_open(outs->ctx, 2 * axes->gathered_floats, &axes->shared, err);
    if (rc < 0) return rc;
    axes->gathered[0] = axes->shared.data;
    axes->gathered[1] = axes->shared.data + axes->gathered_floats;
    return 0;
}

size_t ash_gather_logit_rows(const struct ash_pass_step *step)
{
    return step->axes->gathered_floats / step->model->whole.vocab;
}

/* The buffer of the next gather. */
static float *buffer_of(const struct ash_pass_step *step)
{
    return step->axes->gathered[step->axes->gathers % 2];
}

/* All ranks have written to it. */
static const float *meet(const struct ash_pass_step *step)
{
    const float *whole = buffer_of(step);

    ash_axes_barrier_outs(step->axes);
    return whole;
}

/* Columns of rows of width floats; those of part have stride floats between them. */
static const float *gather(const struct ash_pass_step *step, struct ash_rows_from part, size_t rows,
                           struct ash_range columns, size_t width)
{
    ash_assert(part.data != NULL && rows * width <= step->axes->gathered_floats && ash_range_end(columns) <= width);
    ash_copy_columns(step->exec, rows, columns.count, part,
                     (struct ash_rows_to){buffer_of(step) + columns.first, width});
    return meet(step);
}

const float *ash_gather_heads(const struct ash_pass_step *step, const float *part)
{
    const struct ash_model *model = step->model;
    struct ash_range heads = ash_slice_kv_heads(&model->whole, &model->slice);
    size_t width = heads_width(&model->whole), each = width / model->whole.kv_heads;

    if (!ash_gathers(step)) return part;
    return ash_gather_part(step, part, heads.count * each, (struct ash_range){heads.first * each, heads.count * each},
                           width);
}

const float *ash_gather_part(const struct ash_pass_step *step, const float *part, size_t stride,
                             struct ash_range columns, size_t width)
{
    return gather(step, (struct ash_rows_from){part, stride}, step->rows, columns, width);
}

const float *ash_gather_columns(const struct ash_pass_step *step, const float *part, size_t rows, size_t width)
{
    struct ash_range columns = ash_slice_columns(&step->model->whole, width, &step->model->slice);

    if (!ash_gathers(step)) return part;
    return gather(step, (struct ash_rows_from){part, columns.count}, rows, columns, width);
}

/* The product's outputs are columns of rows of width floats. */
static const float *multiply(const struct ash_pass_step *step, struct ash_linear_group *group, size_t first,
                             size_t width)
{
    ash_assert(ash_gathers(step) && group->out_count == 1 && group->rows * width <= step->axes->gathered_floats);
    group->outs[0].y = buffer_of(step) + first;
    group->outs[0].y_stride = width;
    ash_linear_project(step, group);
    return meet(step);
}

const float *ash_gather_product(const struct ash_pass_step *step, struct ash_linear_group *group)
{
    const struct ash_model *model = step->model;

    return multiply(step, group, ash_slice_hidden(&model->whole, &model->slice).first, model->whole.hidden);
}

void ash_gather_set_rows(const struct ash_pass_step *step, struct ash_linear_out *out, size_t first)
{
    size_t hidden = step->model->whole.hidden;

    ash_assert(ash_gathers(step) && (first + 1) * hidden <= step->axes->gathered_floats);
    out->y = buffer_of(step) + first * hidden;
    out->y_stride = hidden;
}

void ash_gather_set_output(const struct ash_pass_step *step, struct ash_linear_out *out, size_t first)
{
    ash_gather_set_rows(step, out, first);
    out->y += ash_slice_hidden(&step->model->whole, &step->model->slice).first;
}

const float *ash_gather_outputs(const struct ash_pass_step *step)
{
    return meet(step);
}

const float *ash_gather_logits(const struct ash_pass_step *step, struct ash_linear_group *group)
{
    return multiply(step, group, step->model->vocab.first, step->model->whole.vocab);
}
