/* Compiled grammars by their source: a small table with a list from the one used last to the one used first. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/json.h"

#define HURRIED_BYTES 16384 /* of a key: more than that is not compiled in a hurry */

struct entry {
    uint64_t hash, used; /* used: when, as a count of look-ups */
    char *key;
    size_t size_bytes;
    struct ash_grammar *grammar; /* NULL: free */
};

/* A grammar that a thread compiles now, on that thread's stack. */
struct making {
    const struct ash_str *key;
    struct making *next;
};

struct ash_grammar_cache {
    pthread_mutex_t lock;
    pthread_cond_t made; /* one of makings is over */
    struct entry *entries;
    size_t count;
    uint64_t now, compiled;
    struct making *makings;
};

struct ash_grammar_cache *ash_grammar_cache_open(size_t count)
{
    struct ash_grammar_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL) return NULL;
    cache->count = count > 0 ? count : 1;
    cache->entries = calloc(cache->count, sizeof(*cache->entries));
    if (cache->entries == NULL) {
        free(cache);
        return NULL;
    }
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->made, NULL);
    return cache;
}

void ash_grammar_cache_close(struct ash_grammar_cache *cache)
{
    if (cache == NULL) return;
    ash_assert(cache->makings == NULL);
    for (size_t i = 0; i < cache->count; i++) {
        free(cache->entries[i].key);
        ash_grammar_put(cache->entries[i].grammar);
    }
    pthread_cond_destroy(&cache->made);
    pthread_mutex_destroy(&cache->lock);
    free(cache->entries);
    free(cache);
}

/* The entry of key, or NULL. Under the lock. */
static struct entry *find(struct ash_grammar_cache *cache, const struct ash_str *key, uint64_t hash)
{
    for (size_t i = 0; i < cache->count; i++) {
        struct entry *entry = &cache->entries[i];
        if (entry->grammar != NULL && entry->hash == hash && entry->size_bytes == key->size_bytes &&
            memcmp(entry->key, key->data, key->size_bytes) == 0)
            return entry;
    }
    return NULL;
}

/* Keep grammar under key in place of the one that was not used for longest, which is returned. Takes its own
 * reference. Out of memory nothing is kept. Under the lock. */
static struct ash_grammar *add(struct ash_grammar_cache *cache, const struct ash_str *key, uint64_t hash,
                               struct ash_grammar *grammar)
{
    struct entry *oldest = &cache->entries[0];
    struct ash_grammar *old;
    char *copy = malloc(key->size_bytes + 1);

    if (copy == NULL) return NULL;
    memcpy(copy, key->data, key->size_bytes);
    for (size_t i = 1; i < cache->count; i++)
        if (cache->entries[i].used < oldest->used) oldest = &cache->entries[i];
    old = oldest->grammar;
    free(oldest->key);
    *oldest = (struct entry){hash, ++cache->now, copy, key->size_bytes, ash_grammar_get(grammar)};
    return old;
}

/* Does a thread compile it? Under the lock. */
static bool is_being_made(const struct ash_grammar_cache *cache, const struct ash_str *key)
{
    for (const struct making *making = cache->makings; making != NULL; making = making->next)
        if (making->key->size_bytes == key->size_bytes && memcmp(making->key->data, key->data, key->size_bytes) == 0)
            return true;
    return false;
}

/* Find the grammar, or become the one that compiles it: then *making is listed and *grammar_out NULL. 0 or -EAGAIN. */
static int find_or_begin(struct ash_grammar_cache *cache, uint64_t hash, bool is_patient, struct making *making,
                         struct ash_grammar **grammar_out)
{
    struct entry *entry;
    int rc = 0;

    *grammar_out = NULL;
    pthread_mutex_lock(&cache->lock);
    while ((entry = find(cache, making->key, hash)) == NULL && is_patient && is_being_made(cache, making->key))
        pthread_cond_wait(&cache->made, &cache->lock);
    if (entry != NULL) {
        entry->used = ++cache->now;
        *grammar_out = ash_grammar_get(entry->grammar);
    } else if (!is_patient && (making->key->size_bytes > HURRIED_BYTES || is_being_made(cache, making->key))) {
        rc = -EAGAIN;
    } else {
        making->next = cache->makings;
        cache->makings = making;
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* Compiled, or not (NULL): those who wait go on. */
static void end_making(struct ash_grammar_cache *cache, uint64_t hash, struct making *making,
                       struct ash_grammar *grammar)
{
    struct ash_grammar *old = NULL;
    struct making **at = &cache->makings;

    pthread_mutex_lock(&cache->lock);
    while (*at != making)
        at = &(*at)->next;
    *at = making->next;
    if (grammar != NULL) {
        cache->compiled++;
        old = add(cache, making->key, hash, grammar);
    }
    pthread_cond_broadcast(&cache->made);
    pthread_mutex_unlock(&cache->lock);
    ash_grammar_put(old);
}

int ash_grammar_cache_make(struct ash_grammar_cache *cache, const struct ash_grammar_maker *maker,
                           const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_opts own = opts != NULL ? *opts : ash_grammar_default_opts();
    bool is_patient = own.patience_s <= 0;
    uint64_t hash = ash_hash_bytes(maker->key->data, maker->key->size_bytes, 0);
    struct making making = {.key = maker->key};
    struct ash_grammar *grammar = NULL;
    int rc = find_or_begin(cache, hash, is_patient, &making, &grammar);

    if (rc < 0) return ash_err_set(err, rc, "the grammar is being compiled");
    if (grammar == NULL) {
        if (!is_patient && own.patience_s < own.limits.seconds) own.limits.seconds = own.patience_s;
        rc = maker->compile(maker->ctx, &own, &grammar, err);
        end_making(cache, hash, &making, rc == 0 ? grammar : NULL);
        if (rc == -E2BIG && !is_patient) rc = -EAGAIN; /* perhaps only for its time */
    }
    if (rc == 0) *grammar_out = grammar;
    return rc;
}

uint64_t ash_grammar_cache_compiled(struct ash_grammar_cache *cache)
{
    uint64_t compiled;

    pthread_mutex_lock(&cache->lock);
    compiled = cache->compiled;
    pthread_mutex_unlock(&cache->lock);
    return compiled;
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

static int compile(void *ctx, const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out,
                   struct ash_err *err)
{
    const struct ash_grammar_source *source = ctx;
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
    struct ash_grammar_source copy = *source;
    struct ash_str key = {0};
    int rc = ash_str_addf(&key, "%d %d %d ", (int)source->kind, (int)own.space, own.is_lenient);

    if (rc == 0 && size > 0) rc = ash_str_add(&key, source->text, size);
    if (rc == 0)
        rc = ash_grammar_cache_make(cache, &(struct ash_grammar_maker){compile, &copy, &key}, &own, grammar_out, err);
    else
        ash_err_set(err, rc, "out of memory for a grammar");
    ash_str_fini(&key);
    return rc;
}
