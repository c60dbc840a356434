/* Linear layers as matrix products: the three products of training, for matrices stored [out, in] or [in, out]. */
#include "model/model_priv.h"

#include "base/assert.h"

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

    return out_by_in ? (struct ash_mat){w->data, w->dtype, step_out, step_in} : (struct ash_mat){w->data, w->dtype, step_in, step_out};
}

/* A quantised weight (never transposed: only GGUF files have them). */
static void quant_forward(const struct ash_model *model, struct ash_exec *exec, int32_t weight, int32_t bias,
                          const struct ash_linear_io *io)
{
    const struct ash_param *w = &model->params[weight];
    struct ash_quant_args args = {.M = io->rows,
                                  .N = w->dims[0],
                                  .K = w->dims[1],
                                  .x = io->x,
                                  .x_stride = io->x_stride,
                                  .w = w->data,
                                  .dtype = w->dtype,
                                  .y = io->y,
                                  .y_stride = io->y_stride,
                                  .bias = ash_model_vector(model, bias),
                                  .accumulate = io->y_add};

    exec->ops->matrix->quant_gemm(exec, &args);
}

void ash_linear_forward(const struct ash_model *model, struct ash_exec *exec, int32_t weight, int32_t bias,
                        const struct ash_linear_io *io)
{
    struct shape shape = shape_of(model, weight);
    struct ash_gemm_args args = {.M = io->rows, .N = shape.out, .K = shape.in,
                                 .a = {io->x, ASH_F32, io->x_stride, 1},
                                 .b = weight_operand(model, weight, shape, false),
                                 .c = io->y, .c_stride = io->y_stride, .bias = ash_model_vector(model, bias),
                                 .accumulate = io->y_add, .round_bf16 = model->round_bf16};

    if (ash_dtype_block(model->params[weight].dtype) > 1)
        quant_forward(model, exec, weight, bias, io);
    else
        exec->ops->matrix->gemm(exec, &args);
}

/* The gradient over count rows from first on, as one product. */
static void weight_grad_rows(const struct ash_model *model, struct ash_exec *exec, int32_t weight, const struct ash_linear_io *io,
                             size_t first, size_t count, float *dweight)
{
    struct shape shape = shape_of(model, weight);
    const float *from_dy = io->dy + first * io->dy_stride, *from_x = io->x + first * io->x_stride;
    struct ash_mat dy_t = {from_dy, ASH_F32, 1, io->dy_stride}, x_t = {from_x, ASH_F32, 1, io->x_stride};
    struct ash_mat dy = {from_dy, ASH_F32, io->dy_stride, 1}, x = {from_x, ASH_F32, io->x_stride, 1};
    struct ash_gemm_args args = {.M = shape.transposed ? shape.in : shape.out, .N = shape.transposed ? shape.out : shape.in,
                                 .K = count, .a = shape.transposed ? x_t : dy_t, .b = shape.transposed ? dy : x,
                                 .c = dweight, .c_stride = shape.transposed ? shape.out : shape.in,
                                 .accumulate = true, .round_bf16 = model->round_bf16, .cut_anywhere = io->seq_rows == 0};

    exec->ops->matrix->gemm(exec, &args);
}

/* Each sequence starts a group of k of its own. One product over all rows is the same thing where sequences are whole
 * groups, and where there are no groups: float32. */
void ash_linear_weight_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight, const struct ash_linear_io *io,
                            float *dweight)
{
    bool one = !model->round_bf16 || io->seq_rows % ASH_K_GROUP == 0;
    size_t step = one ? io->rows : io->seq_rows;

    for (size_t first = 0; first < io->rows; first += step)
        weight_grad_rows(model, exec, weight, io, first, step, dweight);
}

void ash_linear_backward(const struct ash_model *model, struct ash_exec *exec, int32_t weight, int32_t bias,
                         const struct ash_linear_io *io, float *grads)
{
    struct shape shape = shape_of(model, weight);

    if (grads != NULL) {
        ash_linear_weight_grad(model, exec, weight, io, grads + model->params[weight].offset);
        if (bias != ASH_NO_PARAM)
            exec->ops->matrix->column_sum(exec, io->dy, io->dy_stride, io->rows, shape.out, grads + model->params[bias].offset);
    }
    if (io->dx != NULL) {
        struct ash_gemm_args args = {.M = io->rows, .N = shape.in, .K = shape.out,
                                     .a = {io->dy, ASH_F32, io->dy_stride, 1},
                                     .b = weight_operand(model, weight, shape, true),
                                     .c = io->dx, .c_stride = io->dx_stride, .accumulate = io->dx_add,
                                     .round_bf16 = model->round_bf16};
        exec->ops->matrix->gemm(exec, &args);
    }
}
