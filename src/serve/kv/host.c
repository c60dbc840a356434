/* Pages in host memory: slots of one region, found by name and compared by their whole prefix. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/kv/kv_priv.h"

int ash_kv_host_open(struct ash_kv_host *host, uint64_t bytes, size_t page_bytes, const struct ash_memory_ops *memory,
                     struct ash_err *err)
{
    size_t slots = bytes / page_bytes;
    int rc;

    if (slots == 0 || slots > UINT32_MAX)
        return ash_err_set(err, -EINVAL, "--kv-host-memory: %llu bytes hold no page of %zu bytes",
                           (unsigned long long)bytes, page_bytes);
    rc = ash_buffer_init(&host->region, memory, slots * page_bytes, "--kv-host-memory", err);
    if (rc < 0) return rc;
    host->page_bytes = page_bytes;
    host->tokens = calloc(slots, sizeof(int32_t *));
    host->salts = calloc(slots, sizeof(*host->salts));
    host->fingerprints = calloc(slots, sizeof(*host->fingerprints));
    host->counts = calloc(slots, sizeof(*host->counts));
    host->free = calloc(slots, sizeof(*host->free));
    if (host->tokens == NULL || host->salts == NULL || host->fingerprints == NULL || host->counts == NULL ||
        host->free == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for the list of pages in host memory");
    for (host->slots = slots; host->free_count < slots; host->free_count++)
        host->free[host->free_count] = (uint32_t)(slots - 1 - host->free_count);
    return 0;
}

void ash_kv_host_close(struct ash_kv_host *host)
{
    for (size_t i = 0; i < host->slots; i++)
        free(host->tokens[i]);
    ash_kv_index_fini(&host->index);
    ash_buffer_fini(&host->region);
    free(host->tokens);
    free(host->salts);
    free(host->fingerprints);
    free(host->counts);
    free(host->free);
    *host = (struct ash_kv_host){0};
}

static void drop(struct ash_kv_host *host, struct ash_kv_entry *entry)
{
    free(host->tokens[entry->slot]);
    host->tokens[entry->slot] = NULL;
    host->free[host->free_count++] = entry->slot;
    ash_kv_index_remove(&host->index, entry);
}

static char *slot_data(const struct ash_kv_host *host, uint32_t slot)
{
    return (char *)host->region.data + (size_t)slot * host->page_bytes;
}

/* A free slot, if need be the one used longest ago. Returns whether there is one. */
static bool find_slot(struct ash_kv_host *host)
{
    struct ash_kv_entry *victim = host->free_count == 0 ? ash_kv_index_victim(&host->index) : NULL;

    if (victim != NULL) {
        drop(host, victim);
        host->stats.evictions++;
    }
    return host->free_count > 0;
}

void ash_kv_host_put(struct ash_kv_host *host, const struct ash_kv_pool *pool, const struct ash_kv_prefix *prefix,
                     int32_t page)
{
    struct ash_kv_name name = ash_kv_name_of(prefix, ASH_CACHE_PAGE_TOKENS);
    struct ash_kv_entry *entry = ash_kv_index_find(&host->index, name);
    int32_t *tokens;
    uint32_t slot;

    if (entry != NULL) {
        ash_kv_index_touch(&host->index, entry, false);
        return;
    }
    tokens = malloc(prefix->count * sizeof(*tokens));
    entry = tokens != NULL && find_slot(host) ? ash_kv_index_add(&host->index, name, host->page_bytes) : NULL;
    if (entry == NULL) {
        free(tokens);
        return;
    }
    slot = entry->slot = host->free[--host->free_count];
    memcpy(tokens, prefix->tokens, prefix->count * sizeof(*tokens));
    host->tokens[slot] = tokens;
    host->counts[slot] = prefix->count;
    host->salts[slot] = prefix->salt;
    host->fingerprints[slot] = prefix->fingerprint;
    if (pool->read(pool->ctx, page, slot_data(host, slot)) < 0) {
        drop(host, entry);
        return;
    }
    host->stats.stored++;
    host->stats.bytes_written += host->page_bytes;
}

const void *ash_kv_host_get(struct ash_kv_host *host, struct ash_kv_name name, const struct ash_kv_prefix *prefix)
{
    struct ash_kv_entry *entry = ash_kv_index_find(&host->index, name);
    uint32_t slot = entry != NULL ? entry->slot : 0;

    if (entry == NULL || host->counts[slot] != prefix->count || host->salts[slot] != prefix->salt ||
        host->fingerprints[slot] != prefix->fingerprint ||
        memcmp(host->tokens[slot], prefix->tokens, prefix->count * sizeof(*prefix->tokens)) != 0)
        return NULL;
    ash_kv_index_touch(&host->index, entry, true);
    return slot_data(host, slot);
}

void ash_kv_host_clear(struct ash_kv_host *host)
{
    while (host->index.oldest != NULL)
        drop(host, host->index.oldest);
}
