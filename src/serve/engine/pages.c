/* Pages of sequences: free ones, and those of tiers below the pool, which are read and not computed. A sequence that
 * waits for pages has no rows in a step; it takes them in order, as nodes of the prefix tree, and computes the rest. */
#include <errno.h>

#include "base/assert.h"
#include "infra/device/cuda.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define WAIT_SECONDS 0.02 /* for pages; then requests that came or left are looked at */

/* ---- free ones --- */

bool ash_core_make_free(struct ash_core *core, size_t pages)
{
    if (ash_cache_free_count(core->cache) >= pages) return true;
    return core->prefix != NULL && ash_prefix_evict(core->prefix, pages);
}

bool ash_core_grow(struct ash_core *core, struct ash_seq *seq, size_t tokens)
{
    size_t pages = ash_cache_pages_for(tokens);

    if (pages > seq->table.count && !ash_core_make_free(core, pages - seq->table.count)) return false;
    return ash_block_table_grow(&seq->table, core->cache, tokens) == 0;
}

/* ---- tiers --- */

static void take_evicted(void *ctx, const struct ash_prefix_text *text, int32_t page)
{
    struct ash_kv_page gone = {.salt = text->salt, .tokens = text->tokens, .count = text->count, .page = page};

    ash_kv_evict(ctx, &gone);
}

static int read_page(void *ctx, int32_t page, void *data)
{
    struct ash_core *core = ctx;

    return ash_ranks_read_page(core->opts.ranks, core->cache, page, data);
}

static int write_page(void *ctx, int32_t page, const void *data)
{
    struct ash_core *core = ctx;

    return ash_ranks_write_page(core->opts.ranks, core->cache, page, data);
}

int ash_core_open_kv(struct ash_core *core, struct ash_err *err)
{
    struct ash_kv_pool pool = {
        .page_bytes = ash_cache_page_bytes(core->cache), .read = read_page, .write = write_page, .ctx = core};
    const struct ash_memory_ops *memory = core->exec->cuda != NULL ? &ash_memory_pinned : &ash_memory_host;
    int rc;

    if (core->opts.kv == NULL || core->prefix == NULL || core->model == NULL) return 0;
    rc = ash_ranks_share_pages(core->opts.ranks, core->cache, err);
    if (rc < 0) return rc;
    rc = ash_kv_open(core->opts.kv, &pool, memory, core->opts.max_tokens, &core->kv, err);
    if (rc < 0) return rc;
    rc = ash_prefix_on_evict(core->prefix, take_evicted, core->kv);
    return rc < 0 ? ash_err_set(err, rc, "core: out of memory") : 0;
}

void ash_core_forget_tiers(struct ash_core *core)
{
    if (core->kv == NULL) return;
    (void)ash_prefix_on_evict(core->prefix, NULL, NULL);
    ash_kv_forget(core->kv);
}

void ash_core_resume_tiers(struct ash_core *core)
{
    if (core->kv != NULL) (void)ash_prefix_on_evict(core->prefix, take_evicted, core->kv);
}

/* Take pages that came, as far as there is room. The rest is computed. */
static void take_pages(struct ash_core *core, struct ash_seq *seq)
{
    int rc = 1;

    while (rc == 1 && ash_kv_load_is_ready(seq->load)) {
        size_t index = seq->table.count;
        struct ash_prefix_text text;

        ash_assert(index * PAGE == seq->computed);
        if (!ash_core_grow(core, seq, seq->computed + PAGE)) rc = -1;
        if (rc == 1) rc = ash_kv_load_take(seq->load, seq->table.pages[index]);
        if (rc == 1) {
            seq->computed += PAGE;
            text = ash_seq_text(seq, seq->computed);
            ash_prefix_insert(core->prefix, &text, &seq->table, index);
        } else if (seq->table.count > index) {
            ash_cache_unref(core->cache, seq->table.pages[--seq->table.count]);
        }
    }
    if (rc == 1) return;
    ash_kv_load_close(seq->load);
    seq->load = NULL;
}

bool ash_core_load(struct ash_core *core, struct ash_seq *seq, size_t end)
{
    struct ash_kv_page text = {
        .salt = seq->request->salt, .tokens = seq->tokens, .count = end / PAGE * PAGE, .source = seq->request->source};

    if (core->kv == NULL || seq->has_loaded || seq->load != NULL || !seq->uses_cache) return false;
    seq->has_loaded = true;
    seq->load = ash_kv_load_open(core->kv, &text, seq->table.count, core->row_s);
    if (seq->load == NULL) return false;
    take_pages(core, seq);
    return true;
}

void ash_core_poll_loads(struct ash_core *core)
{
    for (size_t i = 0; i < core->running_count && core->kv != NULL; i++)
        if (core->running[i]->load != NULL) take_pages(core, core->running[i]);
}

void ash_core_wait_loads(struct ash_core *core)
{
    size_t loads = 0;

    for (size_t i = 0; i < core->running_count; i++)
        loads += core->running[i]->load != NULL;
    ash_assert(loads > 0);
    ash_kv_wait(core->kv, WAIT_SECONDS);
}

void ash_core_tell_pages(struct ash_core *core, struct ash_seq *seq)
{
    struct ash_kv_page text = {.salt = seq->request->salt, .tokens = seq->tokens, .count = seq->computed / PAGE * PAGE};

    if (core->kv == NULL || seq->request->job == 0 || !seq->uses_cache) return;
    if (!seq->has_told) ash_kv_keep_all(core->kv, &text, seq->table.pages);
    seq->has_told = true;
    ash_kv_tell_job(core->kv, seq->request->job, seq->computed / PAGE, false);
}

void ash_core_leave_tiers(struct ash_core *core, struct ash_seq *seq)
{
    struct ash_kv_page text = {.salt = seq->request->salt, .tokens = seq->tokens, .count = seq->computed / PAGE * PAGE};

    ash_kv_load_close(seq->load);
    seq->load = NULL;
    seq->has_loaded = false;
    if (core->kv != NULL && seq->uses_cache) ash_kv_keep_all(core->kv, &text, seq->table.pages);
}
