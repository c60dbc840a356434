/* Linear layers as matrix products: forward, and the two products of the way back, for matrices stored [out, in] or
 * [in, out]. */
#include "model/model_priv.h"

/* Sizes of a stored matrix as the product y = x W^T sees it. */
struct shape {
    size_t in, out;
    bool transposed; /* stored [in, out] */
};

/* Only the matrices of gpt2's layers are stored the other way round; embeddings and heads never are. */
static struct shape shape_of(const struct ash_model *model, int32_t weight)
{
    const struct ash_param *w = &model->params[weight];
    bool transposed = model->config.transposed && w->layer >= 0;

    return transposed ? (struct shape){w->dims[0], w->dims[1], true} : (struct shape){w->dims[1], w->dims[0], false};
}

/* The weight as the [in, out] operand of x W, or the [out, in] one of dy W^T. */
static struct ash_mat weight_operand(const struct ash_model *model, int32_t weight, struct shape shape, bool out_by_in)
{
    const struct ash_param *w = &model->params[weight];
    size_t step_in = shape.transposed ? shape.out : 1, step_out = shape.transposed ? 1 : shape.in;

    return out_by_in ? (struct ash_mat){w->data, w->dtype, step_out, step_in}
                     : (struct ash_mat){w->data, w->dtype, step_in, step_out};
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Only GGUF files hold quantised weights, and never transposed. */
struct ash_weight ash_linear_file_weight(const struct ash_model *model, int32_t weight, size_t *in_out)
{
    struct shape shape = shape_of(model, weight);
    struct ash_weight w = {.N = shape.out, .mat = weight_operand(model, weight, shape, false)};

    *in_out = shape.in;
    if (ash_dtype_block(w.mat.dtype) > 1) w.mat.row_stride = w.mat.col_stride = 0;
    return w;
}

struct ash_weight ash_linear_weight(const struct ash_model *model, const struct ash_exec *exec, int32_t weight,
                                    size_t *in_out)
{
    const struct ash_param *param = &model->params[weight];
    struct ash_weight w = ash_linear_file_weight(model, weight, in_out);

    if (param->packed == NULL || model->packed_for->pack != exec->ops->matrix->pack) return w;
    if (ash_dtype_block(w.mat.dtype) == 1 && model->packed_bf16 != model->round_bf16) return w;
    w.mat.data = param->packed;
    w.packed = true;
    return w;
}

bool ash_linear_alike(const struct ash_model *model, const struct ash_exec *exec, int32_t a, int32_t b)
{
    size_t in;

    return model->params[a].dtype == model->params[b].dtype &&
           ash_linear_weight(model, exec, a, &in).packed == ash_linear_weight(model, exec, b, &in).packed;
}

void ash_linear_project(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_group *group)
{
    struct ash_project_args args = {.M = group->rows,
                                    .x = group->x,
                                    .x_stride = group->x_stride,
                                    .norm = ash_model_vector(model, group->norm),
                                    .norm_eps = (float)model->config.norm_eps,
                                    .round_bf16 = model->round_bf16,
                                    .residual = group->residual,
                                    .swiglu = group->swiglu};

    for (size_t i = 0; i < group->out_count; i++) {
        const struct ash_linear_out *out = &group->outs[i];

        ash_prefetcher_wait(model->prefetcher, model->params[out->weight].data);
        ash_load_wait(model->load, out->weight);
        args.outs[args.out_count++] =
            (struct ash_project_out){ash_linear_weight(model, exec, out->weight, &args.K),
                                     ash_model_vector(model, out->bias), out->y, out->y_stride};
        if (i + 1 < group->out_count && ash_linear_alike(model, exec, out->weight, out[1].weight)) continue;
        exec->ops->matrix->project(exec, &args);
        args.out_count = 0;
    }
}

void ash_linear_forward(const struct ash_model *model, struct ash_exec *exec, int32_t weight, int32_t bias,
                        const struct ash_linear_io *io)
{
    struct ash_linear_group group = {.rows = io->rows,
                                     .x = io->x,
                                     .x_stride = io->x_stride,
                                     .norm = ASH_NO_PARAM,
                                     .out_count = 1,
                                     .outs[0] = {weight, bias, io->y, io->y_stride}};

    ash_linear_project(model, exec, &group);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The gradient of some rows of the stored matrix over count tokens from first on, as one product. */
static void weight_grad_rows(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                             const struct ash_linear_io *io, size_t first, size_t count, struct ash_range part,
                             bool start, float *dweight)
{
    struct shape shape = shape_of(model, weight);
    const float *from_dy = io->dy + first * io->dy_stride, *from_x = io->x + first * io->x_stride;
    struct ash_mat dy_t = {from_dy + part.first, ASH_F32, 1, io->dy_stride},
                   x_t = {from_x + part.first, ASH_F32, 1, io->x_stride};
    struct ash_mat dy = {from_dy, ASH_F32, io->dy_stride, 1}, x = {from_x, ASH_F32, io->x_stride, 1};
    size_t cols = shape.transposed ? shape.out : shape.in;
    struct ash_gemm_args args = {.M = part.count,
                                 .N = cols,
                                 .K = count,
                                 .a = shape.transposed ? x_t : dy_t,
                                 .b = shape.transposed ? dy : x,
                                 .c = dweight + part.first * cols,
                                 .c_stride = cols,
                                 .accumulate = !start,
                                 .round_bf16 = model->round_bf16,
                                 .cut_anywhere = io->seq_rows == 0};

    exec->ops->matrix->gemm(exec, &args);
}

/* Each sequence starts a group of k of its own. One product over all rows is the same thing where sequences are whole
 * groups, and where there are no groups: float32. */
void ash_linear_weight_grad_part(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                                 const struct ash_linear_io *io, struct ash_range part, bool start, float *dweight)
{
    bool one = !model->round_bf16 || io->seq_rows % ASH_K_GROUP == 0;
    size_t step = one ? io->rows : io->seq_rows;

    for (size_t first = 0; first < io->rows; first += step)
        weight_grad_rows(model, exec, weight, io, first, step, part, start && first == 0, dweight);
}

void ash_linear_weight_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                            const struct ash_linear_io *io, bool start, float *dweight)
{
    ash_linear_weight_grad_part(model, exec, weight, io, (struct ash_range){0, model->params[weight].dims[0]}, start,
                                dweight);
}

void ash_linear_bias_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                          const struct ash_linear_io *io, float *dbias)
{
    exec->ops->matrix->column_sum(exec, io->dy, io->dy_stride, io->rows, shape_of(model, weight).out, dbias);
}

