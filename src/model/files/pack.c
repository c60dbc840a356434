/* Packing a model's matrices: from the file's layout to the one that the products of a backend read fastest, in one
 * block of memory. The memory is touched, and the file's let go, a piece at a time: both copies are never there at
 * once. */
#include "model/model_priv.h"

#include "base/file.h"
#include "model/files/load.h"
#include "model/weight.h"

#define PIECE_BYTES ((size_t)8 << 20) /* of a weight, about: what may be there twice */

static size_t align_bytes(size_t size_bytes)
{
    return (size_bytes + ASH_MEMORY_ALIGN - 1) / ASH_MEMORY_ALIGN * ASH_MEMORY_ALIGN;
}

/* Tables that are only looked up stay as they are, so do matrices stored the other way round, and floats that are not
 * rounded to bf16: their chains are bound by arithmetic, not by memory. */
size_t ash_model_packed_bytes(const struct ash_model *model, const struct ash_exec *exec, int32_t index)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_matrix_ops *matrix = exec->ops->matrix;
    bool looked_up = (index == model->top.param[ASH_ROLE_EMBED] && !model->config.tied) ||
                     index == model->top.param[ASH_ROLE_POSITION];

    if (!param->is_matrix || looked_up || (model->config.transposed && param->layer >= 0)) return 0;
    if (ash_dtype_block(param->dtype) == 1 && !model->round_bf16) return 0;
    return align_bytes(matrix->packed_bytes(param->dtype, param->dims[0], param->dims[1]));
}

static void pack_param(const struct ash_model *model, struct ash_exec *exec, int32_t index, void *packed)
{
    size_t in, row_bytes = ash_dtype_size(model->params[index].dtype, model->params[index].dims[1]);
    struct ash_weight w = ash_weight_stored(model, index, &in);
    size_t rows = (PIECE_BYTES / row_bytes + 1 + ASH_PACK_ROWS - 1) / ASH_PACK_ROWS * ASH_PACK_ROWS;

    for (size_t first = 0; first < w.N; first += rows) {
        size_t count = w.N - first < rows ? w.N - first : rows;

        exec->ops->matrix->pack(exec, &w, in, first, count, packed);
        ash_map_drop((const char *)w.mat.data + first * row_bytes, count * row_bytes);
    }
}

int ash_model_place_packed(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    size_t total = 0;
    char *at;
    int rc;

    for (size_t i = 0; i < model->param_count; i++)
        total += ash_model_packed_bytes(model, exec, (int32_t)i);
    if (total == 0) return 0;
    if ((rc = ash_buffer_init(&model->packed, exec->memory, total, "packed weights", err)) < 0) return rc;
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

int ash_model_pack(struct ash_model *model, struct ash_exec *exec, struct ash_err *err)
{
    int rc;

    if (model->load != NULL) return ash_load_finish(model->load, err);
    if (model->packed_for != NULL || model->values.data != NULL || exec->ops->matrix->pack == NULL) return 0;
    ash_fetch_finish(model->fetch); /* it would bring back what is dropped below */
    model->fetch = NULL;
    if ((rc = ash_model_place_packed(model, exec, err)) < 0) return rc;
    for (size_t i = 0; i < model->param_count; i++)
        if (model->params[i].packed != NULL)
            pack_param(model, exec, (int32_t)i, (void *)(uintptr_t)model->params[i].packed);
    return 0;
}

void ash_model_unpack(struct ash_model *model)
{
    ash_load_close(model->load); /* it writes there */
    model->load = NULL;
    for (size_t i = 0; i < model->param_count; i++)
        model->params[i].packed = NULL;
    ash_buffer_fini(&model->packed);
    model->packed_for = NULL;
}
