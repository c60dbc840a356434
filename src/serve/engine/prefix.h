/* prefix - the prefix cache: a radix tree over pages of a pool. A node is a page with the tokens whose keys and values
 * it holds; its parent holds those before them. Sequences that begin alike share its pages, to the token: where two
 * differ inside a page, the second one gets a copy. Pages that no sequence holds stay until their place is needed,
 * those used longest ago go first. One owner thread. */
#ifndef ASH_SERVE_ENGINE_PREFIX_H
#define ASH_SERVE_ENGINE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "model/pass/cache.h"

struct ash_page_events;
struct ash_prefix;

/* A text in the tree: prefixes are shared only between equal salts. */
struct ash_prefix_text {
    const int32_t *tokens;
    size_t count;
    uint64_t salt;
};

/* A tree over the pages of cache, which it borrows. Returns 0 or -ENOMEM. */
int ash_prefix_open(struct ash_cache *cache, struct ash_prefix **prefix_out, struct ash_err *err);
/* Give back the pages that it holds, and free it. NULL is a no-op. */
void ash_prefix_close(struct ash_prefix *prefix);

/* What continues a text inside a page. */
struct ash_prefix_part {
    int32_t page;  /* its first `tokens` tokens continue the text; borrowed until the tree changes; -1: none */
    size_t tokens; /* 0: none */
};

/* Extend table, whose pages are the text's first ones and nodes of the tree, by further whole pages that the tree has,
 * with a reference each. Returns the tokens that the table holds now. *part_out: what continues them, at most to the
 * end of the text. */
size_t ash_prefix_match(struct ash_prefix *prefix, const struct ash_prefix_text *text, struct ash_block_table *table,
                        struct ash_prefix_part *part_out);
/* Tokens of the text that the tree has, to the token; nothing is taken. */
size_t ash_prefix_peek(struct ash_prefix *prefix, const struct ash_prefix_text *text);
/* A page that ash_prefix_match found was of use: it goes last. The pages before it are held by a sequence. */
void ash_prefix_touch(struct ash_prefix *prefix, int32_t page);
/* Page number index of the table holds whole tokens of the text, and the pages before it are nodes: put it into the
 * tree. Where the tree has those tokens already, the table takes the tree's page for its own. */
void ash_prefix_insert(struct ash_prefix *prefix, const struct ash_prefix_text *text, struct ash_block_table *table,
                       size_t index);
/* The text ends in a page that is not full: keep it too. All pages before it are nodes, and it is not. */
void ash_prefix_insert_tail(struct ash_prefix *prefix, const struct ash_prefix_text *text,
                            const struct ash_block_table *table);
/* Empty the table; pages of the tree without another reference can be evicted from now on. For tables with pages that
 * are no nodes as well. prefix may be NULL. */
void ash_prefix_release(struct ash_prefix *prefix, struct ash_cache *cache, struct ash_block_table *table);

/* Make pages free until there are `wanted`, or nothing is left that could be. Returns whether there are. */
bool ash_prefix_evict(struct ash_prefix *prefix, size_t wanted);
/* Gets a whole page that leaves the tree, with the text up to its end, which is borrowed. */
typedef void (*ash_prefix_evicted_fn)(void *ctx, const struct ash_prefix_text *text, int32_t page);
/* Call evicted for each of them from now on, or (NULL) no more. Returns 0 or -ENOMEM. */
int ash_prefix_on_evict(struct ash_prefix *prefix, ash_prefix_evicted_fn evicted, void *ctx);
/* Tell events, which are borrowed, of whole pages that become nodes and that leave. */
void ash_prefix_publish(struct ash_prefix *prefix, struct ash_page_events *events);
/* Pages that only the tree holds. */
size_t ash_prefix_cached_count(const struct ash_prefix *prefix);
/* Do its lists and counts agree? For tests. */
bool ash_prefix_is_consistent(const struct ash_prefix *prefix);

#endif
