/* A hash table with chains, whose entries are also a list by use. A prompt is used from its last block to its first, so
 * that ends are forgotten before the beginnings that other prompts share. */
#include "serve/route/index.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define NONE UINT32_MAX

struct entry {
    uint64_t block;
    uint32_t chain;        /* the next of its bucket */
    uint32_t older, newer; /* by use; NONE at the ends */
};

struct ash_route_index {
    struct entry *entries;
    uint32_t *buckets;
    size_t capacity, count, bucket_mask;
    uint32_t oldest, newest;
};

int ash_route_index_open(size_t capacity, struct ash_route_index **index_out)
{
    struct ash_route_index *index = calloc(1, sizeof(*index));
    size_t buckets = 1;

    ash_assert(capacity > 0 && capacity < NONE / 2);
    if (index == NULL) return -ENOMEM;
    while (buckets < capacity)
        buckets *= 2;
    index->capacity = capacity;
    index->bucket_mask = buckets - 1;
    index->entries = calloc(capacity, sizeof(*index->entries));
    index->buckets = malloc(buckets * sizeof(*index->buckets));
    if (index->entries == NULL || index->buckets == NULL) {
        ash_route_index_close(index);
        return -ENOMEM;
    }
    ash_route_index_clear(index);
    *index_out = index;
    return 0;
}

void ash_route_index_close(struct ash_route_index *index)
{
    if (index == NULL) return;
    free(index->entries);
    free(index->buckets);
    free(index);
}

void ash_route_index_clear(struct ash_route_index *index)
{
    for (size_t i = 0; i <= index->bucket_mask; i++)
        index->buckets[i] = NONE;
    index->count = 0;
    index->oldest = index->newest = NONE;
}

size_t ash_route_index_count(const struct ash_route_index *index)
{
    return index->count;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const struct ash_route_index *index, uint64_t block)
{
    return &index->buckets[ash_hash_mix(block) & index->bucket_mask];
}

static uint32_t find(const struct ash_route_index *index, uint64_t block)
{
    uint32_t at = *bucket_of(index, block);

    while (at != NONE && index->entries[at].block != block)
        at = index->entries[at].chain;
    return at;
}

/* Take an entry out of the list by use. */
static void unlink_entry(struct ash_route_index *index, uint32_t at)
{
    struct entry *entry = &index->entries[at];

    *(entry->older != NONE ? &index->entries[entry->older].newer : &index->oldest) = entry->newer;
    *(entry->newer != NONE ? &index->entries[entry->newer].older : &index->newest) = entry->older;
}

/* Make an entry the newest. */
static void link_newest(struct ash_route_index *index, uint32_t at)
{
    struct entry *entry = &index->entries[at];

    entry->older = index->newest;
    entry->newer = NONE;
    *(index->newest != NONE ? &index->entries[index->newest].newer : &index->oldest) = at;
    index->newest = at;
}

/* Forget the block used longest ago; returns its entry. */
static uint32_t forget_oldest(struct ash_route_index *index)
{
    uint32_t at = index->oldest, *link = bucket_of(index, index->entries[at].block);

    ash_assert(at != NONE);
    while (*link != at)
        link = &index->entries[*link].chain;
    *link = index->entries[at].chain;
    unlink_entry(index, at);
    return at;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

size_t ash_route_index_match(const struct ash_route_index *index, const uint64_t *blocks, size_t count)
{
    size_t known = 0;

    while (known < count && find(index, blocks[known]) != NONE)
        known++;
    return known;
}

void ash_route_index_add(struct ash_route_index *index, const uint64_t *blocks, size_t count)
{
    for (size_t i = ash_min(count, index->capacity); i-- > 0;) {
        uint32_t at = find(index, blocks[i]), *bucket;

        if (at != NONE) {
            unlink_entry(index, at);
            link_newest(index, at);
            continue;
        }
        at = index->count < index->capacity ? (uint32_t)index->count++ : forget_oldest(index);
        bucket = bucket_of(index, blocks[i]);
        index->entries[at] = (struct entry){.block = blocks[i], .chain = *bucket};
        *bucket = at;
        link_newest(index, at);
    }
}
