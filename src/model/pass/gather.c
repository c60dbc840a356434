/* gather: columns of all ranks, side by side. */
#include "model/pass/gather.h"

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/copy.h"

#define LOGIT_ROWS_MIN 16
#define APART_BUFFERS 3 /* of ranks that share no memory */

/* Floats of a row of attention's output, whole. */
static size_t heads_width(const struct ash_model_config *whole)
{
    return whole->heads * (whole->attn == ASH_ATTN_LATENT ? whole->v_dim : whole->head_dim);
}

/* Floats of a buffer. */
static size_t buffer_floats(const struct ash_model *model, size_t max_rows)
{
    const struct ash_model_config *whole = &model->whole;
    size_t widest = ash_max(ash_max(whole->hidden, whole->ffn), ash_max(heads_width(whole), whole->expert.shared_ffn));

    widest = ash_max(widest, whole->expert.choices * ash_max(whole->hidden, whole->expert.ffn));
    return ash_max(max_rows * widest, LOGIT_ROWS_MIN * whole->vocab);
}

size_t ash_gather_bytes(const struct ash_model *model, const struct ash_axes *axes, size_t max_rows)
{
    return axes->outs.size > 1 ? APART_BUFFERS * buffer_floats(model, max_rows) * sizeof(float) : 0;
}

/* Ranks that share no memory: two buffers of this rank's own, and one for parts on their way. */
static int open_apart(struct ash_axes *axes, const struct ash_exec *exec, struct ash_err *err)
{
    size_t bytes = APART_BUFFERS * axes->gathered_floats * sizeof(float);
    int rc = ash_buffer_init(&axes->apart, exec->memory, bytes, "what other ranks compute", err);

    if (rc < 0) return rc;
    axes->gathered[0] = axes->apart.data;
    axes->gathered[1] = axes->gathered[0] + axes->gathered_floats;
    return 0;
}

int ash_gather_open(struct ash_axes *axes, const struct ash_model *model, const struct ash_exec *exec, size_t max_rows,
                    struct ash_err *err)
{
    const struct ash_axis *outs = &axes->outs;
    int rc;

    if (outs->size == 1) return 0;
    ash_assert(axes->tp.size == 1 && axes->cp.size == 1 && axes->ep.size == 1);
    ash_assert(!outs->same_node || exec->memory->host_visible);
    axes->gathered_floats = buffer_floats(model, max_rows);
    if (!outs->same_node) return open_apart(axes, exec, err);
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

/* ---- whole rows -------------------------------------------------------------------------------------------------- */

/* How the ranks cut a row. */
enum cut { CUT_HEADS, CUT_FFN, CUT_HIDDEN, CUT_VOCAB };

/* Columns of rank `rank` in rows of width floats. */
static struct ash_range columns_of(const struct ash_pass_step *step, enum cut cut, size_t width, size_t rank)
{
    const struct ash_model_config *whole = &step->model->whole;
    struct ash_slice slice = step->model->slice;
    struct ash_range heads;

