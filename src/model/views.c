/* What passes read of a model: its parameters by number and name, where their values are, float32 copies of vectors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "model/model_priv.h"
#include "model/weight.h"

/* ---- vectors and values ------------------------------------------------------------------------------------------ */

/* Of owned values what products read is there, on the device; of mapped ones the file. */
static void refresh_placed(struct ash_model *model, size_t index, float *copy)
{
    const struct ash_param *param = &model->params[index];
    struct ash_exec *exec = model->exec;
    float *host;
    int rc;

    if (model->values.data != NULL) {
        const struct ash_embed_args one_row = {.table = param->data,
                                               .dtype = param->dtype,
                                               .cols = param->count,
                                               .rows = 1,
                                               .ids = (const int32_t *)model->vectors.data + model->zero_offset,
                                               .out = copy};

        exec->ops->embed->gather(exec, &one_row);
        if (model->round_bf16 && param->dtype == ASH_F32) exec->ops->row->round_bf16(exec, copy, param->count, copy);
        if (param->has_one) /* behind the vectors there is a 1 for each element of the widest of these */
            exec->ops->row->add(exec, copy, (const float *)model->vectors.data + model->ones_offset, param->count,
                                copy);
        return;
    }
    host = malloc(param->count * sizeof(*host));
    ash_assert(host != NULL);
    ash_weights_to_f32(param->mapped, param->dtype, 0, param->count, host);
    for (size_t j = 0; model->round_bf16 && j < param->count; j++)
        host[j] = ash_bf16_round(host[j]);
    for (size_t j = 0; param->has_one && j < param->count; j++)
        host[j] += 1;
    rc = exec->memory->copy(copy, host, param->count * sizeof(*host));
    ash_assert(rc == 0 || exec->cuda != NULL); /* a GPU keeps its failure until it is asked for */
    free(host);
}

static void refresh_vector(struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];
    float *copy = (float *)model->vectors.data + model->vector_offset[index];

    if (model->exec != NULL) {
        refresh_placed(model, index, copy);
        return;
    }
    ash_weights_to_f32(param->data, param->dtype, 0, param->count, copy);
    for (size_t j = 0; model->round_bf16 && j < param->count; j++)
        copy[j] = ash_bf16_round(copy[j]);
    for (size_t j = 0; param->has_one && j < param->count; j++)
        copy[j] += 1;
}

void ash_model_refresh(struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count + model->base_count; i++)
        if (!model->params[i].is_matrix && model->params[i].data != NULL) refresh_vector(model, i);
}

void ash_model_bind(struct ash_model *model, size_t index, const void *data)
{
    ash_assert(index < model->param_count);
    model->params[index].data = data;
    if (!model->params[index].is_matrix) refresh_vector(model, index);
}

const float *ash_model_vector(const struct ash_model *model, int32_t param)
{
    return param == ASH_NO_PARAM ? NULL : (const float *)model->vectors.data + model->vector_offset[param];
}

void ash_model_bind_owned(struct ash_model *model)
{
    const float *values = model->values.data;

    for (size_t i = 0; i < model->param_count; i++) {
        model->params[i].data = values + model->params[i].offset;
        model->params[i].dtype = ASH_F32;
    }
}

void ash_model_move(struct ash_model *model, float *values)
{
    bool read = model->params[0].dtype == ASH_F32; /* or there is a bf16 copy */

    ash_assert(model->values.data != NULL);
    ash_buffer_fini(&model->values);
    model->values = (struct ash_buffer){.data = values, .size_bytes = model->size * sizeof(float)};
    if (read) ash_model_bind_owned(model);
}

/* Parameters that are read at `from` are read at `to`. */
static void rebind(struct ash_model *model, const float *from, const float *to)
{
    for (size_t i = 0; i < model->param_count; i++) {
        struct ash_param *param = &model->params[i];

        if (param->data == from + param->offset) param->data = to + param->offset;
    }
}

bool ash_model_trade_values(struct ash_model *model, struct ash_model *other)
{
    struct ash_buffer values = model->values;

    if (!ash_slice_same(&model->slice, &other->slice) || model->size != other->size) return false;
    if (values.memory == NULL || other->values.memory != values.memory || model->exec != other->exec) return false;
    model->values = other->values;
    other->values = values;
    rebind(model, values.data, model->values.data);
    rebind(other, model->values.data, values.data);
    return true;
}

