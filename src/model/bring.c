/* bring: weights whose files are remote, or that are quantised, read into the memory that stands for their mapping. */
#include <errno.h>
#include <stdlib.h>

#include "base/math.h"
#include "base/assert.h"
#include "model/model_priv.h"
#include "model/quantised/quantised.h"
#include "storage/io/remote_file.h"

#define HELD_BYTES ((size_t)64 << 20) /* of parameters that are brought together, about, and how many */
#define HELD_PARAMS 64

const struct ash_map *ash_model_map(const struct ash_model *model, const void *data)
{
    const struct ash_map *map = model->quantised != NULL ? ash_quantised_holds(model->quantised, data) : NULL;

    if (map != NULL) return map;
    if (model->gguf != NULL) return ash_gguf_map(model->gguf, data);
    return model->files != NULL ? ash_safetensors_map(model->files, data) : NULL;
}

bool ash_model_param_is_remote(const struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_map *map = param->data != NULL ? ash_model_map(model, param->data) : NULL;

    ash_assert(index < model->param_count);
    return map != NULL && map->remote != NULL;
}

bool ash_model_is_remote(const struct ash_model *model)
{
    bool is_remote = false;

    for (size_t i = 0; !is_remote && i < model->param_count; i++)
        is_remote = ash_model_param_is_remote(model, i);
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

        if ((param->is_matrix && !wants_matrices) || !ash_model_param_is_remote(model, i)) continue;
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

/* What this slice holds of a parameter, as one range: where columns are cut, a request for each row costs more than
 * reading whole ones. Empty if the slice holds no part of it. */
static struct ash_direct_range find_held(const struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];
    size_t pieces = ash_model_param_is_remote(model, index) ? ash_param_piece_count(param) : 0, first = SIZE_MAX,
           end = 0;

    ash_assert(index < model->param_count);
    for (size_t i = 0; i < pieces; i++) {
        struct ash_piece held = ash_model_held(model, param, i);

        if (held.count == 0) continue;
        first = ash_min(first, held.full);
        end = ash_max(end, held.full + held.count);
    }
    if (end == 0) return (struct ash_direct_range){0};
    return (struct ash_direct_range){ash_model_map(model, param->data),
                                     (const char *)param->data + ash_dtype_size(param->dtype, first),
                                     ash_dtype_size(param->dtype, end - first)};
}

int ash_model_bring_held(const struct ash_model *model, size_t first, size_t *end_out, struct ash_err *err)
{
    struct ash_direct_range ranges[HELD_PARAMS];
    size_t count = 0, bytes = 0, index = first;
    int rc;

    ash_assert(first <= model->param_count);
    *end_out = model->param_count;
    if (!ash_model_is_remote(model)) return 0;
    for (; index < model->param_count && count < HELD_PARAMS && bytes < HELD_BYTES; index++) {
        ranges[count] = find_held(model, index);
        bytes += ranges[count++].size_bytes;
    }
    rc = ash_remote_file_bring(ranges, count, err);
    *end_out = index;
    return rc;
}
