/* A model's life: from a seed, mapped or owned, and the views its passes read. Opening files: files/open.c. */
#include "model/model_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/rng.h"
#include "base/workers.h"
#include "model/lora_priv.h"
#include "model/weight.h"

/* ---- views ------------------------------------------------------------------------------------------------------- */

static void refresh_vector(struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];
    float *copy = (float *)model->vectors.data + model->vector_offset[index];

    if (model->exec != NULL) {
        ash_model_refresh_placed(model, index, copy);
        return;
    }
    ash_weights_to_f32(param->data, param->dtype, 0, param->count, copy);
    for (size_t j = 0; model->round_bf16 && j < param->count; j++)
        copy[j] = ash_bf16_round(copy[j]);
}

void ash_model_refresh(struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count + model->base_count; i++)
        if (!model->params[i].is_matrix && model->params[i].data != NULL) refresh_vector(model, i);
}

void ash_model_bind(struct ash_model *model, size_t index, const void *data)
{
    ash_assert(index < model->param_count && model->exec == NULL);
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

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_model_open_vectors(struct ash_model *model, struct ash_err *err)
{
    size_t total = 0;

    free(model->vector_offset);
    model->vector_offset = calloc(model->param_count + model->base_count, sizeof(*model->vector_offset));
    if (model->vector_offset == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of parameters");
    for (size_t i = 0; i < model->param_count + model->base_count; i++) {
        model->vector_offset[i] = total;
        if (!model->params[i].is_matrix) total += ash_round_up(model->params[i].count, ASH_PARAM_ALIGN);
    }
    return ash_buffer_init(&model->vectors, &ash_memory_host, total * sizeof(float), "norms and biases", err);
}

int ash_model_alloc(const struct ash_model_config *config, const struct ash_slice *slice, struct ash_model **model_out,
                    struct ash_err *err)
{
    struct ash_model *model = calloc(1, sizeof(*model));
    int rc;

    if (model == NULL) {
        json_decref(config->source);
        return ash_err_set(err, -ENOMEM, "out of memory for a model");
    }
    model->whole = *config;
    model->slice = slice != NULL ? *slice : ash_slice_whole(config);
    model->vocab = ash_slice_vocab(config, &model->slice);
    model->experts = ash_slice_experts(config, &model->slice);
    ash_slice_config(config, &model->slice, &model->config, model->layer_ids);
    rc = ash_model_list_params(model, err);
    if (rc == 0 && model->config.lora != NULL) rc = ash_lora_list_params(model, err);
    if (rc < 0) goto fail;
    rc = ash_shards_init(&model->shards, model, model->slice.shard_rank,
                         model->slice.shard_size > 1 ? model->slice.shard_size : 1, err);
    if (rc < 0) goto fail;
    rc = ash_model_open_vectors(model, err);
    if (rc < 0) goto fail;
    *model_out = model;
    return 0;

fail:
    ash_model_close(model);
    return rc;
}

int ash_model_outline(const struct ash_model_config *config, struct ash_model **model_out, struct ash_err *err)
{
    return ash_model_outline_slice(config, NULL, model_out, err);
}

int ash_model_outline_slice(const struct ash_model_config *config, const struct ash_slice *slice,
                            struct ash_model **model_out, struct ash_err *err)
{
    json_incref(config->source);
    return ash_model_alloc(config, slice, model_out, err);
}

static bool role_is_residual_output(const struct ash_model *model, int32_t index)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_layer *layer = param->layer < 0 ? NULL : &model->layers[param->layer];

    if (layer == NULL) return false;
    if (index == layer->param[ASH_ROLE_OUT] || index == layer->param[ASH_ROLE_DOWN]) return true;
    if (index == layer->param[ASH_ROLE_SHARED_DOWN]) return true;
    int32_t first = layer->param[ASH_ROLE_EXPERT_DOWN];
    return first != ASH_NO_PARAM && index >= first && (index - first) % 3 == 0 &&
           (size_t)(index - first) / 3 < model->experts.count;
}

/* The local part of a piece: the rest of the buffer is never touched, so it takes no memory. */
struct ash_piece ash_model_held(const struct ash_model *model, const struct ash_param *param, size_t index)
{
    struct ash_piece piece = ash_param_piece(param, index);
    struct ash_shard_part part;
    struct ash_range held;

    if (!model->slice.shard_weights) return piece;
    part = ash_shards_part(&model->shards, param);
    held = ash_range_overlap((struct ash_range){piece.local, piece.count}, (struct ash_range){part.first, part.count});
    if (held.count == 0) return (struct ash_piece){0};
    return (struct ash_piece){held.first, piece.full + (held.first - piece.local), held.count};
}

#define INIT_VALUES_MIN 4096 /* that are worth waking a thread for */
#define INIT_VALUES_AT_ONCE 256

/* Values of a matrix that are drawn, each from its place in the whole one. */
struct init_piece {
    float *values;
    uint64_t seed, stream, first;
    double std;
};

static void draw_values(void *ctx, size_t begin, size_t end, int worker)
{
    const struct init_piece *piece = ctx;
    double normals[INIT_VALUES_AT_ONCE];

    (void)worker;
    for (size_t count; begin < end; begin += count) {
        count = ash_min(end - begin, INIT_VALUES_AT_ONCE);
        ash_rng_normals(piece->seed, piece->stream, piece->first + begin, normals, count);
        for (size_t i = 0; i < count; i++)
            piece->values[begin + i] = (float)(piece->std * normals[i]);
    }
}

/* Norms start at 1, biases at 0, matrices normal; what feeds the residual stream is scaled down by its depth. */
static void init_param(struct ash_model *model, int32_t index, uint64_t seed, struct ash_workers *workers)
{
    const struct ash_param *param = &model->params[index];
    float *values = (float *)model->values.data + param->offset;
    uint64_t stream = ash_hash_str(param->name);
    double std = model->config.init_std;
    bool is_bias = strstr(param->name, "bias") != NULL;

    if (role_is_residual_output(model, index)) std /= sqrt(2.0 * (double)model->whole.layers);
    for (size_t p = 0; p < ash_param_piece_count(param); p++) {
        struct ash_piece piece = ash_model_held(model, param, p);
        struct init_piece draws = {values + piece.local, seed, stream, piece.full, std};

        if (param->is_matrix) ash_workers_run(workers, piece.count, INIT_VALUES_MIN, draw_values, &draws);
        for (size_t i = 0; !param->is_matrix && i < piece.count; i++)
            values[piece.local + i] = is_bias ? 0 : 1;
    }
}

static int open_values(struct ash_model *model, struct ash_err *err)
{
    int rc = ash_buffer_init(&model->values, &ash_memory_host, model->size * sizeof(float), "weights", err);

    if (rc == 0 && model->slice.shard_weights) ash_buffer_sparse(&model->values);
    return rc;
}

int ash_model_create(const struct ash_model_config *config, uint64_t seed, struct ash_model **model_out,
                     struct ash_err *err)
{
    return ash_model_create_slice(config, NULL, seed, NULL, model_out, err);
}

int ash_model_blank_slice(const struct ash_model_config *config, const struct ash_slice *slice,
                          struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    struct ash_model_config copy = *config;
    int rc;

    json_incref(copy.source); /* on failure the caller still owns config */
    rc = ash_model_alloc(&copy, slice, &model, err);
    if (rc < 0) return rc;
    rc = open_values(model, err);
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    ash_model_bind_owned(model);
    rc = config->lora != NULL ? ash_lora_bind_base(model, err) : 0;
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    json_decref(config->source);
    *model_out = model;
    return 0;
}

int ash_model_create_slice(const struct ash_model_config *config, const struct ash_slice *slice, uint64_t seed,
                           struct ash_workers *workers, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_blank_slice(config, slice, &model, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < model->param_count; i++)
        init_param(model, (int32_t)i, seed, workers);
    ash_model_refresh(model);
    *model_out = model;
    return 0;
}

int ash_model_own(struct ash_model *model, struct ash_err *err)
{
    bool is_remote = ash_model_is_remote(model);
    size_t brought = 0;
    int rc;

    if (model->values.data != NULL) return 0;
    if (model->gguf != NULL)
        return ash_err_set(err, -ENOTSUP, "a model from a GGUF file cannot be trained: use its Hugging Face folder");
    rc = ash_model_unplace(model, err);
    if (rc < 0) return rc;
    rc = open_values(model, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        float *values = (float *)model->values.data + param->offset;
        if (i == brought) rc = ash_model_bring_held(model, i, &brought, err);
        if (rc < 0) return rc;
        if (param->data == NULL) continue; /* a score that the folder lacks */
        for (size_t p = 0; p < ash_param_piece_count(param); p++) {
            struct ash_piece piece = ash_model_held(model, param, p);
            ash_weights_to_f32(param->data, param->dtype, piece.full, piece.count, values + piece.local);
        }
        if (is_remote) ash_map_drop(param->data, ash_dtype_size(param->dtype, ash_param_full_count(param)));
    }
    ash_model_unpack(model);
    ash_model_bind_owned(model);
    ash_prefetcher_stop(model->prefetcher);
    model->prefetcher = NULL;
    ash_safetensors_close(model->files);
    model->files = NULL;
    return 0;
}

void ash_model_close(struct ash_model *model)
{
    if (model == NULL) return;
    ash_prefetcher_stop(model->prefetcher);
    ash_model_unpack(model);
    ash_buffer_fini(&model->values);
    ash_buffer_fini(&model->vectors);
    ash_buffer_fini(&model->placed);
    ash_buffer_fini(&model->adapter_scratch);
    ash_buffer_fini(&model->dense_scratch);
    ash_buffer_fini(&model->dropout_scratch);
    free(model->base_quant);
    free(model->base_parts);
    ash_model_close(model->base);
    free(model->adapters);
    ash_safetensors_close(model->files);
    ash_gguf_close(model->gguf);
    json_decref(model->generation);
    ash_shards_fini(&model->shards);
    ash_model_config_fini(&model->config);
    ash_lora_close(model->own_lora);
    free(model->vector_offset);
    free(model->layers);
    free(model->params);
    free(model);
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