const void *ash_model_weights(const struct ash_model *model)
{
    const struct ash_param *first = &model->params[0];

    return (const char *)first->data - ash_dtype_size(first->dtype, first->offset);
}

void ash_model_use_bf16(struct ash_model *model, const uint16_t *values)
{
    const float *owned = model->values.data;

    ash_assert(owned != NULL);
    for (size_t i = 0; i < model->param_count; i++) {
        struct ash_param *param = &model->params[i];
        param->data = values != NULL ? (const void *)(values + param->offset) : (const void *)(owned + param->offset);
        param->dtype = values != NULL ? ASH_BF16 : ASH_F32;
    }
    model->round_bf16 = values != NULL;
    ash_model_refresh(model);
}

void ash_model_use_kv_dtype(struct ash_model *model, enum ash_dtype dtype)
{
    ash_assert(dtype == ASH_F32 || dtype == ASH_BF16);
    model->is_kv_dtype_given = true;
    model->kv_dtype = dtype;
}

enum ash_dtype ash_model_kv_dtype(const struct ash_model *model)
{
    if (model->is_kv_dtype_given) return model->kv_dtype;
    if (model->round_bf16) return ASH_BF16;
    for (size_t i = 0; i < model->param_count + model->base_count; i++)
        if (model->params[i].layer >= 0 && ash_dtype_block(model->params[i].dtype) > 1) return ASH_BF16;
    return ASH_F32;
}

void ash_model_round_bf16(struct ash_model *model, bool on)
{
    model->round_bf16 = on;
    ash_model_refresh(model);
}

void ash_model_use_fp8(struct ash_model *model, bool on)
{
    model->is_fp8 = on;
}

bool ash_model_rounds_bf16(const struct ash_model *model)
{
    return model->round_bf16;
}

int ash_model_open_vectors(struct ash_model *model, struct ash_err *err)
{
    size_t total = 0, ones = model->config.form.qk_norm == ASH_QK_NORM_BARE ? model->config.head_dim : 0;
    int rc;

    free(model->vector_offset);
    model->vector_offset = calloc(model->param_count + model->base_count, sizeof(*model->vector_offset));
    if (model->vector_offset == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of parameters");
    for (size_t i = 0; i < model->param_count + model->base_count; i++) {
        model->vector_offset[i] = total;
        if (!model->params[i].is_matrix) total += ash_round_up(model->params[i].count, ASH_PARAM_ALIGN);
        if (model->params[i].has_one) ones = ash_max(ones, model->params[i].count);
    }
    model->ones_offset = total;
    model->zero_offset = total + ones;
    rc =
        ash_buffer_init(&model->vectors, &ash_memory_host, (total + ones + 1) * sizeof(float), "norms and biases", err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < ones; i++)
        ((float *)model->vectors.data)[total + i] = 1;
    ((float *)model->vectors.data)[model->zero_offset] = 0;
    return 0;
}

/* ---- look-ups ---------------------------------------------------------------------------------------------------- */

float *ash_model_values(struct ash_model *model)
{
    return model->values.data;
}

const struct ash_model_config *ash_model_get_config(const struct ash_model *model)
{
    return &model->whole;
}

const struct ash_slice *ash_model_slice(const struct ash_model *model)
{
    return &model->slice;
}

const struct ash_shards *ash_model_shards(const struct ash_model *model)
{
    return &model->shards;
}

size_t ash_model_param_count(const struct ash_model *model)
{
    return model->param_count;
}

const struct ash_param *ash_model_param(const struct ash_model *model, size_t index)
{
    ash_assert(index < model->param_count);
    return &model->params[index];
}

const struct ash_param *ash_model_find(const struct ash_model *model, const char *name)
{
    for (size_t i = 0; i < model->param_count; i++)
        if (strcmp(model->params[i].name, name) == 0) return &model->params[i];
    return NULL;
}

size_t ash_model_size(const struct ash_model *model)
{
    return model->size;
}

size_t ash_model_weight_count(const struct ash_model *model)
{
    return model->weight_count;
}

size_t ash_model_dense_size(const struct ash_model *model)
{
    return model->dense_size;
}

size_t ash_model_expert_size(const struct ash_model *model)
{
    return model->expert_size;
}
