/* Arenas: a chain of blocks and a fill level. A rewind only moves the level back, so a step that fits once never
 * mallocs again. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ALIGN_BYTES ((size_t)64)
#define BLOCK_BYTES_MIN ((size_t)256)

struct block {
    struct block *next;
    size_t size_bytes;   /* usable, behind the header */
    size_t used_bytes;   /* of this block; meaningful up to the arena's current block */
    size_t before_bytes; /* handed out by the blocks before it */
};

struct ash_arena {
    struct block *first, *current;
    size_t peak_bytes;
};

#define HEADER_BYTES ((sizeof(struct block) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES)

static struct block *block_open(size_t size_bytes)
{
    struct block *block = NULL;

    if (size_bytes > SIZE_MAX - HEADER_BYTES - ALIGN_BYTES) return NULL;
    size_bytes = (size_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    block = aligned_alloc(ALIGN_BYTES, HEADER_BYTES + size_bytes);
    if (block == NULL) return NULL;
    *block = (struct block){.size_bytes = size_bytes};
    return block;
}

struct ash_arena *ash_arena_open(size_t block_bytes)
{
    struct ash_arena *arena = calloc(1, sizeof(*arena));

    if (arena == NULL) return NULL;
    arena->first = block_open(block_bytes < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : block_bytes);
    if (arena->first == NULL) {
        free(arena);
        return NULL;
    }
    arena->current = arena->first;
    return arena;
}

void ash_arena_close(struct ash_arena *arena)
{
    if (arena == NULL) return;
    for (struct block *block = arena->first, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

/* Make a block with room for size_bytes current: the next kept one, or a new one put before it when that is too small.
 */
static struct block *advance(struct ash_arena *arena, size_t size_bytes)
{
    struct block *from = arena->current, *to = from->next;

    if (to == NULL || to->size_bytes < size_bytes) {
        size_t grown = from->size_bytes <= SIZE_MAX / 2 ? from->size_bytes * 2 : from->size_bytes;
        struct block *fresh = block_open(grown > size_bytes ? grown : size_bytes);
        if (fresh == NULL && grown > size_bytes) fresh = block_open(size_bytes);
        if (fresh == NULL) return NULL;
        fresh->next = to;
        from->next = fresh;
        to = fresh;
    }
    to->used_bytes = 0;
    to->before_bytes = from->before_bytes + from->used_bytes;
    arena->current = to;
    return to;
}

void *ash_arena_alloc(struct ash_arena *arena, size_t size_bytes)
{
    struct block *block = arena->current;
    size_t rounded, used;
    void *ptr;

    if (size_bytes > SIZE_MAX / 2) return NULL;
    rounded = (size_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (rounded == 0) rounded = ALIGN_BYTES;
    if (block->size_bytes - block->used_bytes < rounded) block = advance(arena, rounded);
    if (block == NULL) return NULL;
    ptr = (char *)block + HEADER_BYTES + block->used_bytes;
    block->used_bytes += rounded;
    used = ash_arena_used_bytes(arena);
    if (used > arena->peak_bytes) arena->peak_bytes = used;
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

struct ash_arena_mark ash_arena_mark(const struct ash_arena *arena)
{
    return (struct ash_arena_mark){.block = arena->current, .used_bytes = arena->current->used_bytes};
}

void ash_arena_rewind(struct ash_arena *arena, struct ash_arena_mark mark)
{
    struct block *block = mark.block;

    ash_assert(mark.used_bytes <= block->used_bytes);
    block->used_bytes = mark.used_bytes;
    arena->current = block;
}

size_t ash_arena_used_bytes(const struct ash_arena *arena)
{
    return arena->current->before_bytes + arena->current->used_bytes;
}

size_t ash_arena_peak_bytes(const struct ash_arena *arena)
{
    return arena->peak_bytes;
}
