/* Models in GGUF files: each parameter gets the tensor of its role, or its expert's part of one. */
#include "model/files/gguf_model_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "storage/io/remote_file.h"

/* Is there one scale per group in a row of Q8_0? */
static bool has_wide_groups(const uint8_t *row, size_t cols)
{
    size_t bytes = ash_dtype_bytes(ASH_Q8_0), group = ASH_QUANT_GROUP / ASH_QUANT_BLOCK;

    for (size_t b = 0; b < cols / ASH_QUANT_BLOCK; b++)
        if (memcmp(row + b * bytes, row + b / group * group * bytes, sizeof(uint16_t)) != 0) return false;
    return true;
}

/* Metadata promise wide groups. The first row is looked at: a file that another program quantised again, keeping the
 * metadata, is told by it, and to look at all would read the file. */
static int widen_tensor(struct ash_param *param, const char *name, struct ash_err *err)
{
    if (param->dtype != ASH_Q8_0) return 0;
    if (!has_wide_groups(param->data, param->dims[param->dim_count - 1]))
        return ash_err_set(err, -EINVAL,
                           "tensor '%s' has several scales per %d elements, but '" ASH_GGUF_SCALE_GROUP
                           "' promises one: convert the model again",
                           name, ASH_QUANT_GROUP);
    param->dtype = ASH_Q8_W;
    return 0;
}

/* All first rows at once, or each waits for the disk or for the place that has them. */
static int want_first_rows(const struct ash_model *model, struct ash_err *err)
{
    struct ash_direct_range *rows = calloc(model->param_count + 1, sizeof(*rows));
    int rc;

    if (rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of what to read");
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        rows[i] = (struct ash_direct_range){ash_gguf_map(model->gguf, param->data), param->data,
                                            ash_dtype_size(param->dtype, param->dims[param->dim_count - 1])};
        ash_map_want(rows[i].data, rows[i].size_bytes);
    }
    rc = ash_remote_file_bring(rows, model->param_count, err);
    free(rows);
    return rc;
}

static int widen_tensors(struct ash_model *model, struct ash_err *err)
{
    int rc = want_first_rows(model, err);

    for (size_t i = 0; i < model->param_count && rc == 0; i++) {
        struct ash_gguf_place place;

        rc = ash_gguf_place_of(model, i, &place, err);
        if (rc == 0) rc = widen_tensor(&model->params[i], place.name, err);
    }
    return rc;
}

/* Dims but for those of 1. Returns how many. */
static int real_dims(const size_t *dims, int count, size_t *out)
{
    int used = 0;

    for (int i = 0; i < count; i++)
        if (dims[i] != 1) out[used++] = dims[i];
    return used;
}

/* Has the tensor the parameter's shape? Experts share one; vectors may have dims of 1. */
static bool has_shape(const struct ash_tensor_view *view, const struct ash_param *param, size_t experts)
{
    size_t wanted[3] = {experts}, a[ASH_TENSOR_DIMS_MAX], b[ASH_TENSOR_DIMS_MAX];
    int first = param->is_expert ? 1 : 0, count = first + param->dim_count;

    memcpy(wanted + first, param->full, (size_t)param->dim_count * sizeof(size_t));
    if (param->is_matrix)
        return view->dim_count == count && memcmp(view->dims, wanted, (size_t)count * sizeof(size_t)) == 0;
    if (param->dim_count == 1 && !param->is_expert) return ash_tensor_count(view) == ash_param_full_count(param);
    count = real_dims(wanted, count, a);
    return real_dims(view->dims, view->dim_count, b) == count && memcmp(a, b, (size_t)count * sizeof(size_t)) == 0;
}

static int bind_tensor(struct ash_param *param, const struct ash_gguf_place *place, size_t experts,
                       const struct ash_tensor_view *view, struct ash_err *err)
{
    size_t part;

    if (view == NULL) return ash_err_set(err, -ENOENT, "it lacks tensor '%s'", place->name);
    if (!has_shape(view, param, experts))
        return ash_err_set(err, -EINVAL, "tensor '%s' does not have the shape that the metadata give it", place->name);
    if (!param->is_matrix && ash_dtype_block(view->dtype) > 1)
        return ash_err_set(err, -ENOTSUP, "tensor '%s' is quantised (%s); only matrices may be", place->name,
                           ash_dtype_name(view->dtype));
    part = ash_dtype_size(view->dtype, ash_param_full_count(param));
    param->data = (const char *)view->data + place->expert * part;
    param->dtype = view->dtype;
    return 0;
}

