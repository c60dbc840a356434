/* linear: forward, and the two products of the backward pass, for matrices stored [out, in] or [in, out]. */
#include "model/pass/linear.h"

#include "base/assert.h"
#include "model/load.h"
#include "model/lora_priv.h"
#include "model/pass/adapter.h"

/* Rows that a product reads from column `first` on: rounded ones if there are any. */
static struct ash_mat rows_of(const float *rows, const uint16_t *rounded, size_t first, size_t stride)
{
    if (rounded != NULL) return (struct ash_mat){rounded + first, ASH_BF16, stride, 1};
    return (struct ash_mat){rows + first, ASH_F32, stride, 1};
}

/* What products with a weight are in: e4m3 for matrices of layers. */
static enum ash_fp8 fp8_of(const struct ash_model *model, int32_t weight)
{
    const struct ash_param *param = &model->params[weight];
    const int32_t *roles;

    if (!model->is_fp8 || param->layer < 0 || param->is_adapter || ash_dtype_block(param->dtype) > 1)
        return ASH_FP8_OFF;
    roles = model->layers[param->layer].param;
    return weight == roles[ASH_ROLE_ROUTER] || weight == roles[ASH_ROLE_SHARED_SCALE] ? ASH_FP8_OFF : ASH_FP8_WEIGHT;
}

