/* The cache: keys and values of earlier tokens, one contiguous run per slot and layer, in the precision the model
 * computes in. */
#include "model/pass_priv.h"

#include <errno.h>
#include <stdlib.h>

struct ash_cache {
    const struct ash_model *model;
    size_t slots, max_tokens;
    size_t k_width, v_width; /* elements per token and layer */
    enum ash_dtype dtype;
    struct ash_buffer keys, values; /* [layers, slots, max_tokens, width] */
};

static enum ash_dtype cache_dtype(const struct ash_model *model)
{
    return model->round_bf16 ? ASH_BF16 : ASH_F32;
}

static size_t key_width(const struct ash_model_config *config)
{
    return config->kv_heads * config->head_dim;
}

static size_t value_width(const struct ash_model_config *config)
{
    return config->kv_heads * (config->attn == ASH_ATTN_LATENT ? config->v_dim : config->head_dim);
}

size_t ash_cache_token_bytes(const struct ash_model *model)
{
    const struct ash_model_config *config = &model->config;

    return config->layers * (key_width(config) + value_width(config)) * ash_dtype_bytes(cache_dtype(model));
}

int ash_cache_open(const struct ash_model *model, size_t slots, size_t max_tokens, struct ash_cache **cache_out,
                   struct ash_err *err)
{
    const struct ash_model_config *c = &model->config;
    struct ash_cache *cache;
    int rc;

    if (slots == 0 || max_tokens == 0)
        return ash_err_set(err, -EINVAL, "a cache needs at least one slot and one token");
    if (max_tokens > c->max_positions)
        return ash_err_set(err, -EINVAL, "the model's context is %zu tokens, not %zu", c->max_positions, max_tokens);
    cache = calloc(1, sizeof(*cache));
    if (cache == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a cache");
    cache->model = model;
    cache->slots = slots;
    cache->max_tokens = max_tokens;
    cache->dtype = cache_dtype(model);
    cache->k_width = key_width(c);
    cache->v_width = value_width(c);
    size_t runs = c->layers * slots * max_tokens * ash_dtype_bytes(cache->dtype);
    if ((rc = ash_buffer_init(&cache->keys, &ash_memory_host, runs * cache->k_width, "cached keys", err)) < 0)
        goto fail;
    if ((rc = ash_buffer_init(&cache->values, &ash_memory_host, runs * cache->v_width, "cached values", err)) < 0)
        goto fail;
    *cache_out = cache;
    return 0;

fail:
    ash_cache_close(cache);
    return rc;
}

void ash_cache_close(struct ash_cache *cache)
{
    if (cache == NULL) return;
    ash_buffer_fini(&cache->keys);
    ash_buffer_fini(&cache->values);
    free(cache);
}

int ash_cache_check(const struct ash_cache *cache, const struct ash_pass *pass, const struct ash_batch *batch,
                    struct ash_err *err)
{
    if (cache->model != pass->model) return ash_err_set(err, -EINVAL, "the cache belongs to another model");
    if ((cache->dtype == ASH_BF16) != pass->model->round_bf16)
        return ash_err_set(err, -EINVAL, "the cache was opened for another precision");
    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];
        if (doc->slot >= cache->slots)
            return ash_err_set(err, -EINVAL, "slot %zu of a cache of %zu", doc->slot, cache->slots);
        if (doc->pos > cache->max_tokens || doc->count > cache->max_tokens - doc->pos)
            return ash_err_set(err, -EOVERFLOW, "the context is full: %zu tokens are wanted, %zu fit",
                               doc->pos + doc->count, cache->max_tokens);
    }
    return 0;
}

static void write_rows(struct ash_pass *pass, const struct ash_doc *doc, const float *src, size_t stride, char *run,
                       size_t width, enum ash_dtype dtype)
{
    struct ash_copy_args args = {.rows = doc->count,
                                 .blocks = 1,
                                 .cols = width,
                                 .src = src + doc->row * stride,
                                 .src_row = stride,
                                 .dst = run + doc->pos * width * ash_dtype_bytes(dtype),
                                 .dst_dtype = dtype,
                                 .dst_row = width};

    pass->exec->ops->row->copy(pass->exec, &args);
}

void ash_cache_write(struct ash_pass *pass, size_t layer)
{
    struct ash_cache *cache = pass->cache;
    const struct ash_attn_acts *acts = &pass->layers[layer].attn;
    size_t bytes = ash_dtype_bytes(cache->dtype);

    for (size_t i = 0; i < pass->batch->doc_count; i++) {
        const struct ash_doc *doc = &pass->batch->docs[i];
        size_t run = (layer * cache->slots + doc->slot) * cache->max_tokens * bytes;
        char *keys = (char *)cache->keys.data + run * cache->k_width,
             *values = (char *)cache->values.data + run * cache->v_width;
        write_rows(pass, doc, acts->k, pass->k_stride, keys, cache->k_width, cache->dtype);
        write_rows(pass, doc, acts->v, pass->v_stride, values, cache->v_width, cache->dtype);
        pass->seqs[i].k = keys;
        pass->seqs[i].v = values;
    }
}

enum ash_dtype ash_cache_dtype(const struct ash_cache *cache)
{
    return cache->dtype;
}

size_t ash_cache_k_stride(const struct ash_cache *cache)
{
    return cache->k_width;
}

size_t ash_cache_v_stride(const struct ash_cache *cache)
{
    return cache->v_width;
}