struct ash_gguf_role_at ash_gguf_role_of(const struct ash_model *model, size_t index)
{
    int32_t layer_of = model->params[index].layer, at = (int32_t)index;
    const struct ash_layer *layer = layer_of >= 0 ? &model->layers[layer_of] : &model->top;

    ash_assert(index < model->param_count);
    for (int role = 0; role < ASH_ROLE_COUNT; role++) {
        int32_t first = layer->param[role], step = layer->expert_params;

        if (first == at) return (struct ash_gguf_role_at){role, 0};
        if (role < ASH_ROLE_EXPERT_GATE || first == ASH_NO_PARAM || at < first || (at - first) % step != 0) continue;
        if ((size_t)((at - first) / step) < model->experts.count)
            return (struct ash_gguf_role_at){role, (size_t)((at - first) / step)};
    }
    return (struct ash_gguf_role_at){ASH_ROLE_COUNT, 0};
}

int ash_gguf_place_of(const struct ash_model *model, size_t index, struct ash_gguf_place *place_out,
                      struct ash_err *err)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_gguf_arch *arch = ash_gguf_arch_of(model->config.family);
    struct ash_gguf_role_at at = ash_gguf_role_of(model, index);
    struct ash_gguf_place place = {.role = at.role, .expert = at.expert};
    const char *name;

    ash_assert(index < model->param_count && arch != NULL);
    if (param->is_expert) place.expert += model->experts.first;
    if (place.role == ASH_ROLE_HEAD && model->config.tied) place.role = ASH_ROLE_EMBED;
    name = place.role < ASH_ROLE_COUNT ? ash_gguf_role_name(arch, place.role) : NULL;
    if (name == NULL) return ash_err_set(err, -ENOTSUP, "'%s' has no place in a GGUF file", param->name);
    if (param->layer < 0)
        snprintf(place.name, sizeof(place.name), "%s", name);
    else
        snprintf(place.name, sizeof(place.name), "blk.%u.%s", model->layer_ids[param->layer], name);
    *place_out = place;
    return 0;
}

/* Tensors that are no parameters: factors of rotation, and layers that guess a second token. */
static bool is_aside(const struct ash_model *model, const char *name)
{
    unsigned layer;

    if (strcmp(name, ASH_GGUF_ROPE_FREQS) == 0 || strcmp(name, ASH_GGUF_ROPE_LONG) == 0 ||
        strcmp(name, ASH_GGUF_ROPE_SHORT) == 0)
        return true;
    return sscanf(name, "blk.%u.", &layer) == 1 && layer >= model->whole.layers;
}

/* The first tensor that is no parameter: leaving a bias out in silence would change what the model says. */
static int refuse_extra(const struct ash_model *model, const struct ash_gguf *file, const bool *used,
                        struct ash_err *err)
{
    for (size_t i = 0; i < ash_gguf_size(file); i++) {
        const char *name = ash_gguf_at(file, i)->name;

        if (!used[i] && !is_aside(model, name))
            return ash_err_set(err, -ENOTSUP, "tensor '%.64s' has no place in a %s model", name,
                               model->config.family->type);
    }
    return 0;
}

static int bind_all(struct ash_model *model, struct ash_gguf *file, bool *used, struct ash_err *err)
{
    for (size_t i = 0; i < model->param_count; i++) {
        struct ash_gguf_place place;
        int rc = ash_gguf_place_of(model, i, &place, err);
        const struct ash_tensor_view *view = rc == 0 ? ash_gguf_find(file, place.name) : NULL;

        if (rc == 0 && view == NULL && place.role == ASH_ROLE_KV_UP) continue; /* in two parts */
        if (rc == 0) rc = bind_tensor(&model->params[i], &place, model->whole.expert.experts, view, err);
        if (rc < 0) return rc;
        used[view - ash_gguf_at(file, 0)] = true;
    }
    return 0;
}

int ash_gguf_model_map(struct ash_model *model, struct ash_gguf *file, struct ash_err *err)
{
    int64_t group = 0;
    int rc = ash_gguf_int(file, ASH_GGUF_SCALE_GROUP, ASH_QUANT_GROUP, ASH_QUANT_GROUP, &group, err);
    bool is_wide = rc == 1, *used;

    model->gguf = file;
    if (rc < 0) return rc;
    used = calloc(ash_gguf_size(file) + 1, sizeof(*used));
    if (used == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of tensors");
    rc = bind_all(model, file, used, err);
    if (rc == 0) rc = ash_gguf_join_latent(model, file, used, err);
    if (rc == 0) rc = ash_gguf_join_states(model, err);
    if (rc == 0 && is_wide) rc = widen_tensors(model, err);
    if (rc == 0 && model->config.layers == model->whole.layers) rc = refuse_extra(model, file, used, err);
    free(used);
    return rc;
}
