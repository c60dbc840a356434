/* index - which prompts a replica has seen: hashes of the blocks of their beginnings, the least recently used of which
 * are forgotten. The replica may have dropped some of them: the index has the prompts that it was sent, for a replica
 * whose cache events do not come. One thread. */
#ifndef ASH_SERVE_ROUTE_INDEX_H
#define ASH_SERVE_ROUTE_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct ash_route_index;

/* Room for `capacity` blocks, at least 1. Returns 0 or -ENOMEM; the caller owns *index_out. */
int ash_route_index_open(size_t capacity, struct ash_route_index **index_out);
/* NULL is a no-op. */
void ash_route_index_close(struct ash_route_index *index);
/* How many of these blocks, from the first on, are known. */
size_t ash_route_index_match(const struct ash_route_index *index, const uint64_t *blocks, size_t count);
/* A prompt of these blocks was sent: they are known, its beginning is used most recently. Of a prompt with more blocks
 * than there is room for, the first are taken. */
void ash_route_index_add(struct ash_route_index *index, const uint64_t *blocks, size_t count);
/* Forget all. */
void ash_route_index_clear(struct ash_route_index *index);
/* How many blocks are known. */
size_t ash_route_index_count(const struct ash_route_index *index);

#endif