    slice.tp_rank = rank;
    if (cut == CUT_FFN) return ash_slice_columns(whole, width, &slice);
    if (cut == CUT_HIDDEN) return ash_slice_hidden(whole, &slice);
    if (cut == CUT_VOCAB) return ash_slice_vocab(whole, &slice);
    heads = ash_slice_kv_heads(whole, &slice);
    heads.first *= width / whole->kv_heads;
    heads.count *= width / whole->kv_heads;
    return heads;
}

/* Columns of every rank, from rank to rank and back into rows. */
static void exchange_columns(const struct ash_pass_step *step, enum cut cut, size_t rows, size_t width)
{
    struct ash_axes *axes = step->axes;
    float *whole = buffer_of(step), *parts = rows > 1 ? axes->gathered[1] + axes->gathered_floats : whole, *at = parts;

    ash_assert(rows * width <= axes->gathered_floats);
    for (size_t r = 0; r < axes->outs.size; at += axes->counts[r++]) {
        struct ash_range columns = columns_of(step, cut, width, r);

        axes->counts[r] = rows * columns.count;
        if (rows > 1 && r == axes->outs.rank)
            ash_copy_columns(step->exec, rows, columns.count, (struct ash_rows_from){whole + columns.first, width},
                             (struct ash_rows_to){at, columns.count});
    }
    axes->gathers++; /* a product reads this buffer and writes the other one */
    ash_axes_all_gather(axes, &axes->outs, parts, axes->counts);
    for (size_t r = 0; r < axes->outs.size && rows > 1; parts += axes->counts[r++]) {
        struct ash_range columns = columns_of(step, cut, width, r);

        if (r != axes->outs.rank)
            ash_copy_columns(step->exec, rows, columns.count, (struct ash_rows_from){parts, columns.count},
                             (struct ash_rows_to){whole + columns.first, width});
    }
}

/* All ranks have written to it. */
static const float *meet(const struct ash_pass_step *step, enum cut cut, size_t rows, size_t width)
{
    const float *whole = buffer_of(step);

    if (step->axes->outs.same_node)
        ash_axes_barrier_outs(step->axes);
    else
        exchange_columns(step, cut, rows, width);
    return whole;
}

/* Columns of rows of width floats; those of part have stride floats between them. */
static const float *gather(const struct ash_pass_step *step, struct ash_rows_from part, size_t rows, enum cut cut,
                           size_t width)
{
    struct ash_range columns = columns_of(step, cut, width, step->axes->outs.rank);

    ash_assert(part.data != NULL && rows * width <= step->axes->gathered_floats && ash_range_end(columns) <= width);
    ash_copy_columns(step->exec, rows, columns.count, part,
                     (struct ash_rows_to){buffer_of(step) + columns.first, width});
    return meet(step, cut, rows, width);
}

const float *ash_gather_heads(const struct ash_pass_step *step, const float *part)
{
    const struct ash_model *model = step->model;
    size_t width = heads_width(&model->whole);
    struct ash_rows_from from = {part, width / model->whole.kv_heads * model->config.kv_heads};

    return ash_gathers(step) ? gather(step, from, step->rows, CUT_HEADS, width) : part;
}

const float *ash_gather_part(const struct ash_pass_step *step, const float *part, size_t stride, size_t width)
{
    return gather(step, (struct ash_rows_from){part, stride}, step->rows, CUT_HEADS, width);
}

const float *ash_gather_columns(const struct ash_pass_step *step, const float *part, size_t rows, size_t width)
{
    struct ash_range columns = ash_slice_columns(&step->model->whole, width, &step->model->slice);

    if (!ash_gathers(step)) return part;
    return gather(step, (struct ash_rows_from){part, columns.count}, rows, CUT_FFN, width);
}

/* The product's outputs are columns of rows of width floats. */
static const float *multiply(const struct ash_pass_step *step, struct ash_linear_group *group, enum cut cut,
                             size_t width)
{
    size_t first = columns_of(step, cut, width, step->axes->outs.rank).first;

    ash_assert(ash_gathers(step) && group->out_count == 1 && group->rows * width <= step->axes->gathered_floats);
    group->outs[0].y = buffer_of(step) + first;
    group->outs[0].y_stride = width;
    ash_linear_project(step, group);
    return meet(step, cut, group->rows, width);
}

const float *ash_gather_product(const struct ash_pass_step *step, struct ash_linear_group *group)
{
    return multiply(step, group, CUT_HIDDEN, step->model->whole.hidden);
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

const float *ash_gather_outputs(const struct ash_pass_step *step, size_t rows)
{
    return meet(step, CUT_HIDDEN, rows, step->model->whole.hidden);
}

const float *ash_gather_experts(const struct ash_pass_step *step, const size_t *starts)
{
    const struct ash_model *model = step->model;
    struct ash_axes *axes = step->axes;
    struct ash_slice slice = model->slice;
    float *whole = buffer_of(step);

    if (axes->outs.same_node) {
        ash_axes_barrier_outs(axes);
        return whole;
    }
    for (size_t r = 0; r < axes->outs.size; r++) { /* experts of a rank follow each other: so do their rows */
        struct ash_range experts;

        slice.expert_rank = r;
        experts = ash_slice_experts(&model->whole, &slice);
        axes->counts[r] = (starts[ash_range_end(experts)] - starts[experts.first]) * model->whole.hidden;
    }
    axes->gathers++;
    ash_axes_all_gather(axes, &axes->outs, whole, axes->counts);
    return whole;
}

const float *ash_gather_logits(const struct ash_pass_step *step, struct ash_linear_group *group)
{
    return multiply(step, group, CUT_VOCAB, step->model->whole.vocab);
}
