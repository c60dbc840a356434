/* Which matrices are packed, and their places in one block of memory. pack.c and load.c write them. */
#include "base/assert.h"
#include "base/math.h"
#include "model/model_priv.h"

/* A device's weights are packed as they are placed (place.c). */
bool ash_model_packs_on_host(const struct ash_exec *exec)
{
    return exec->ops->matrix->pack != NULL && exec->memory->host_visible;
}

/* Not packed: tables that are only looked up, transposed matrices, and floats that are not rounded to bf16, whose
 * products are bound by arithmetic, not by memory. */
size_t ash_model_packed_bytes(const struct ash_model *model, const struct ash_exec *exec, int32_t index)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_matrix_ops *matrix = exec->ops->matrix;
    bool is_looked_up = (index == model->top.param[ASH_ROLE_EMBED] && ash_layer_has(&model->top, ASH_ROLE_HEAD)) ||
                        index == model->top.param[ASH_ROLE_POSITION];

    if (matrix->pack == NULL || !param->is_matrix || is_looked_up || param->is_transposed) return 0;
    if (ash_dtype_block(param->dtype) == 1 && !model->round_bf16) return 0;
    return ash_round_up(matrix->packed_bytes(param->dtype, param->dims[0], param->dims[1]), ASH_MEMORY_ALIGN);
}

int ash_model_place_packed(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    size_t total = 0;
    char *at;
    int rc;

    ash_assert(model->packed.data == NULL);
    for (size_t i = 0; i < model->param_count; i++)
        total += ash_model_packed_bytes(model, exec, (int32_t)i);
    if (total == 0) return 0;
    rc = ash_buffer_init(&model->packed, exec->memory, total, "packed weights", err);
    if (rc < 0) return rc;
    at = model->packed.data;
    for (size_t i = 0; i < model->param_count; i++) {
        size_t bytes = ash_model_packed_bytes(model, exec, (int32_t)i);

        if (bytes > 0) model->params[i].packed = at;
        at += bytes;
    }
    model->packed_for = exec->ops->matrix;
    model->packed_bf16 = model->round_bf16;
    return 0;
}

void ash_model_drop_packed(struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count + model->base_count; i++)
        model->params[i].packed = NULL;
    ash_buffer_fini(&model->packed);
    model->packed_for = NULL;
}
