/* A table of chains that doubles, and a list by last use. */
#include "serve/kv/index.h"

#include <stdlib.h>

#include "base/assert.h"

#define BUCKETS_MIN 64
#define USES_MAX 8
#define USES_PINNED 2

void ash_kv_index_fini(struct ash_kv_index *index)
{
    while (index->oldest != NULL)
        ash_kv_index_remove(index, index->oldest);
    free(index->buckets);
    *index = (struct ash_kv_index){0};
}

static struct ash_kv_entry **bucket(const struct ash_kv_index *index, struct ash_kv_name name)
{
    return &index->buckets[name.low & index->mask];
}

struct ash_kv_entry *ash_kv_index_find(const struct ash_kv_index *index, struct ash_kv_name name)
{
    struct ash_kv_entry *entry = index->buckets != NULL ? *bucket(index, name) : NULL;

    while (entry != NULL && !ash_kv_name_is(entry->name, name))
        entry = entry->chain;
    return entry;
}

/* Twice as many buckets, or the first ones. Returns whether there are some. */
static bool grow(struct ash_kv_index *index)
{
    size_t count = index->buckets != NULL ? 2 * (index->mask + 1) : BUCKETS_MIN;
    struct ash_kv_entry **buckets = calloc(count, sizeof(struct ash_kv_entry *));

    if (buckets == NULL) return index->buckets != NULL;
    free(index->buckets);
    index->buckets = buckets;
    index->mask = count - 1;
    for (struct ash_kv_entry *entry = index->oldest; entry != NULL; entry = entry->newer) {
        entry->chain = *bucket(index, entry->name);
        *bucket(index, entry->name) = entry;
    }
    return true;
}

static void list_add(struct ash_kv_index *index, struct ash_kv_entry *entry)
{
    entry->newer = NULL;
    entry->older = index->newest;
    if (index->newest != NULL)
        index->newest->newer = entry;
    else
        index->oldest = entry;
    index->newest = entry;
}

static void list_remove(struct ash_kv_index *index, struct ash_kv_entry *entry)
{
    if (entry->older != NULL)
        entry->older->newer = entry->newer;
    else
        index->oldest = entry->newer;
    if (entry->newer != NULL)
        entry->newer->older = entry->older;
    else
        index->newest = entry->older;
}

struct ash_kv_entry *ash_kv_index_add(struct ash_kv_index *index, struct ash_kv_name name, size_t bytes)
{
    struct ash_kv_entry *entry;

    ash_assert(ash_kv_index_find(index, name) == NULL);
    if (index->count >= (index->buckets != NULL ? index->mask : 0) && !grow(index)) return NULL;
    entry = calloc(1, sizeof(*entry));
    if (entry == NULL) return NULL;
    entry->name = name;
    entry->bytes = bytes;
    entry->chain = *bucket(index, name);
    *bucket(index, name) = entry;
    list_add(index, entry);
    index->count++;
    index->bytes += bytes;
    return entry;
}

void ash_kv_index_touch(struct ash_kv_index *index, struct ash_kv_entry *entry, bool is_found)
{
    list_remove(index, entry);
    list_add(index, entry);
    if (is_found && entry->uses < USES_MAX) entry->uses++;
}

void ash_kv_index_remove(struct ash_kv_index *index, struct ash_kv_entry *entry)
{
    struct ash_kv_entry **link = bucket(index, entry->name);

    while (*link != entry)
        link = &(*link)->chain;
    *link = entry->chain;
    list_remove(index, entry);
    ash_assert(index->count > 0 && index->bytes >= entry->bytes);
    index->count--;
    index->bytes -= entry->bytes;
    free(entry);
}

struct ash_kv_entry *ash_kv_index_victim(struct ash_kv_index *index)
{
    /* each round halves the uses of all, so one of the few rounds finds an entry without */
    for (size_t left = 4 * index->count; left > 0; left--) {
        struct ash_kv_entry *entry = index->oldest;

        if (!entry->is_coming && entry->uses < USES_PINNED) return entry;
        entry->uses /= 2;
        ash_kv_index_touch(index, entry, false);
    }
    return NULL;
}