/* Of k that products may be cut at. */
static size_t k_group(const struct ash_model *model)
{
    return model->is_fp8 ? ASH_FP8_GROUP_K : ASH_K_GROUP;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

bool ash_linear_alike(const struct ash_pass_step *step, int32_t a, int32_t b)
{
    const struct ash_model *model = step->model;
    size_t in;

    if (ash_adapter_applies(step, a) || ash_adapter_applies(step, b)) return false;
    return model->params[a].dtype == model->params[b].dtype &&
           ash_weight_for(model, step->exec, a, &in).packed == ash_weight_for(model, step->exec, b, &in).packed;
}

/* Do the columns of next's y follow those of out's? */
static bool y_continues(const struct ash_project_out *out, const struct ash_project_out *next)
{
    if (next->y_stride != out->y_stride || (next->y_bf16 == NULL) != (out->y_bf16 == NULL)) return false;
    return out->y_bf16 != NULL ? next->y_bf16 == out->y_bf16 + out->w.N : next->y == out->y + out->w.N;
}

/* Does next continue out, in its weights and in its columns of y? Then one product makes both: outputs have chains of
 * their own. */
static bool continues(const struct ash_project_out *out, const struct ash_project_out *next, size_t K)
{
    const struct ash_mat *w = &out->w.mat, *after = &next->w.mat;

    if (out->w.packed || next->w.packed || ash_dtype_block(w->dtype) > 1 || w->dtype != after->dtype) return false;
    if (w->row_stride != 1 || w->col_stride != K || after->row_stride != 1 || after->col_stride != K) return false;
    return out->bias == NULL && next->bias == NULL && y_continues(out, next) &&
           after->data == (const char *)w->data + ash_dtype_size(w->dtype, out->w.N * K);
}

/* One more out of a group; outs that continue each other become one. */
static void add_out(struct ash_project_args *args, struct ash_project_out out)
{
    struct ash_project_out *last = args->out_count > 0 ? &args->outs[args->out_count - 1] : NULL;

    if (last != NULL && !args->swiglu && continues(last, &out, args->K))
        last->w.N += out.w.N;
    else
        args->outs[args->out_count++] = out;
}

bool ash_linear_adds(const struct ash_pass_step *step, int32_t weight)
{
    size_t in;
    struct ash_weight w = ash_weight_for(step->model, step->exec, weight, &in);

    return !w.packed && ash_dtype_block(w.mat.dtype) == 1 && !ash_adapter_applies(step, weight);
}

/* An output by a product of its own: in e4m3, or y = add + product, which has the bits of the product and an addition
 * after it. */
static void project_alone(const struct ash_pass_step *step, const struct ash_linear_group *group,
                          const struct ash_linear_out *out)
{
    size_t in;
    struct ash_weight weight = ash_weight_for(step->model, step->exec, out->weight, &in);
    struct ash_gemm_args args = {.M = group->rows,
                                 .N = weight.N,
                                 .K = in,
                                 .a = rows_of(group->x, group->x_bf16, 0, group->x_stride),
                                 .b = weight.mat,
                                 .c = out->y_bf16 == NULL ? out->y : NULL,
                                 .c_bf16 = out->y_bf16,
                                 .c_stride = out->y_stride,
                                 .bias = ash_model_vector(step->model, out->bias),
                                 .add = group->add,
                                 .add_stride = out->y_stride,
                                 .round_bf16 = step->model->round_bf16,
                                 .fp8 = fp8_of(step->model, out->weight)};

    ash_assert(group->norm == ASH_NO_PARAM && !group->residual && !group->swiglu && !weight.packed);
    ash_assert(group->add == NULL || group->out_count == 1);
    step->exec->ops->matrix->gemm(step->exec, &args);
}

/* What a weight's adapter adds to an output, if rows have one. */
static void adapt(const struct ash_pass_step *step, const struct ash_linear_group *group,
                  const struct ash_linear_out *out)
{
    if (!ash_adapter_applies(step, out->weight)) return;
    ash_assert(group->norm == ASH_NO_PARAM && !group->residual && !group->swiglu && group->x != NULL);
    ash_adapter_forward(
        step, out->weight,
        &(struct ash_linear_io){
            .rows = group->rows, .x = group->x, .x_stride = group->x_stride, .y = out->y, .y_stride = out->y_stride});
}

void ash_linear_project(const struct ash_pass_step *step, const struct ash_linear_group *group)
{
    const struct ash_model *model = step->model;
    struct ash_exec *exec = step->exec;
    struct ash_project_args args = {.M = group->rows,
                                    .x = group->x,
                                    .x_bf16 = group->x_bf16,
                                    .x_stride = group->x_stride,
                                    .norm = ash_model_vector(model, group->norm),
                                    .norm_eps = (float)model->config.norm_eps,
                                    .round_bf16 = model->round_bf16,
                                    .residual = group->residual,
                                    .swiglu = group->swiglu};

    ash_assert((group->x != NULL) != (group->x_bf16 != NULL) && group->out_count >= 1 &&
               group->out_count <= ASH_PROJECT_OUTS_MAX);
    for (size_t i = 0; i < group->out_count; i++) {
        const struct ash_linear_out *out = &group->outs[i];

        ash_prefetcher_wait(model->prefetcher, model->params[out->weight].data);
        ash_load_wait(model->load, out->weight);
        if (group->add != NULL || fp8_of(model, out->weight) != ASH_FP8_OFF) {
            project_alone(step, group, out);
        } else {
            struct ash_weight weight = ash_weight_for(model, exec, out->weight, &args.K);

            add_out(&args, (struct ash_project_out){weight, ash_model_vector(model, out->bias), out->y, out->y_stride,
                                                    out->y_bf16});
            if (i + 1 < group->out_count && ash_linear_alike(step, out->weight, out[1].weight)) continue;
            exec->ops->matrix->project(exec, &args);
            args.out_count = 0;
        }
        adapt(step, group, out);
    }
}

void ash_linear_forward(const struct ash_pass_step *step, int32_t weight, int32_t bias, const struct ash_linear_io *io)
{
    struct ash_linear_group group = {.rows = io->rows,
                                     .x = io->x,
                                     .x_bf16 = io->x_bf16,
                                     .x_stride = io->x_stride,
                                     .norm = ASH_NO_PARAM,
                                     .out_count = 1,
                                     .outs[0] = {weight, bias, io->y, io->y_stride, NULL}};

    ash_linear_project(step, &group);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static struct ash_mat transposed(struct ash_mat mat)
{
    return (struct ash_mat){mat.data, mat.dtype, mat.col_stride, mat.row_stride};
}

bool ash_linear_joins_next(const struct ash_pass_step *step, int32_t weight)
{
    const struct ash_model *model = step->model;
    const struct ash_param *one = &model->params[weight], *next = one + 1;
    struct ash_weight_shape shape = ash_weight_shape_of(model, weight);

    if ((size_t)weight + 1 >= model->param_count || next->dim_count != 2) return false;
    if (shape.transposed || one->dtype != next->dtype || one->dims[1] != next->dims[1]) return false;
    if (ash_dtype_block(one->dtype) > 1 || ash_adapter_applies(step, weight) || ash_adapter_applies(step, weight + 1))
        return false;
    return (!model->round_bf16 || shape.out % k_group(model) == 0) &&
           next->data == (const char *)one->data + ash_dtype_size(one->dtype, one->count);
}

/* Outputs of a weight and of those that are joined to it. */
static size_t joined_outs(const struct ash_model *model, int32_t weight, size_t joined)
{
    size_t outs = 0;

    for (size_t i = 0; i <= joined; i++)
        outs += ash_weight_shape_of(model, weight + (int32_t)i).out;
    return outs;
}

/* Over all of io's rows, as one product. */
static void weight_grad_rows(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_io *io,
                             const struct ash_weight_grad *grad)
{
    struct ash_weight_shape shape = ash_weight_shape_of(model, grad->weight);
    size_t first = grad->rows.first, cols = shape.transposed ? shape.out : shape.in;
    /* rows of the weight are columns of one operand */
    size_t skip_x = shape.transposed ? first : 0, skip_dy = shape.transposed ? 0 : first;
    struct ash_mat x = rows_of(io->x, io->x_bf16, skip_x, io->x_stride);
    struct ash_mat dy = rows_of(io->dy, io->dy_bf16, skip_dy, io->dy_stride);
    bool is_fp8 = fp8_of(model, grad->weight) != ASH_FP8_OFF && io->seq_rows > 0;
    struct ash_gemm_args args = {.M = grad->rows.count,
                                 .N = cols,
                                 .K = io->rows,
                                 .a = transposed(shape.transposed ? x : dy),
                                 .b = shape.transposed ? dy : x,
                                 .c = grad->dweight + first * cols,
                                 .c_stride = cols,
                                 .accumulate = !grad->overwrite,
                                 .round_bf16 = model->round_bf16,
                                 .fp8 = is_fp8 ? ASH_FP8_LINES : ASH_FP8_OFF,
                                 .cut_anywhere = io->seq_rows == 0};

    exec->ops->matrix->gemm(exec, &args);
}

struct ash_weight_grad ash_weight_grad_all(const struct ash_model *model, int32_t weight, float *dweight,
                                           bool overwrite)
{
    return (struct ash_weight_grad){
        .weight = weight, .rows = {0, model->params[weight].dims[0]}, .dweight = dweight, .overwrite = overwrite};
}

/* Each sequence starts a new group of k. One product over all rows gives the same sums if sequences are whole groups,
 * and if there are no groups: float32. */
void ash_linear_weight_grad(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_io *io,
                            struct ash_weight_grad grad)
{
    bool is_one = !model->round_bf16 || io->seq_rows % k_group(model) == 0;
    struct ash_linear_io sequence = *io;

    ash_assert(grad.dweight != NULL);
    ash_assert(ash_range_end(grad.rows) <=
               (io->joined > 0 ? joined_outs(model, grad.weight, io->joined) : model->params[grad.weight].dims[0]));
    ash_assert(is_one || io->rows % io->seq_rows == 0);
    sequence.rows = is_one ? io->rows : io->seq_rows;
    for (size_t done = 0; done < io->rows; done += sequence.rows) {
        weight_grad_rows(model, exec, &sequence, &grad);
        if (sequence.x != NULL) sequence.x += sequence.rows * sequence.x_stride;
        if (sequence.x_bf16 != NULL) sequence.x_bf16 += sequence.rows * sequence.x_stride;
        if (sequence.dy != NULL) sequence.dy += sequence.rows * sequence.dy_stride;
        if (sequence.dy_bf16 != NULL) sequence.dy_bf16 += sequence.rows * sequence.dy_stride;
        grad.overwrite = false;
    }
}

void ash_linear_bias_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                          const struct ash_linear_io *io, float *dbias)
{
    exec->ops->matrix->column_sum(exec, &(struct ash_column_sum_args){.rows = io->rows,
                                                                      .cols = ash_weight_shape_of(model, weight).out,
                                                                      .x = io->dy,
                                                                      .stride = io->dy_stride,
                                                                      .seq_rows = model->round_bf16 ? io->seq_rows : 0,
                                                                      .sum = dbias});
}

void ash_linear_input_grad(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_model *model = step->model;
    struct ash_exec *exec = step->exec;
    struct ash_weight_shape shape = ash_weight_shape_of(model, weight);
    struct ash_gemm_args args = {.M = io->rows,
                                 .N = shape.in,
                                 .K = joined_outs(model, weight, io->joined),
                                 .a = rows_of(io->dy, io->dy_bf16, 0, io->dy_stride),
                                 .b = ash_weight_dense(model, exec, weight),
                                 .c = io->dx,
                                 .c_bf16 = io->dx_bf16,
                                 .c_stride = io->dx_stride,
                                 .accumulate = io->dx_add,
                                 .round_bf16 = model->round_bf16,
                                 .fp8 = fp8_of(model, weight)};

    exec->ops->matrix->gemm(exec, &args);
    ash_adapter_input_grad(step, weight, io);
}

/* ---- a k-chunk of a product -------------------------------------------------------------------------------------- */

struct ash_gemm_args ash_linear_chunk_gemm(const struct ash_model *model, const struct ash_linear_chunk *chunk)
{
    struct ash_weight_shape shape = ash_weight_shape_of(model, chunk->weight);
    struct ash_mat weight = ash_weight_matrix(model, chunk->weight, chunk->backward);
    size_t first = chunk->backward ? chunk->outs.first : 0, cols = chunk->backward ? shape.in : shape.out;
    struct ash_gemm_args args = {.N = cols,
                                 .K = chunk->backward ? chunk->outs.count : shape.in,
                                 .a = {chunk->x + first, ASH_F32, chunk->x_stride, 1},
                                 .b = weight,
                                 .c_stride = cols,
                                 .round_bf16 = model->round_bf16,
                                 .fp8 = fp8_of(model, chunk->weight)};

    args.b.data = (const char *)weight.data + ash_dtype_size(weight.dtype, first * weight.row_stride);
    return args;
}

bool ash_linear_is_quantised(const struct ash_model *model, int32_t weight)
{
    return ash_dtype_block(model->params[weight].dtype) > 1;
}

/* The chunk's forward product with a quantised matrix, whose groups of k are never cut (ash_lora_group). */
static void quantised_chunk_add(const struct ash_model *model, struct ash_exec *exec,
                                const struct ash_linear_chunk *chunk, size_t rows, bool overwrite, float *sums)
{
    const struct ash_param *param = &model->params[chunk->weight];
    struct ash_quant_args args = {.M = rows,
                                  .N = param->dims[0],
                                  .K = param->dims[1],
                                  .x = chunk->x,
                                  .x_stride = chunk->x_stride,
                                  .w = param->data,
                                  .dtype = param->dtype,
                                  .y = sums,
                                  .y_stride = param->dims[0],
                                  .accumulate = !overwrite};

    exec->ops->matrix->quant_gemm(exec, &args);
}

void ash_linear_chunk_add(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_chunk *chunk,
                          size_t rows, bool overwrite, float *sums)
{
    struct ash_gemm_args args = ash_linear_chunk_gemm(model, chunk);

    if (ash_linear_is_quantised(model, chunk->weight)) {
        if (!chunk->backward) {
            quantised_chunk_add(model, exec, chunk, rows, overwrite, sums);
            return;
        }
        args.b = ash_weight_dense(model, exec, chunk->weight);
        args.b.data = (const char *)args.b.data + ash_dtype_size(args.b.dtype, chunk->outs.first * args.b.row_stride);
    }
    args.M = rows;
    args.c = sums;
    args.accumulate = !overwrite;
    exec->ops->matrix->gemm(exec, &args);
}
