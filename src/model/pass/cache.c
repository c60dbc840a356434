/* The pool of pages, and block tables over it. Free pages are a stack, so the pages used last, which are in the caches
 * and in memory, come first. */
#include "model/pass/cache_step.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/attn_pages.h"
#include "model/pass/rope.h"
#include "model/state_widths.h"

struct ash_cache {
    const struct ash_model *model;
    size_t k_width, v_width; /* elements per token and layer */
    enum ash_dtype dtype;
    struct ash_buffer region; /* [page_count] pages of page_bytes */
    size_t page_bytes, page_count;
    uint32_t *refs; /* [page_count] */
    int32_t *free;  /* [page_count]: a stack */
    size_t free_count;
};

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static size_t key_width(const struct ash_model_config *config)
{
    return config->kv_heads * config->head_dim;
}

static size_t value_width(const struct ash_model_config *config)
{
    return config->kv_heads * (config->attn == ASH_ATTN_LATENT ? config->v_dim : config->head_dim);
}

/* Keys, values and a share of the states that a page ends with. */
static size_t token_bytes(const struct ash_model_config *config, enum ash_dtype dtype)
{
    size_t attending = ash_config_count_attending(config, config->layers);
    size_t states = ash_config_count_states(config, config->layers);

    return attending * (key_width(config) + value_width(config)) * ash_dtype_bytes(dtype) +
           ash_div_up(states * ash_state_floats(config), ASH_CACHE_PAGE_TOKENS) * sizeof(float);
}

size_t ash_cache_token_bytes(const struct ash_model *model)
{
    return token_bytes(&model->config, ash_model_kv_dtype(model));
}

size_t ash_cache_whole_token_bytes(const struct ash_model *model)
{
    return token_bytes(&model->whole, ash_model_kv_dtype(model));
}

size_t ash_cache_pages_for(size_t tokens)
{
    return ash_div_up(tokens, ASH_CACHE_PAGE_TOKENS);
}

static int open_pages(struct ash_cache *cache, struct ash_err *err)
{
    const struct ash_exec *exec = cache->model != NULL ? cache->model->exec : NULL;
    size_t bytes;
    int rc;

    cache->refs = calloc(cache->page_count, sizeof(*cache->refs));
    cache->free = calloc(cache->page_count, sizeof(*cache->free));
    if (cache->refs == NULL || cache->free == NULL ||
        __builtin_mul_overflow(cache->page_bytes, cache->page_count, &bytes))
        return ash_err_set(err, -ENOMEM, "out of memory for a cache of %zu pages", cache->page_count);
    rc = ash_buffer_init(&cache->region, exec != NULL ? exec->memory : &ash_memory_host, bytes, "cached tokens", err);
    if (rc < 0) return rc;
    if (exec == NULL && cache->page_bytes < ASH_MEMORY_HUGE / 4) ash_buffer_sparse(&cache->region);
    for (size_t i = cache->page_count; i-- > 0;)
        cache->free[cache->free_count++] = (int32_t)i;
    return 0;
}

/* model NULL: pages hold nothing. */
static int open_cache(const struct ash_model *model, size_t page_count, struct ash_cache **cache_out,
                      struct ash_err *err)
{
    struct ash_cache *cache;
    int rc;

