/* The tree: the node of a page has the page's number, so arrays are all it takes. Whole pages are found through a table
 * of hashes of (parent, tokens), and compared; the one that a text leaves in its middle among the children of the last.
 *
 * A sequence that holds a node holds all before it, and gives its pages back last one first. So in the list of nodes
 * that only the tree holds, a child is always before its parent, and the first one has no children. */
#include "serve/engine/prefix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "serve/engine/page_events.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define NONE (-1)

struct node {
    uint64_t salt, hash;
    uint64_t name;  /* of a whole page: a hash of the text up to its end, whatever its pages are */
    int32_t parent; /* NONE: the root */
    int32_t child;  /* the first of its children; they are a list */
    int32_t next, prev;
    int32_t chain;        /* the next node of the same bucket */
    int32_t older, newer; /* in the list of cached nodes */
    uint16_t count;       /* tokens; PAGE unless it is a tail; 0: the page is no node */
    bool is_cached;       /* only the tree holds it */
};

struct ash_prefix {
    struct ash_cache *cache;
    struct node *nodes; /* [pages] */
    int32_t (*tokens)[PAGE];
    int32_t *buckets; /* [mask + 1] */
    size_t mask;
    int32_t root;           /* the first of the root's children */
    int32_t oldest, newest; /* cached nodes */
    size_t cached;
    ash_prefix_evicted_fn evicted; /* NULL: nothing is told */
    void *ctx;
    struct ash_page_events *events; /* NULL: nothing is published */
    int32_t (*path)[PAGE];          /* [pages]: the text of a page that leaves */
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_prefix_open(struct ash_cache *cache, struct ash_prefix **prefix_out, struct ash_err *err)
{
    size_t pages = ash_cache_page_count(cache), buckets = 16;
    struct ash_prefix *prefix = calloc(1, sizeof(*prefix));

    while (buckets < pages)
        buckets *= 2;
    if (prefix == NULL) goto fail;
    prefix->cache = cache;
    prefix->nodes = calloc(pages, sizeof(*prefix->nodes));
    prefix->tokens = calloc(pages, sizeof(*prefix->tokens));
    prefix->buckets = malloc(buckets * sizeof(*prefix->buckets));
    if (prefix->nodes == NULL || prefix->tokens == NULL || prefix->buckets == NULL) goto fail;
    memset(prefix->buckets, 0xff, buckets * sizeof(*prefix->buckets));
    prefix->mask = buckets - 1;
    prefix->root = prefix->oldest = prefix->newest = NONE;
    *prefix_out = prefix;
    return 0;

fail:
    ash_prefix_close(prefix);
    return ash_err_set(err, -ENOMEM, "no memory for a prefix cache of %zu pages", pages);
}

void ash_prefix_close(struct ash_prefix *prefix)
{
    if (prefix == NULL) return;
    if (prefix->buckets != NULL) ash_prefix_evict(prefix, SIZE_MAX);
    free(prefix->nodes);
    free(prefix->tokens);
    free(prefix->buckets);
    free(prefix->path);
    free(prefix);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static uint64_t node_hash(int32_t parent, uint64_t salt, const int32_t *tokens)
{
    return ash_hash_bytes(tokens, PAGE * sizeof(*tokens), ash_hash_mix(salt ^ ((uint64_t)(uint32_t)parent << 32)));
}

/* The node of a whole page, or NONE. */
static int32_t find_page(const struct ash_prefix *prefix, int32_t parent, uint64_t salt, const int32_t *tokens,
                         uint64_t hash)
{
    int32_t page = prefix->buckets[hash & prefix->mask];

    for (; page != NONE; page = prefix->nodes[page].chain) {
        const struct node *node = &prefix->nodes[page];

        if (node->hash == hash && node->parent == parent && node->salt == salt &&
            memcmp(prefix->tokens[page], tokens, sizeof(prefix->tokens[page])) == 0)
            return page;
    }
    return NONE;
}

static int32_t *first_child(struct ash_prefix *prefix, int32_t parent)
{
    ash_assert(parent == NONE || prefix->nodes[parent].count > 0);
    return parent == NONE ? &prefix->root : &prefix->nodes[parent].child;
}

/* Name a whole page, and tell that it is there. */
static void publish_node(struct ash_prefix *prefix, int32_t page)
{
    struct node *node = &prefix->nodes[page];
    struct ash_page_stored stored = {.page = page, .parent = node->parent, .tokens = prefix->tokens[page]};

    node->name = ash_hash_bytes(stored.tokens, sizeof(prefix->tokens[page]),
                                node->parent != NONE ? prefix->nodes[node->parent].name : ash_hash_mix(node->salt));
    stored.name = node->name;
    ash_page_events_store(prefix->events, &stored);
}

/* A page becomes a node; the tree takes a reference. */
static void add_node(struct ash_prefix *prefix, int32_t page, int32_t parent, uint64_t salt, const int32_t *tokens,
                     size_t count)
{
    struct node *node = &prefix->nodes[page];
    int32_t *first = first_child(prefix, parent);

    ash_assert(node->count == 0 && count > 0 && count <= PAGE);
    ash_assert(parent == NONE || prefix->nodes[parent].count == PAGE);
    *node = (struct node){.salt = salt,
                          .parent = parent,
                          .child = NONE,
                          .next = *first,
                          .prev = NONE,
                          .chain = NONE,
                          .count = (uint16_t)count};
    memcpy(prefix->tokens[page], tokens, count * sizeof(*tokens));
    if (*first != NONE) prefix->nodes[*first].prev = page;
    *first = page;
    if (count == PAGE) {
        node->hash = node_hash(parent, salt, tokens);
        node->chain = prefix->buckets[node->hash & prefix->mask];
        prefix->buckets[node->hash & prefix->mask] = page;
        publish_node(prefix, page);
    }
    ash_cache_ref(prefix->cache, page);
}

static void unlink_bucket(struct ash_prefix *prefix, int32_t page)
{
    int32_t *link = &prefix->buckets[prefix->nodes[page].hash & prefix->mask];

    ash_assert(page >= 0);
    ash_assert(prefix->nodes[page].count > 0);
    while (*link != page)
        link = &prefix->nodes[*link].chain;
    *link = prefix->nodes[page].chain;
}

static void list_remove(struct ash_prefix *prefix, int32_t page)
{
    struct node *node = &prefix->nodes[page];

    ash_assert(node->is_cached);
    if (node->older != NONE)
        prefix->nodes[node->older].newer = node->newer;
    else
        prefix->oldest = node->newer;
    if (node->newer != NONE)
        prefix->nodes[node->newer].older = node->older;
    else
        prefix->newest = node->older;
    node->is_cached = false;
    prefix->cached--;
}

static void list_add(struct ash_prefix *prefix, int32_t page)
{
    struct node *node = &prefix->nodes[page];

    ash_assert(!node->is_cached && node->count > 0);
    node->older = prefix->newest;
    node->newer = NONE;
    if (prefix->newest != NONE)
        prefix->nodes[prefix->newest].newer = page;
    else
        prefix->oldest = page;
    prefix->newest = page;
    node->is_cached = true;
    prefix->cached++;
}

int ash_prefix_on_evict(struct ash_prefix *prefix, ash_prefix_evicted_fn evicted, void *ctx)
{
    if (prefix->path == NULL) prefix->path = calloc(ash_cache_page_count(prefix->cache), sizeof(*prefix->path));
    if (prefix->path == NULL) return -ENOMEM;
    prefix->evicted = evicted;
    prefix->ctx = ctx;
    return 0;
}

void ash_prefix_publish(struct ash_prefix *prefix, struct ash_page_events *events)
{
    prefix->events = events;
}

/* Tell whose page leaves: its text, gathered from its end to its beginning. */
static void tell_evicted(struct ash_prefix *prefix, int32_t page)
{
    size_t at = ash_cache_page_count(prefix->cache), end = at;
    struct ash_prefix_text text = {.salt = prefix->nodes[page].salt};

    for (int32_t node = page; node != NONE; node = prefix->nodes[node].parent)
        memcpy(prefix->path[--at], prefix->tokens[node], sizeof(prefix->path[at]));
    text.tokens = prefix->path[at];
    text.count = (end - at) * PAGE;
    prefix->evicted(prefix->ctx, &text, page);
}

/* A cached node without children leaves the tree; its page is free. */
static void drop_node(struct ash_prefix *prefix, int32_t page)
{
    struct node *node = &prefix->nodes[page];

    ash_assert(node->is_cached && node->child == NONE);
    if (prefix->evicted != NULL && node->count == PAGE) tell_evicted(prefix, page);
    if (node->count == PAGE) ash_page_events_remove(prefix->events, page);
    list_remove(prefix, page);
    if (node->count == PAGE) unlink_bucket(prefix, page);
    if (node->prev != NONE)
        prefix->nodes[node->prev].next = node->next;
    else
        *first_child(prefix, node->parent) = node->next;
    if (node->next != NONE) prefix->nodes[node->next].prev = node->prev;
    node->count = 0;
    ash_cache_unref(prefix->cache, page);
}

/* A sequence holds the node too. */
static void hold(struct ash_prefix *prefix, int32_t page)
{
    ash_assert(page >= 0);
    ash_assert((size_t)page < ash_cache_page_count(prefix->cache));
    if (prefix->nodes[page].is_cached) list_remove(prefix, page);
    ash_cache_ref(prefix->cache, page);
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

static int32_t last_page(const struct ash_block_table *table, size_t count)
{
    ash_assert(count <= table->count);
    return count > 0 ? table->pages[count - 1] : NONE;
}

/* The child of parent that continues tokens [count] furthest. */
static struct ash_prefix_part find_part(struct ash_prefix *prefix, int32_t parent, uint64_t salt, const int32_t *tokens,
                                        size_t count)
{
    struct ash_prefix_part part = {.page = NONE};

    for (int32_t page = *first_child(prefix, parent); page != NONE; page = prefix->nodes[page].next) {
        size_t most = ash_min(count, prefix->nodes[page].count), same = 0;

        if (prefix->nodes[page].salt != salt) continue;
        while (same < most && prefix->tokens[page][same] == tokens[same])
            same++;
        if (same > part.tokens) part = (struct ash_prefix_part){page, same};
    }
    return part;
}

size_t ash_prefix_match(struct ash_prefix *prefix, const struct ash_prefix_text *text, struct ash_block_table *table,
                        struct ash_prefix_part *part_out)
{
    size_t at = table->count * PAGE;

    while (at + PAGE <= text->count) {
        int32_t parent = last_page(table, table->count);
        uint64_t hash = node_hash(parent, text->salt, text->tokens + at);
        int32_t page = find_page(prefix, parent, text->salt, text->tokens + at, hash);

        if (page == NONE) break;
        hold(prefix, page);
        table->pages[table->count++] = page;
        at += PAGE;
    }
    *part_out = find_part(prefix, last_page(table, table->count), text->salt, text->tokens + at,
                          text->count > at ? text->count - at : 0);
    return at;
}

void ash_prefix_touch(struct ash_prefix *prefix, int32_t page)
{
    if (!prefix->nodes[page].is_cached) return;
    list_remove(prefix, page);
    list_add(prefix, page);
}

size_t ash_prefix_peek(struct ash_prefix *prefix, const struct ash_prefix_text *text)
{
    int32_t parent = NONE, page;
    size_t at = 0;

    for (; at + PAGE <= text->count; at += PAGE, parent = page) {
        page =
            find_page(prefix, parent, text->salt, text->tokens + at, node_hash(parent, text->salt, text->tokens + at));
        if (page == NONE) break;
    }
    return at + find_part(prefix, parent, text->salt, text->tokens + at, text->count - at).tokens;
}

/* ---- putting in and out ------------------------------------------------------------------------------------------ */

/* Tails that the page's tokens contain are of no more use. */
static void drop_shorter(struct ash_prefix *prefix, int32_t parent, uint64_t salt, const int32_t *tokens, size_t count)
{
    int32_t page = *first_child(prefix, parent);

    while (page != NONE) {
        const struct node *node = &prefix->nodes[page];
        int32_t next = node->next;

        if (node->count < count && node->is_cached && node->salt == salt && node->child == NONE &&
            memcmp(prefix->tokens[page], tokens, node->count * sizeof(*tokens)) == 0)
            drop_node(prefix, page);
        page = next;
    }
}

void ash_prefix_insert(struct ash_prefix *prefix, const struct ash_prefix_text *text, struct ash_block_table *table,
                       size_t index)
{
    const int32_t *tokens = text->tokens + index * PAGE;
    int32_t parent = last_page(table, index), page = table->pages[index];
    int32_t there = find_page(prefix, parent, text->salt, tokens, node_hash(parent, text->salt, tokens));

    ash_assert((index + 1) * PAGE <= text->count && index < table->count);
    if (there == page) return;
    if (there != NONE) {
        hold(prefix, there);
        table->pages[index] = there;
        ash_cache_unref(prefix->cache, page);
        return;
    }
    drop_shorter(prefix, parent, text->salt, tokens, PAGE);
    add_node(prefix, page, parent, text->salt, tokens, PAGE);
}

void ash_prefix_insert_tail(struct ash_prefix *prefix, const struct ash_prefix_text *text,
                            const struct ash_block_table *table)
{
    size_t index = text->count / PAGE, count = text->count % PAGE;
    const int32_t *tokens = text->tokens + index * PAGE;
    int32_t parent;

    if (count == 0) return;
    parent = last_page(table, index);
    if (find_part(prefix, parent, text->salt, tokens, count).tokens == count) return;
    drop_shorter(prefix, parent, text->salt, tokens, count);
    add_node(prefix, table->pages[index], parent, text->salt, tokens, count);
}

void ash_prefix_release(struct ash_prefix *prefix, struct ash_cache *cache, struct ash_block_table *table)
{
    while (table->count > 0) {
        int32_t page = table->pages[--table->count];

        ash_cache_unref(cache, page);
        if (prefix != NULL && prefix->nodes[page].count > 0 && ash_cache_ref_count(cache, page) == 1)
            list_add(prefix, page);
    }
}

bool ash_prefix_evict(struct ash_prefix *prefix, size_t wanted)
{
    while (ash_cache_free_count(prefix->cache) < wanted && prefix->oldest != NONE)
        drop_node(prefix, prefix->oldest);
    return ash_cache_free_count(prefix->cache) >= wanted;
}

size_t ash_prefix_cached_count(const struct ash_prefix *prefix)
{
    return prefix->cached;
}

bool ash_prefix_is_consistent(const struct ash_prefix *prefix)
{
    size_t listed = 0, counted = 0;

    for (int32_t page = prefix->oldest; page != NONE; page = prefix->nodes[page].newer) {
        const struct node *node = &prefix->nodes[page];

        listed++;
        if (!node->is_cached || ash_cache_ref_count(prefix->cache, page) != 1) return false;
    }
    for (size_t page = 0; page < ash_cache_page_count(prefix->cache); page++) {
        const struct node *node = &prefix->nodes[page];

        if (node->count == 0) continue;
        counted += ash_cache_ref_count(prefix->cache, (int32_t)page) == 1;
        if (node->parent != NONE && prefix->nodes[node->parent].count != PAGE) return false;
    }
    return listed == prefix->cached && counted == prefix->cached;
}