void ash_linear_input_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                           const struct ash_linear_io *io)
{
    struct shape shape = shape_of(model, weight);
    struct ash_gemm_args args = {.M = io->rows,
                                 .N = shape.in,
                                 .K = shape.out,
                                 .a = {io->dy, ASH_F32, io->dy_stride, 1},
                                 .b = weight_operand(model, weight, shape, true),
                                 .c = io->dx,
                                 .c_stride = io->dx_stride,
                                 .accumulate = io->dx_add,
                                 .round_bf16 = model->round_bf16};

    exec->ops->matrix->gemm(exec, &args);
}

/* ---- a part of a sum --------------------------------------------------------------------------------------------- */

struct ash_gemm_args ash_linear_part(const struct ash_model *model, const struct ash_linear_term *term)
{
    struct shape shape = shape_of(model, term->weight);
    struct ash_mat weight = weight_operand(model, term->weight, shape, term->back);
    size_t first = term->back ? term->outs.first : 0, cols = term->back ? shape.in : shape.out;
    struct ash_gemm_args args = {.N = cols,
                                 .K = term->back ? term->outs.count : shape.in,
                                 .a = {term->x + first, ASH_F32, term->x_stride, 1},
                                 .b = weight,
                                 .c_stride = cols,
                                 .round_bf16 = model->round_bf16};

    args.b.data = (const char *)weight.data + ash_dtype_size(weight.dtype, first * weight.row_stride);
    return args;
}

void ash_linear_continue(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_term *term,
                         size_t rows, bool start, float *sums)
{
    struct ash_gemm_args args = ash_linear_part(model, term);

    args.M = rows;
    args.c = sums;
    args.accumulate = !start;
    exec->ops->matrix->gemm(exec, &args);
}
