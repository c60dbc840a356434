/* part: the runs of a tensor that a slice has. */
#include "model/files/part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "model/quantised/quantised.h"

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

/* Has a file of the weights yet to be fetched? Quantised weights only look so: they are decoded here. */
static bool has_remote_file(const struct ash_model *model)
{
    for (size_t i = 0; ash_model_is_remote(model) && i < model->param_count; i++) {
        const void *data = model->params[i].data;
        const struct ash_map *map = ash_model_map(model, data);

        if (map != NULL && map->remote != NULL &&
            (model->quantised == NULL || ash_quantised_holds(model->quantised, data) == NULL))
            return true;
    }
    return false;
}

/* Bind one parameter. Of a quantised one that is copied, the floats of the whole tensor are released. */
static void bind_one(const struct ash_model *model, struct ash_param *param, char **at)
{
    const void *whole = param->data;
    bool is_copied = ash_part_bytes(param, param->dtype) > 0;

    ash_part_bind(param, whole, param->dtype, at);
    if (is_copied && model->quantised != NULL && ash_quantised_holds(model->quantised, whole) != NULL)
        ash_map_drop(whole, ash_dtype_size(param->dtype, ash_param_full_count(param)));
}

int ash_part_bind_all(struct ash_model *model, struct ash_err *err)
{
    size_t bytes = 0, brought = 0;
    char *at;
    int rc = 0;

    if (has_remote_file(model))
        return ash_err_set(err, -ENOTSUP,
                           "several ranks read a model from files of their machine: copy it there first");
    for (size_t i = 0; i < model->param_count; i++)
        bytes += ash_part_bytes(&model->params[i], model->params[i].dtype);
    model->base_parts = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && model->base_parts == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a rank's %zu bytes of the weights", bytes);
    at = model->base_parts;
    for (size_t i = 0; rc == 0 && i < model->param_count; i++) {
        if (i == brought) rc = ash_model_bring_held(model, i, &brought, err);
        if (rc == 0) bind_one(model, &model->params[i], &at);
    }
    model->is_brought = rc == 0;
    return rc;
}
