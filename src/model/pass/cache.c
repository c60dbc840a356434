/* The cache: keys and values of earlier tokens, in the precision the model computes in. A page holds some tokens of one
 * slot, of all layers; a slot gets pages as its text grows, from those that others gave back or from the system. */
#include "model/pass/cache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/rope.h"

#define PAGE_TOKENS ASH_ATTN_BLOCK

struct slot {
    void **pages; /* [page_max] */
    size_t count;
};

struct ash_cache {
    const struct ash_model *model;
    size_t slot_count, max_tokens;
    size_t k_width, v_width; /* elements per token and layer */
    enum ash_dtype dtype;
    size_t page_max; /* pages of a slot */
    struct slot *slots;
    struct ash_buffer *pages; /* all there are; room for slot_count * page_max */
    size_t page_count;
    void **spare; /* those that no slot has; as much room */
    size_t spare_count;
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

static int open_tables(struct ash_cache *cache)
{
    size_t total = cache->slot_count * cache->page_max;

    if (total / cache->page_max != cache->slot_count) return -ENOMEM;
    cache->pages = calloc(total, sizeof(*cache->pages));
    cache->spare = calloc(total, sizeof(*cache->spare));
    cache->slots = calloc(cache->slot_count, sizeof(*cache->slots));
    if (cache->pages == NULL || cache->spare == NULL || cache->slots == NULL) return -ENOMEM;
    for (size_t i = 0; i < cache->slot_count; i++) {
        cache->slots[i].pages = calloc(cache->page_max, sizeof(*cache->slots[i].pages));
        if (cache->slots[i].pages == NULL) return -ENOMEM;
    }
    return 0;
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
    cache->slot_count = slots;
    cache->max_tokens = max_tokens;
    cache->k_width = key_width(c);
    cache->v_width = value_width(c);
    cache->dtype = cache_dtype(model);
    cache->page_max = ash_div_up(max_tokens, PAGE_TOKENS);
    rc = open_tables(cache);
    if (rc < 0) {
        ash_cache_close(cache);
        return ash_err_set(err, rc, "out of memory for a cache of %zu slots of %zu tokens", slots, max_tokens);
    }
    *cache_out = cache;
    return 0;
}

void ash_cache_close(struct ash_cache *cache)
{
    if (cache == NULL) return;
    for (size_t i = 0; i < cache->page_count; i++)
        ash_buffer_fini(&cache->pages[i]);
    for (size_t i = 0; cache->slots != NULL && i < cache->slot_count; i++)
        free(cache->slots[i].pages);
    free(cache->slots);
    free(cache->pages);
    free(cache->spare);
    free(cache);
}

void ash_cache_release(struct ash_cache *cache, size_t slot)
{
    struct slot *s = &cache->slots[slot];

    ash_assert(slot < cache->slot_count);
    while (s->count > 0)
        cache->spare[cache->spare_count++] = s->pages[--s->count];
}

/* Pages for the first tokens tokens of a slot. */
static int reserve(struct ash_cache *cache, size_t slot, size_t tokens, struct ash_err *err)
{
    struct slot *s = &cache->slots[slot];
    const struct ash_memory_ops *memory = cache->model->exec != NULL ? cache->model->exec->memory : &ash_memory_host;
    size_t page_bytes = PAGE_TOKENS * ash_cache_token_bytes(cache->model);
    int rc;

    for (; s->count * PAGE_TOKENS < tokens; s->count++) {
        if (cache->spare_count == 0) {
            rc = ash_buffer_init(&cache->pages[cache->page_count], memory, page_bytes, "cached tokens", err);
            if (rc < 0) return rc;
            cache->spare[cache->spare_count++] = cache->pages[cache->page_count++].data;
        }
        s->pages[s->count] = cache->spare[--cache->spare_count];
    }
    return 0;
}

int ash_cache_begin(struct ash_cache *cache, const struct ash_model *model, const struct ash_batch *batch,
                    struct ash_err *err)
{
    if (cache->model != model) return ash_err_set(err, -EINVAL, "the cache belongs to another model");
    if ((cache->dtype == ASH_BF16) != model->round_bf16)
        return ash_err_set(err, -EINVAL, "the cache was opened for another precision");
    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];
        int rc;