    if (page_count == 0 || page_count > INT32_MAX)
        return ash_err_set(err, -EINVAL, "a cache of %zu pages: it needs at least one and at most %d", page_count,
                           INT32_MAX);
    cache = calloc(1, sizeof(*cache));
    if (cache == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a cache");
    cache->page_count = page_count;
    if (model != NULL) {
        cache->model = model;
        cache->k_width = key_width(&model->config);
        cache->v_width = value_width(&model->config);
        cache->dtype = ash_model_kv_dtype(model);
        cache->page_bytes = ASH_CACHE_PAGE_TOKENS * ash_cache_token_bytes(model);
    }
    rc = open_pages(cache, err);
    if (rc < 0) {
        ash_cache_close(cache);
        return rc;
    }
    *cache_out = cache;
    return 0;
}

int ash_cache_open(const struct ash_model *model, size_t page_count, struct ash_cache **cache_out, struct ash_err *err)
{
    ash_assert(model != NULL);
    return open_cache(model, page_count, cache_out, err);
}

int ash_cache_open_bare(size_t page_count, struct ash_cache **cache_out, struct ash_err *err)
{
    return open_cache(NULL, page_count, cache_out, err);
}

void ash_cache_close(struct ash_cache *cache)
{
    if (cache == NULL) return;
    ash_buffer_fini(&cache->region);
    free(cache->refs);
    free(cache->free);
    free(cache);
}

size_t ash_cache_page_count(const struct ash_cache *cache)
{
    return cache->page_count;
}

size_t ash_cache_free_count(const struct ash_cache *cache)
{
    return cache->free_count;
}

int32_t ash_cache_take(struct ash_cache *cache)
{
    int32_t page;

    if (cache->free_count == 0) return -ENOSPC;
    page = cache->free[--cache->free_count];
    ash_assert(cache->refs[page] == 0);
    cache->refs[page] = 1;
    return page;
}

void ash_cache_ref(struct ash_cache *cache, int32_t page)
{
    ash_assert(page >= 0 && (size_t)page < cache->page_count && cache->refs[page] > 0);
    cache->refs[page]++;
}

void ash_cache_unref(struct ash_cache *cache, int32_t page)
{
    ash_assert(page >= 0 && (size_t)page < cache->page_count && cache->refs[page] > 0);
    if (--cache->refs[page] == 0) cache->free[cache->free_count++] = page;
}

uint32_t ash_cache_ref_count(const struct ash_cache *cache, int32_t page)
{
    ash_assert(page >= 0 && (size_t)page < cache->page_count);
    return cache->refs[page];
}

static char *page_data(const struct ash_cache *cache, int32_t page)
{
    return (char *)cache->region.data + (size_t)page * cache->page_bytes;
}

void ash_cache_copy_page(struct ash_cache *cache, int32_t from, int32_t to)
{
    ash_assert(from != to && ash_cache_ref_count(cache, from) > 0 && ash_cache_ref_count(cache, to) > 0);
    if (cache->page_bytes == 0) return;
    cache->region.memory->copy(page_data(cache, to), page_data(cache, from), cache->page_bytes);
}

/* ---- whole pages ------------------------------------------------------------------------------------------------- */

size_t ash_cache_page_bytes(const struct ash_cache *cache)
{
    return cache->model != NULL ? ASH_CACHE_PAGE_TOKENS * token_bytes(&cache->model->whole, cache->dtype) : 0;
}

/* Some bytes of a page here, and where they are in a whole one. */
struct page_run {
    size_t here, whole, bytes;
};

/* Keys (is_value: values) of this cache's heads in one of its layers: heads lie one after the other. */
static struct page_run find_run(const struct ash_cache *cache, size_t layer, bool is_value)
{
    const struct ash_model *model = cache->model;
    size_t element = ASH_CACHE_PAGE_TOKENS * ash_dtype_bytes(cache->dtype), id = model->layer_ids[layer];
    size_t all_keys = key_width(&model->whole), all_values = value_width(&model->whole);
    size_t width = is_value ? cache->v_width : cache->k_width, all = is_value ? all_values : all_keys;
    size_t first = ash_slice_kv_heads(&model->whole, &model->slice).first * (all / model->whole.kv_heads);

