/* A model's life: its list of parameters, then values that are mapped (files/open.c) or owned (files/create.c). */
#include "model/model_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/file.h"
#include "model/lora_priv.h"
#include "model/quantised/quantised.h"
#include "model/weight.h"

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

int ash_model_open_values(struct ash_model *model, struct ash_err *err)
{
    int rc = ash_buffer_init(&model->values, &ash_memory_host, model->size * sizeof(float), "weights", err);

    if (rc == 0 && model->slice.shard_weights) ash_buffer_sparse(&model->values);
    return rc;
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
    rc = ash_model_open_values(model, err);
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
    ash_quantised_close(model->quantised);
    model->quantised = NULL;
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
    free(model->joined);
    ash_model_close(model->base);
    free(model->adapters);
    ash_quantised_close(model->quantised);
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
