/* cache - keys and values of earlier tokens: a pool of numbered pages in one region of memory. A page holds
 * ASH_CACHE_PAGE_TOKENS tokens, of all layers, and counts who refers to it, so sequences can share it. Which pages a
 * sequence has, in order, is its block table; it travels with the batch (struct ash_doc). One owner thread. */
#ifndef ASH_MODEL_PASS_CACHE_H
#define ASH_MODEL_PASS_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "model/model.h"

#define ASH_CACHE_PAGE_TOKENS ASH_ATTN_BLOCK

struct ash_cache;

/* A pool of page_count pages in the model's kv dtype (ash_model_kv_dtype) of now. Their memory is taken from the system
 * when they are first written. Borrows model. Returns 0, -EINVAL (no page, or more than INT32_MAX) or -ENOMEM. */
int ash_cache_open(const struct ash_model *model, size_t page_count, struct ash_cache **cache_out, struct ash_err *err);
/* Pages that hold nothing: numbers and counts alone. No pass runs on them. */
int ash_cache_open_bare(size_t page_count, struct ash_cache **cache_out, struct ash_err *err);
/* Free it; NULL is a no-op. */
void ash_cache_close(struct ash_cache *cache);

/* Bytes that a cache opened now takes for one token. */
size_t ash_cache_token_bytes(const struct ash_model *model);
/* The same of all ranks that share the model. */
size_t ash_cache_whole_token_bytes(const struct ash_model *model);
/* Pages that hold this many tokens. */
size_t ash_cache_pages_for(size_t tokens);

/* All pages. */
size_t ash_cache_page_count(const struct ash_cache *cache);
/* Pages without a reference. */
size_t ash_cache_free_count(const struct ash_cache *cache);

/* Take a free page, with one reference from now on; its content is undefined. -ENOSPC when there is
 * none. */
int32_t ash_cache_take(struct ash_cache *cache);
/* One more reference to a page that has some. */
void ash_cache_ref(struct ash_cache *cache, int32_t page);
/* One less; the last one makes it free. */
void ash_cache_unref(struct ash_cache *cache, int32_t page);
/* How many refer to it. */
uint32_t ash_cache_ref_count(const struct ash_cache *cache, int32_t page);
/* What `from` holds is in `to` as well. Both have references. */
void ash_cache_copy_page(struct ash_cache *cache, int32_t from, int32_t to);
/* Bytes of a page of the whole model, of which a slice's cache has some layers and heads; 0: pages hold nothing. */
size_t ash_cache_page_bytes(const struct ash_cache *cache);
/* Copy what the cache has of a page, which has references, to its place in a whole page in host memory. Waits for
 * passes that write to the pool. Returns 0, or -EIO if the device has failed. */
int ash_cache_read_page(const struct ash_cache *cache, int32_t page, void *whole);
/* The same the other way. */
int ash_cache_write_page(struct ash_cache *cache, int32_t page, const void *whole);

/* A block table that grows: the pages of one sequence, each with its own reference. */
struct ash_block_table {
    int32_t *pages; /* [capacity] */
    size_t count, capacity;
};

/* Room for max_tokens. Returns 0 or -ENOMEM. */
int ash_block_table_init(struct ash_block_table *table, size_t max_tokens);
/* Free the list; the pages must have been given back (cut to 0) or their cache closed. A zeroed struct is a no-op. */
void ash_block_table_fini(struct ash_block_table *table);
/* Take pages until tokens fit. -ENOSPC when the pool has too few: then nothing changed. tokens must fit the
 * capacity. */
int ash_block_table_grow(struct ash_block_table *table, struct ash_cache *cache, size_t tokens);

#endif
