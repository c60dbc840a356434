/* Compiled grammars by their source: a small table with a list from the one used last to the one used first. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"

struct entry {
    uint64_t hash, used; /* used: when, as a count of look-ups */
    char *key;
    size_t size_bytes;
    struct ash_grammar *grammar; /* NULL: free */
};

struct ash_grammar_cache {
    pthread_mutex_t lock;
    struct entry *entries;
    size_t count;
    uint64_t now;
};

struct ash_grammar_cache *ash_grammar_cache_open(size_t count)
{
    struct ash_grammar_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL) return NULL;
    cache->count = count > 0 ? count : 1;
    cache->entries = calloc(cache->count, sizeof(*cache->entries));
    if (cache->entries == NULL || pthread_mutex_init(&cache->lock, NULL) != 0) {
        free(cache->entries);
        free(cache);
        return NULL;
    }
    return cache;
}

void ash_grammar_cache_close(struct ash_grammar_cache *cache)
{
    if (cache == NULL) return;
    for (size_t i = 0; i < cache->count; i++) {
        free(cache->entries[i].key);
        ash_grammar_put(cache->entries[i].grammar);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache->entries);
    free(cache);
}

/* The entry of key, or NULL. Under the lock. */
static struct entry *find(struct ash_grammar_cache *cache, const void *key, size_t size_bytes, uint64_t hash)
{
    for (size_t i = 0; i < cache->count; i++) {
        struct entry *entry = &cache->entries[i];
        if (entry->grammar != NULL && entry->hash == hash && entry->size_bytes == size_bytes &&
            memcmp(entry->key, key, size_bytes) == 0)
            return entry;
    }
    return NULL;
}

struct ash_grammar *ash_grammar_cache_find(struct ash_grammar_cache *cache, const void *key, size_t size_bytes)
{
    uint64_t hash = ash_hash_bytes(key, size_bytes, 0);
    struct ash_grammar *grammar = NULL;
    struct entry *entry;

    pthread_mutex_lock(&cache->lock);
    entry = find(cache, key, size_bytes, hash);
    if (entry != NULL) {
        entry->used = ++cache->now;
        grammar = ash_grammar_get(entry->grammar);
    }
    pthread_mutex_unlock(&cache->lock);
    return grammar;
}

void ash_grammar_cache_add(struct ash_grammar_cache *cache, const void *key, size_t size_bytes,
                           struct ash_grammar *grammar)
{
    uint64_t hash = ash_hash_bytes(key, size_bytes, 0);
    struct ash_grammar *old = NULL;
    struct entry *oldest;
    char *copy = malloc(size_bytes + 1);

    if (copy == NULL) return;
    memcpy(copy, key, size_bytes);
    pthread_mutex_lock(&cache->lock);
    oldest = find(cache, key, size_bytes, hash);
    if (oldest == NULL) {
        oldest = &cache->entries[0];
        for (size_t i = 1; i < cache->count; i++)
            if (cache->entries[i].used < oldest->used) oldest = &cache->entries[i];
    }
    old = oldest->grammar;
    free(oldest->key);
    *oldest = (struct entry){hash, ++cache->now, copy, size_bytes, ash_grammar_get(grammar)};
    pthread_mutex_unlock(&cache->lock);
    ash_grammar_put(old);
}

static int compile(const struct ash_grammar_source *source, const struct ash_grammar_opts *opts,
                   struct ash_grammar **grammar_out, struct ash_err *err)
{
    json_t *schema = NULL;
    int rc;

    switch (source->kind) {
    case ASH_GRAMMAR_JSON_OBJECT:
        return ash_grammar_json_object(opts, grammar_out, err);
    case ASH_GRAMMAR_REGEX:
        return ash_grammar_from_regex(source->text, source->size_bytes, opts, grammar_out, err);
    case ASH_GRAMMAR_GBNF:
        return ash_grammar_from_gbnf(source->text, source->size_bytes, opts, grammar_out, err);
    default:
        if (source->size_bytes > opts->limits.source_bytes)
            return ash_err_set(err, -E2BIG, "a schema of %zu bytes is larger than the limit of %zu", source->size_bytes,
                               opts->limits.source_bytes);
        rc = ash_json_parse(source->text, source->size_bytes, "schema", &schema, err);
        if (rc == 0) rc = ash_grammar_from_json_schema(schema, opts, grammar_out, err);
        json_decref(schema);
        return rc;
    }
}

int ash_grammar_cache_get(struct ash_grammar_cache *cache, const struct ash_grammar_source *source,
                          const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_opts own = opts != NULL ? *opts : ash_grammar_default_opts();
    size_t size = source->kind == ASH_GRAMMAR_JSON_OBJECT ? 0 : source->size_bytes;
    struct ash_grammar *grammar;
    struct ash_str key = {0};
    int rc = ash_str_addf(&key, "%d %d %d ", (int)source->kind, (int)own.space, own.is_lenient);

    if (rc == 0 && size > 0) rc = ash_str_add(&key, source->text, size);
    if (rc < 0) {
        ash_str_fini(&key);
        return ash_err_set(err, rc, "out of memory for a grammar");
    }
    grammar = ash_grammar_cache_find(cache, key.data, key.size_bytes);
    if (grammar == NULL) {
        rc = compile(source, &own, &grammar, err);
        if (rc == 0) ash_grammar_cache_add(cache, key.data, key.size_bytes, grammar);
    }
    if (rc == 0) *grammar_out = grammar;
    ash_str_fini(&key);
    return rc;
}
