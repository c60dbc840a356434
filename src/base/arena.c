/* Arenas: a chain of blocks, each larger than the one before, and a fill level in the last. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

#define ALIGN_BYTES ((size_t)64)
#define BLOCK_BYTES_MIN ((size_t)256)

struct block {
    struct block *previous;
    size_t size_bytes; /* usable, after the header */
    size_t used_bytes;
};

struct ash_arena {
    struct block *current;
    size_t used_bytes; /* of all blocks */
};

#define HEADER_BYTES ALIGN_BYTES

_Static_assert(sizeof(struct block) <= HEADER_BYTES, "a block's header fits before its aligned memory");

static struct block *block_open(size_t size_bytes)
{
    struct block *block = NULL;

    if (size_bytes > SIZE_MAX - HEADER_BYTES - ALIGN_BYTES) return NULL;
    size_bytes = ash_round_up(size_bytes, ALIGN_BYTES);
    block = aligned_alloc(ALIGN_BYTES, HEADER_BYTES + size_bytes);
    if (block == NULL) return NULL;
    *block = (struct block){.size_bytes = size_bytes};
    return block;
}

struct ash_arena *ash_arena_open(size_t block_bytes)
{
    struct ash_arena *arena = calloc(1, sizeof(*arena));

    if (arena == NULL) return NULL;
    arena->current = block_open(ash_max(block_bytes, BLOCK_BYTES_MIN));
    if (arena->current == NULL) {
        free(arena);
        return NULL;
    }
    return arena;
}

void ash_arena_close(struct ash_arena *arena)
{
    if (arena == NULL) return;
    for (struct block *block = arena->current, *previous; block != NULL; block = previous) {
        previous = block->previous;
        free(block);
    }
    free(arena);
}

/* Make a new block with room for size_bytes current: twice the last one, or what there is memory for. */
static struct block *grow(struct ash_arena *arena, size_t size_bytes)
{
    struct block *last = arena->current, *block;
    size_t doubled = last->size_bytes <= SIZE_MAX / 2 ? last->size_bytes * 2 : last->size_bytes;

    block = block_open(ash_max(doubled, size_bytes));
    if (block == NULL && doubled > size_bytes) block = block_open(size_bytes);
    if (block == NULL) return NULL;
    block->previous = last;
    arena->current = block;
    return block;
}

void *ash_arena_alloc(struct ash_arena *arena, size_t size_bytes)
{
    struct block *block = arena->current;
    size_t rounded;
    void *ptr;

    if (size_bytes > SIZE_MAX / 2) return NULL;
    rounded = ash_max(ash_round_up(size_bytes, ALIGN_BYTES), ALIGN_BYTES);
    if (block->size_bytes - block->used_bytes < rounded) block = grow(arena, rounded);
    if (block == NULL) return NULL;
    ptr = (char *)block + HEADER_BYTES + block->used_bytes;
    block->used_bytes += rounded;
    arena->used_bytes += rounded;
    ash_assert(block->used_bytes <= block->size_bytes);
    return ptr;
}

void *ash_arena_calloc(struct ash_arena *arena, size_t count, size_t size_bytes)
{
    size_t total;
    void *ptr;

    if (__builtin_mul_overflow(count, size_bytes, &total)) return NULL;
    ptr = ash_arena_alloc(arena, total);
    if (ptr != NULL) memset(ptr, 0, total);
    return ptr;
}

char *ash_arena_strdup(struct ash_arena *arena, const char *text)
{
    size_t size_bytes = strlen(text) + 1;
    char *copy = ash_arena_alloc(arena, size_bytes);

    if (copy != NULL) memcpy(copy, text, size_bytes);
    return copy;
}

size_t ash_arena_used_bytes(const struct ash_arena *arena)
{
    return arena->used_bytes;
}