    ash_assert(first + width <= all && id < model->whole.layers && model->whole.state.heads == 0);
    return (struct page_run){.here = element *
                                     (layer * (cache->k_width + cache->v_width) + (is_value ? cache->k_width : 0)),
                             .whole = element * (id * (all_keys + all_values) + (is_value ? all_keys : 0) + first),
                             .bytes = element * width};
}

int ash_cache_read_page(const struct ash_cache *cache, int32_t page, void *whole)
{
    char *here = page_data(cache, page);
    int rc = 0;

    ash_assert(cache->page_bytes > 0 && ash_cache_ref_count(cache, page) > 0);
    if (ash_cache_page_bytes(cache) == cache->page_bytes)
        return cache->region.memory->copy(whole, here, cache->page_bytes);
    for (size_t i = 0; i < 2 * cache->model->config.layers && rc == 0; i++) {
        struct page_run run = find_run(cache, i / 2, i % 2 == 1);

        rc = cache->region.memory->copy((char *)whole + run.whole, here + run.here, run.bytes);
    }
    return rc;
}

int ash_cache_write_page(struct ash_cache *cache, int32_t page, const void *whole)
{
    char *here = page_data(cache, page);
    int rc = 0;

    ash_assert(cache->page_bytes > 0 && ash_cache_ref_count(cache, page) > 0);
    if (ash_cache_page_bytes(cache) == cache->page_bytes)
        return cache->region.memory->copy(here, whole, cache->page_bytes);
    for (size_t i = 0; i < 2 * cache->model->config.layers && rc == 0; i++) {
        struct page_run run = find_run(cache, i / 2, i % 2 == 1);

        rc = cache->region.memory->copy(here + run.here, (const char *)whole + run.whole, run.bytes);
    }
    return rc;
}

/* ---- block tables ------------------------------------------------------------------------------------------------ */

int ash_block_table_init(struct ash_block_table *table, size_t max_tokens)
{
    size_t capacity = ash_cache_pages_for(max_tokens);
    int32_t *pages = calloc(ash_max(capacity, 1), sizeof(*pages));

    if (pages == NULL) return -ENOMEM;
    *table = (struct ash_block_table){.pages = pages, .capacity = capacity};
    return 0;
}

void ash_block_table_fini(struct ash_block_table *table)
{
    free(table->pages);
    *table = (struct ash_block_table){0};
}

int ash_block_table_grow(struct ash_block_table *table, struct ash_cache *cache, size_t tokens)
{
    size_t wanted = ash_cache_pages_for(tokens);

    ash_assert(wanted <= table->capacity);
    if (wanted > table->count && wanted - table->count > cache->free_count) return -ENOSPC;
    while (table->count < wanted)
        table->pages[table->count++] = ash_cache_take(cache);
    return 0;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The pages that the document's rows are written to have been taken. */
static int check_table(const struct ash_cache *cache, const struct ash_doc *doc, struct ash_err *err)
{
    size_t end = doc->pos + doc->count;

    if (ash_cache_pages_for(end) > doc->page_count)
        return ash_err_set(err, -EOVERFLOW, "the context is full: %zu tokens are wanted, %zu fit", end,
                           doc->page_count * ASH_CACHE_PAGE_TOKENS);
    for (size_t i = 0; i < ash_cache_pages_for(end); i++) {
        int32_t page = doc->pages[i];

        if (page < 0 || (size_t)page >= cache->page_count || cache->refs[page] == 0)
            return ash_err_set(err, -EINVAL, "page %d of a cache of %zu is not in use", page, cache->page_count);
    }
    return 0;
}

int ash_cache_begin(struct ash_cache *cache, const struct ash_model *model, const struct ash_batch *batch,
                    struct ash_err *err)
{
    if (cache->model != model) return ash_err_set(err, -EINVAL, "the cache belongs to another model");
    if (cache->dtype != ash_model_kv_dtype(model))
        return ash_err_set(err, -EINVAL, "the cache was opened for another precision");
    for (size_t i = 0; i < batch->doc_count; i++) {
        int rc = check_table(cache, &batch->docs[i], err);

        if (rc < 0) return rc;
    }
    return 0;
}

/* Latent attention's keys and values, already made, of rows that fit into one page. */
static void write_page(const struct ash_pass_step *step, const struct ash_attn_args *args,
                       const struct ash_attn_seq *seq, struct ash_range rows, const struct ash_attn_rows *from)
{
    const struct ash_acts *acts = step->acts;
    size_t first = seq->q_row + rows.first, token = seq->pos + rows.first;
    struct ash_copy_args keys = {.rows = rows.count,
                                 .blocks = args->kv_heads * args->dim_k,
                                 .cols = 1,
                                 .src = from->k + first * acts->k_stride,
                                 .src_row = acts->k_stride,
                                 .src_block = 1,
                                 .dst = ash_attn_keys(args, seq, token, 0).data,
                                 .dst_dtype = args->kv_dtype,
                                 .dst_row = 1,
                                 .dst_block = ASH_ATTN_BLOCK};
    struct ash_copy_args values = {.rows = rows.count,
                                   .blocks = args->kv_heads,
                                   .cols = args->dim_v,
                                   .src = from->v + first * acts->v_stride,
                                   .src_row = acts->v_stride,
                                   .src_block = args->dim_v,
                                   .dst = ash_attn_values(args, seq, token, 0).data,
                                   .dst_dtype = args->kv_dtype,
                                   .dst_row = args->dim_v,
                                   .dst_block = ASH_ATTN_BLOCK * args->dim_v};

    step->exec->ops->row->copy(step->exec, &keys);
    step->exec->ops->row->copy(step->exec, &values);
}

static void write_document(const struct ash_pass_step *step, const struct ash_attn_args *args, size_t layer,
                           const struct ash_attn_seq *seq)
{
    struct ash_range page = {0};

    ash_assert(layer < step->model->config.layers);
    for (; page.first < seq->q_count; page.first += page.count) {
        page.count = ash_min(seq->q_count - page.first, ASH_ATTN_BLOCK - (seq->pos + page.first) % ASH_ATTN_BLOCK);
        write_page(step, args, seq, page, &step->acts->layers[layer].attn.rows);
    }
}

/* Rows of q, k and v as the products left them. */
static void write_rows(const struct ash_pass_step *step, size_t layer, const struct ash_attn_args *args)
{
    const struct ash_model *model = step->model;
    enum ash_rope_at at = (enum ash_rope_at)model->config.rope_at[layer];
    const struct ash_rope *rope = step->rope;
    struct ash_kv_write_args write = {
        .attn = args,
        .q = step->acts->layers[layer].attn.rows.q,
        .q_stride = step->acts->q_stride,
        .dims = ash_rope_is_in(model, layer) && !model->config.form.qk_norm_last ? rope->dims : 0,
        .interleaved_in = model->config.rope.interleaved,
        .positions = step->acts->block.positions,
        .cos = ash_rope_cos(rope, at),
        .sin = ash_rope_sin(rope, at),
        .round_bf16 = model->round_bf16};

    ash_assert(layer < step->model->config.layers);
    step->exec->ops->attn->kv_write(step->exec, &write);
}

float *ash_cache_state(const struct ash_cache *cache, int32_t page, size_t layer)
{
    const struct ash_model_config *config = &cache->model->config;
    size_t attending = ash_config_count_attending(config, config->layers);
    size_t keys = ASH_CACHE_PAGE_TOKENS * attending * (cache->k_width + cache->v_width);
    char *at = (char *)cache->region.data + (size_t)page * cache->page_bytes;

    ash_assert(layer < config->layers && page >= 0 && (size_t)page < cache->page_count);
    return (float *)(void *)(at + keys * ash_dtype_bytes(cache->dtype)) +
           ash_config_count_states(config, layer) * ash_state_floats(config);
}

const void *ash_cache_data(const struct ash_cache *cache)
{
    return cache->region.data;
}

void ash_cache_write(const struct ash_pass_step *step, size_t layer, struct ash_attn_args *args)
{
    struct ash_cache *cache = step->cache;

    ash_assert(cache->model == step->model && layer < step->model->config.layers);
    args->kv_dtype = cache->dtype;
    args->pool = cache->region.data;
    args->page_bytes = cache->page_bytes;
    args->k_page = ash_config_count_attending(&step->model->config, layer) * ASH_CACHE_PAGE_TOKENS *
                   (cache->k_width + cache->v_width);
    args->v_page = args->k_page + ASH_CACHE_PAGE_TOKENS * cache->k_width;
    for (size_t i = 0; i < step->batch->doc_count; i++) {
        step->seqs[i].pages = step->batch->docs[i].pages;
        if (step->model->config.attn == ASH_ATTN_LATENT) write_document(step, args, layer, &step->seqs[i]);
    }
    if (step->model->config.attn == ASH_ATTN_GROUPED) write_rows(step, layer, args);
}