        if (doc->slot >= cache->slot_count)
            return ash_err_set(err, -EINVAL, "slot %zu of a cache of %zu", doc->slot, cache->slot_count);
        if (doc->pos > cache->max_tokens || doc->count > cache->max_tokens - doc->pos)
            return ash_err_set(err, -EOVERFLOW, "the context is full: %zu tokens are wanted, %zu fit",
                               doc->pos + doc->count, cache->max_tokens);
        rc = reserve(cache, doc->slot, doc->pos + doc->count, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Where in a page the keys or values of a layer begin, in elements. */
static size_t key_place(const struct ash_cache *cache, size_t layer)
{
    return layer * PAGE_TOKENS * (cache->k_width + cache->v_width);
}

static size_t value_place(const struct ash_cache *cache, size_t layer)
{
    return key_place(cache, layer) + PAGE_TOKENS * cache->k_width;
}

/* Keys or values of a layer: rows that the batch has, and where in a page they go. */
struct cached_rows {
    const float *src; /* of the batch's first row */
    size_t stride, width;
    size_t place; /* in a page, in elements */
};

/* Rows of one document, counted in the document, that fit into one page. */
static void write_page(const struct ash_pass_step *step, const struct ash_doc *doc, struct ash_range rows,
                       const struct cached_rows *cached)
{
    const struct ash_cache *cache = step->cache;
    size_t token = doc->pos + rows.first, element = cached->place + token % PAGE_TOKENS * cached->width;
    char *page = cache->slots[doc->slot].pages[token / PAGE_TOKENS];
    struct ash_copy_args args = {.rows = rows.count,
                                 .blocks = 1,
                                 .cols = cached->width,
                                 .src = cached->src + (doc->row + rows.first) * cached->stride,
                                 .src_row = cached->stride,
                                 .dst = page + element * ash_dtype_bytes(cache->dtype),
                                 .dst_dtype = cache->dtype,
                                 .dst_row = cached->width};

    step->exec->ops->row->copy(step->exec, &args);
}

static void write_document(const struct ash_pass_step *step, size_t layer, const struct ash_doc *doc,
                           const struct ash_attn_args *args)
{
    const struct ash_cache *cache = step->cache;
    const struct ash_acts *acts = step->acts;
    const struct ash_attn_rows *rows = &acts->layers[layer].attn.rows;
    struct cached_rows keys = {rows->k, acts->k_stride, cache->k_width, args->k_page};
    struct cached_rows values = {rows->v, acts->v_stride, cache->v_width, args->v_page};
    struct ash_range page = {0};

    for (; page.first < doc->count; page.first += page.count) {
        page.count = ash_min(doc->count - page.first, PAGE_TOKENS - (doc->pos + page.first) % PAGE_TOKENS);
        write_page(step, doc, page, &keys);
        write_page(step, doc, page, &values);
    }
}

/* Rows of q, k and v as the products left them. */
static void write_rows(const struct ash_pass_step *step, size_t layer, const struct ash_attn_args *args)
{
    const struct ash_model *model = step->model;
    bool has_rope = model->config.rope.kind != ASH_ROPE_NONE;
    const struct ash_rope *rope = step->rope;
    struct ash_kv_write_args write = {.attn = args,
                                      .q = step->acts->layers[layer].attn.rows.q,
                                      .q_stride = step->acts->q_stride,
                                      .dims = has_rope ? rope->dims : 0,
                                      .interleaved_in = model->config.rope.interleaved,
                                      .positions = step->acts->block.positions,
                                      .cos = ash_rope_cos(rope),
                                      .sin = ash_rope_sin(rope),
                                      .round_bf16 = model->round_bf16};

    step->exec->ops->attn->kv_write(step->exec, &write);
}

void ash_cache_write(const struct ash_pass_step *step, size_t layer, struct ash_attn_args *args)
{
    struct ash_cache *cache = step->cache;

    ash_assert(cache->model == step->model && layer < step->model->config.layers);
    args->kv_dtype = cache->dtype;
    args->k_stride = cache->k_width;
    args->v_stride = cache->v_width;
    args->page_tokens = PAGE_TOKENS;
    args->k_page = key_place(cache, layer);
    args->v_page = value_place(cache, layer);
    for (size_t i = 0; i < step->batch->doc_count; i++) {
        const struct ash_doc *doc = &step->batch->docs[i];

        step->seqs[i].pages = cache->slots[doc->slot].pages;
        if (step->model->config.attn == ASH_ATTN_LATENT) write_document(step, layer, doc, args);
    }
    if (step->model->config.attn == ASH_ATTN_GROUPED) write_rows(step, layer, args);
}
