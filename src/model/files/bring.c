/* bring: weights whose files are remote, read into the memory that stands for their mapping. */
#include <errno.h>
#include <stdlib.h>

#include "model/model_priv.h"
#include "storage/remote_file.h"

#define HELD_BYTES ((size_t)64 << 20) /* of parameters that are brought together, about */

const struct ash_map *ash_model_map(const struct ash_model *model, const void *data)
{
    if (model->gguf != NULL) return ash_gguf_map(model->gguf, data);
    return model->files != NULL ? ash_safetensors_map(model->files, data) : NULL;
}

static bool is_param_remote(const struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_map *map = param->data != NULL ? ash_model_map(model, param->data) : NULL;

    return map != NULL && map->remote != NULL;
}

bool ash_model_is_remote(const struct ash_model *model)
{
    bool is_remote = false;

    for (size_t i = 0; !is_remote && i < model->param_count; i++)
        is_remote = is_param_remote(model, i);
    return is_remote && !model->is_brought;
}

/* All of the parameters, or all that are not matrices. */
static int bring_params(const struct ash_model *model, bool wants_matrices, struct ash_err *err)
{
    struct ash_direct_range *ranges = calloc(model->param_count + 1, sizeof(*ranges));
    size_t count = 0;
    int rc;

    if (ranges == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of what to read");
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        if ((param->is_matrix && !wants_matrices) || !is_param_remote(model, i)) continue;
        ranges[count++] = (struct ash_direct_range){ash_model_map(model, param->data), param->data,
                                                    ash_dtype_size(param->dtype, ash_param_full_count(param))};
    }
    rc = ash_remote_file_bring(ranges, count, err);
    free(ranges);
    return rc;
}

int ash_model_bring(struct ash_model *model, struct ash_err *err)
{
    int rc = ash_model_is_remote(model) ? bring_params(model, true, err) : 0;

    model->is_brought = rc == 0;
    return rc;
}

int ash_model_bring_vectors(const struct ash_model *model, struct ash_err *err)
{
    return ash_model_is_remote(model) ? bring_params(model, false, err) : 0;
}

/* What this slice holds of a parameter, into ranges (NULL: only counted). Returns how many. */
static size_t list_held(const struct ash_model *model, size_t index, struct ash_direct_range *ranges)
{
    const struct ash_param *param = &model->params[index];
    size_t pieces = is_param_remote(model, index) ? ash_param_piece_count(param) : 0;

    for (size_t i = 0; ranges != NULL && i < pieces; i++) {
        struct ash_piece held = ash_model_held(model, param, i);

        ranges[i] = (struct ash_direct_range){ash_model_map(model, param->data),
                                              (const char *)param->data + ash_dtype_size(param->dtype, held.full),
                                              ash_dtype_size(param->dtype, held.count)};
    }
    return pieces;
}

int ash_model_bring_held(const struct ash_model *model, size_t first, size_t *end_out, struct ash_err *err)
{
    size_t count = 0, bytes = 0, end = first;
    struct ash_direct_range *ranges;
    int rc;

    *end_out = model->param_count;
    if (!ash_model_is_remote(model)) return 0;
    for (; end < model->param_count && (end == first || bytes < HELD_BYTES); end++) {
        count += list_held(model, end, NULL);
        bytes += ash_dtype_size(model->params[end].dtype, model->params[end].count);
    }
    ranges = calloc(count + 1, sizeof(*ranges));
    if (ranges == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of what to read");
    count = 0;
    for (size_t i = first; i < end; i++)
        count += list_held(model, i, ranges + count);
    rc = ash_remote_file_bring(ranges, count, err);
    free(ranges);
    *end_out = end;
    return rc;
}
