/* part: the runs of a tensor that a slice has. */
#include "model/files/part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

size_t ash_part_bytes(const struct ash_param *param, enum ash_dtype dtype)
{
    if (param->cut < 0 || ash_param_piece_count(param) == 1) return 0;
    return ash_round_up(ash_dtype_size(dtype, param->count), ASH_PARAM_ALIGN * sizeof(float));
}

void ash_part_bind(struct ash_param *param, const void *whole, enum ash_dtype dtype, char **at)
{
    size_t bytes = ash_part_bytes(param, dtype);

    param->dtype = dtype;
    param->data = *at;
    if (bytes == 0) {
        param->data = (const char *)whole + ash_dtype_size(dtype, ash_param_piece(param, 0).full);
        return;
    }
    for (size_t i = 0; i < ash_param_piece_count(param); i++) {
        struct ash_piece piece = ash_param_piece(param, i);

        memcpy(*at + ash_dtype_size(dtype, piece.local), (const char *)whole + ash_dtype_size(dtype, piece.full),
               ash_dtype_size(dtype, piece.count));
    }
    *at += bytes;
}

int ash_part_bind_all(struct ash_model *model, struct ash_err *err)
{
    size_t bytes = 0;
    char *at;

    if (ash_model_is_remote(model))
        return ash_err_set(err, -ENOTSUP,
                           "several ranks read a model from files of their machine: copy it there first");
    for (size_t i = 0; i < model->param_count; i++)
        bytes += ash_part_bytes(&model->params[i], model->params[i].dtype);
    model->base_parts = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && model->base_parts == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a rank's %zu bytes of the weights", bytes);
    at = model->base_parts;
    for (size_t i = 0; i < model->param_count; i++)
        ash_part_bind(&model->params[i], model->params[i].data, model->params[i].dtype, &at);
    return 0;
}
