/* weight: the shapes of matrices, and where their values are. */
#include "model/weight.h"

#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"

struct ash_weight_shape ash_weight_shape_of(const struct ash_model *model, int32_t weight)
{
    const struct ash_param *w = &model->params[weight];

    ash_assert(weight >= 0 && (size_t)weight < model->param_count + model->base_count && w->dim_count == 2);
    return w->is_transposed ? (struct ash_weight_shape){w->dims[0], w->dims[1], true}
                            : (struct ash_weight_shape){w->dims[1], w->dims[0], false};
}

struct ash_mat ash_weight_matrix(const struct ash_model *model, int32_t weight, bool out_by_in)
{
    const struct ash_param *w = &model->params[weight];
    struct ash_weight_shape shape = ash_weight_shape_of(model, weight);
    size_t step_in = shape.transposed ? shape.out : 1, step_out = shape.transposed ? 1 : shape.in;

    return out_by_in ? (struct ash_mat){w->data, w->dtype, step_out, step_in}
                     : (struct ash_mat){w->data, w->dtype, step_in, step_out};
}

/* Only GGUF files hold quantised weights, and never transposed. */
struct ash_weight ash_weight_stored(const struct ash_model *model, int32_t weight, size_t *in_out)
{
    struct ash_weight_shape shape = ash_weight_shape_of(model, weight);
    struct ash_weight w = {.N = shape.out, .mat = ash_weight_matrix(model, weight, false)};

    *in_out = shape.in;
    if (ash_dtype_block(w.mat.dtype) > 1) w.mat.row_stride = w.mat.col_stride = 0;
    return w;
}

struct ash_weight ash_weight_for(const struct ash_model *model, const struct ash_exec *exec, int32_t weight,
                                 size_t *in_out)
{
    const struct ash_param *param = &model->params[weight];
    struct ash_weight w = ash_weight_stored(model, weight, in_out);

    if (param->packed == NULL || model->packed_for->pack != exec->ops->matrix->pack) return w;
    if (ash_dtype_block(w.mat.dtype) == 1 && model->packed_bf16 != model->round_bf16) return w;
    w.mat.data = param->packed;
    w.packed = true;
    return w;
}

void ash_weights_to_f32(const void *data, enum ash_dtype dtype, size_t first, size_t count, float *out)
{
    const uint16_t *half = (const uint16_t *)data + first;

    switch (dtype) {
    case ASH_BF16:
        for (size_t i = 0; i < count; i++)
            out[i] = ash_bf16_to_f32(half[i]);
        break;
    case ASH_F16:
        for (size_t i = 0; i < count; i++)
            out[i] = ash_f16_to_f32(half[i]);
        break;
    default:
        memcpy(out, (const float *)data + first, count * sizeof(float));
    }
}
