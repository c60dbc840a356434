/* arena - memory that is freed all at once, for start-up state and for one request. One owner thread. */
#ifndef ASH_BASE_ARENA_H
#define ASH_BASE_ARENA_H

#include <stddef.h>

struct ash_arena; /* grows by blocks */

/* block_bytes is the size of the first block; later ones double. On NULL the system is out of memory. */
struct ash_arena *ash_arena_open(size_t block_bytes);
/* Free everything. NULL is a no-op. */
void ash_arena_close(struct ash_arena *arena);

/* Uninitialised memory aligned to 64 bytes, valid until close. NULL when the system is out of memory.
 * size_bytes 0 gives a valid pointer. */
void *ash_arena_alloc(struct ash_arena *arena, size_t size_bytes);
/* The same, zeroed; NULL on overflow of count * size_bytes too. */
void *ash_arena_calloc(struct ash_arena *arena, size_t count, size_t size_bytes);
/* A copy of text (NUL-terminated). */
char *ash_arena_strdup(struct ash_arena *arena, const char *text);

/* Bytes allocated so far, rounded up to multiples of 64 each. */
size_t ash_arena_used_bytes(const struct ash_arena *arena);

#endif
