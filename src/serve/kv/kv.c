/* The tiers together: which are open, and what each gets. */
#include "serve/kv/kv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "serve/kv/kv_priv.h"

#define PAGE ASH_CACHE_PAGE_TOKENS

const char *ash_kv_tier_name(enum ash_kv_tier tier)
{
    static const char *const names[ASH_KV_TIERS] = {"host", "dir", "remote", "shelf", "peer"};

    return names[tier];
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int open_dir_store(const void *ctx, struct ash_kv_store **store_out, struct ash_err *err)
{
    const struct ash_kv *kv = ctx;

    return ash_kv_store_open_dir(kv->opts.dir, store_out, err);
}

static int open_remote_store(const void *ctx, struct ash_kv_store **store_out, struct ash_err *err)
{
    const struct ash_kv *kv = ctx;

    return ash_kv_store_open_remote(kv->opts.remote, kv->opts.s3, store_out, err);
}

static int open_places(struct ash_kv *kv, struct ash_err *err)
{
    struct ash_kv_place_opts dir = {.open = open_dir_store,
                                    .ctx = kv,
                                    .limit_bytes = kv->opts.dir_bytes,
                                    .file_bytes = kv->file_bytes,
                                    .lists_at_open = true};
    struct ash_kv_place_opts remote = {.open = open_remote_store, .ctx = kv, .file_bytes = kv->file_bytes};
    int rc = 0;

    if (kv->opts.dir != NULL && kv->opts.dir_bytes < kv->file_bytes)
        return ash_err_set(err, -EINVAL, "--kv-dir-size: %llu bytes hold no page: one takes up to %zu",
                           (unsigned long long)kv->opts.dir_bytes, kv->file_bytes);
    if (kv->opts.dir != NULL) rc = ash_kv_place_open(&dir, &kv->places[ASH_KV_DIR], err);
    if (rc < 0) return ash_err_prefix(err, rc, "--kv-dir");
    if (kv->opts.remote != NULL) rc = ash_kv_place_open(&remote, &kv->places[ASH_KV_REMOTE], err);
    return rc < 0 ? ash_err_prefix(err, rc, "--kv-remote") : 0;
}

int ash_kv_open(const struct ash_kv_opts *opts, const struct ash_kv_pool *pool, const struct ash_memory_ops *buffers,
                size_t max_tokens, struct ash_kv **kv_out, struct ash_err *err)
{
    struct ash_kv *kv = calloc(1, sizeof(*kv));
    int rc = 0;

    if (kv == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    kv->opts = *opts;
    kv->pool = *pool;
    kv->page_bytes = pool->page_bytes;
    ash_assert(kv->page_bytes > 0);
    kv->file_bytes = ash_kv_page_file_bytes(ash_cache_pages_for(max_tokens) * PAGE, kv->page_bytes);
    if (opts->host_bytes > 0) rc = ash_kv_host_open(&kv->host, opts->host_bytes, kv->page_bytes, buffers, err);
    if (rc == 0 && opts->shelf_bytes > 0) rc = ash_kv_shelf_open(opts->shelf_bytes, kv->file_bytes, &kv->shelf, err);
    if (rc == 0) rc = open_places(kv, err);
    if (rc == 0) rc = ash_kv_start_readers(kv, buffers, err);
    if (rc < 0) {
        ash_kv_close(kv);
        return rc;
    }
    *kv_out = kv;
    return 0;
}

void ash_kv_close(struct ash_kv *kv)
{
    if (kv == NULL) return;
    ash_kv_stop_readers(kv);
    for (size_t tier = 0; tier < ASH_KV_TIERS; tier++)
        ash_kv_place_close(kv->places[tier]);
    ash_kv_host_close(&kv->host);
    ash_kv_shelf_close(kv->shelf);
    free(kv);
}

void ash_kv_arm(struct ash_kv *kv, uint64_t fingerprint)
{
    atomic_store(&kv->fingerprint, fingerprint);
    for (size_t tier = 0; tier < ASH_KV_TIERS; tier++)
        if (kv->places[tier] != NULL) ash_kv_place_arm(kv->places[tier], fingerprint);
    atomic_store(&kv->is_armed, true);
}

bool ash_kv_describe(const struct ash_kv *kv, struct ash_kv_source *source_out)
{
    if (kv->shelf == NULL || !atomic_load(&kv->is_armed)) return false;
    *source_out = (struct ash_kv_source){.fingerprint = atomic_load(&kv->fingerprint),
                                         .shelf = *ash_kv_shelf_describe(kv->shelf)};
    return true;
}

uint64_t ash_kv_open_job(const struct ash_kv *kv)
{
    ash_assert(kv->shelf != NULL);
    return ash_kv_shelf_open_job(kv->shelf);
}

void ash_kv_tell_job(struct ash_kv *kv, uint64_t job, size_t pages, bool is_over)
{
    if (kv->shelf != NULL) ash_kv_shelf_tell_job(kv->shelf, job, pages, is_over);
}

/* ---- pages that go there ----------------------------------------------------------------------------------------- */

/* Queue the page's file for the tiers that lack it. */
static void give(struct ash_kv *kv, struct ash_kv_name name, const struct ash_kv_prefix *prefix, int32_t page)
{
    size_t bytes = ash_kv_page_file_bytes(prefix->count, kv->page_bytes);

    if (kv->shelf != NULL) ash_kv_shelf_put(kv->shelf, &kv->pool, name, prefix, page);
    for (size_t tier = 0; tier < ASH_KV_TIERS; tier++) {
        struct ash_kv_place *place = kv->places[tier];
        char *file = place != NULL ? ash_kv_place_reserve(place, name, bytes) : NULL;
        bool is_read;

        if (file == NULL) continue;
        is_read = kv->pool.read(kv->pool.ctx, page, file + ash_kv_page_file_offset(prefix->count)) == 0;
        if (is_read) ash_kv_page_file_seal(prefix, kv->page_bytes, file);
        ash_kv_place_submit(place, is_read);
    }
}

static struct ash_kv_prefix prefix_of(const struct ash_kv *kv, const struct ash_kv_page *page)
{
    ash_assert(page->count > 0 && page->count % PAGE == 0);
    return (struct ash_kv_prefix){
        .fingerprint = atomic_load(&kv->fingerprint), .salt = page->salt, .tokens = page->tokens, .count = page->count};
}

void ash_kv_keep(struct ash_kv *kv, const struct ash_kv_page *page)
{
    struct ash_kv_prefix prefix = prefix_of(kv, page);

    if (atomic_load(&kv->is_armed)) give(kv, ash_kv_name_of(&prefix, PAGE), &prefix, page->page);
}

void ash_kv_keep_all(struct ash_kv *kv, const struct ash_kv_page *text, const int32_t *pages)
{
    struct ash_kv_prefix prefix = {atomic_load(&kv->fingerprint), text->salt, text->tokens, 0};
    struct ash_kv_name name = ash_kv_name_start(prefix.fingerprint, prefix.salt);

    if (!atomic_load(&kv->is_armed)) return;
    for (size_t i = 0; i < text->count / PAGE; i++) {
        name = ash_kv_name_next(name, text->tokens + i * PAGE, PAGE);
        prefix.count = (i + 1) * PAGE;
        give(kv, name, &prefix, pages[i]);
    }
}

void ash_kv_evict(struct ash_kv *kv, const struct ash_kv_page *page)
{
    struct ash_kv_prefix prefix = prefix_of(kv, page);

    if (!atomic_load(&kv->is_armed)) return;
    if (kv->host.slots > 0) ash_kv_host_put(&kv->host, &kv->pool, &prefix, page->page);
    ash_kv_keep(kv, page);
}

void ash_kv_disarm(struct ash_kv *kv)
{
    atomic_store(&kv->is_armed, false);
    ash_kv_forget(kv);
}

void ash_kv_forget(struct ash_kv *kv)
{
    ash_kv_host_clear(&kv->host);
    if (kv->shelf != NULL) ash_kv_shelf_clear(kv->shelf);
}

void ash_kv_get_stats(struct ash_kv *kv, struct ash_kv_stats *stats_out)
{
    *stats_out = (struct ash_kv_stats){0};
    stats_out->tiers[ASH_KV_HOST] = kv->host.stats;
    stats_out->tiers[ASH_KV_HOST].pages = kv->host.index.count;
    stats_out->tiers[ASH_KV_HOST].bytes = kv->host.index.bytes;
    if (kv->shelf != NULL) ash_kv_shelf_stats(kv->shelf, &stats_out->tiers[ASH_KV_SHELF]);
    pthread_mutex_lock(&kv->lock);
    stats_out->tiers[ASH_KV_PEER] = kv->peer_stats;
    pthread_mutex_unlock(&kv->lock);
    for (size_t tier = 0; tier < ASH_KV_TIERS; tier++) {
        if (kv->places[tier] != NULL) ash_kv_place_stats(kv->places[tier], &stats_out->tiers[tier]);
        stats_out->tiers[tier].declined = kv->declined[tier];
    }
}
