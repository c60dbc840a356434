/* What the engine loop holds: figures for operators, and whether pages and sequences agree. */
#include <stdlib.h>

#include "serve/engine/core_priv.h"

struct ash_core_stats ash_core_get_stats(const struct ash_core *core)
{
    struct ash_core_stats stats = core->stats;

    stats.running = core->running_count;
    stats.waiting = core->queue.count;
    stats.pages = ash_cache_page_count(core->cache);
    stats.pages_free = ash_cache_free_count(core->cache);
    stats.pages_cached = core->prefix != NULL ? ash_prefix_cached_count(core->prefix) : 0;
    if (core->kv != NULL) ash_kv_get_stats(core->kv, &stats.kv);
    stats.pages_held = stats.pages - stats.pages_free - stats.pages_cached;
    return stats;
}

bool ash_core_is_consistent(const struct ash_core *core)
{
    struct ash_core_stats stats = ash_core_get_stats(core);
    uint32_t *refs = calloc(stats.pages, sizeof(*refs));
    size_t held = 0;
    bool is_right = refs != NULL && (core->prefix == NULL || ash_prefix_is_consistent(core->prefix));

    for (size_t i = 0; i < core->running_count && is_right; i++)
        for (size_t p = 0; p < core->running[i]->table.count; p++) {
            int32_t page = core->running[i]->table.pages[p];

            held += refs[page]++ == 0;
        }
    for (size_t page = 0; page < stats.pages && is_right; page++) /* the tree has at most one more */
        is_right = refs[page] == 0 || ash_cache_ref_count(core->cache, (int32_t)page) - refs[page] <= 1;
    free(refs);
    return is_right && held == stats.pages_held;
}
