/* pieces: sums over the words of a file, a piece at a time. */
#include "storage/io/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define WORD_BYTES sizeof(uint32_t)

int ash_pieces_init(struct ash_pieces *pieces, uint64_t size_bytes, struct ash_err *err)
{
    size_t count = (size_t)(size_bytes / ASH_PIECE_BYTES) + (size_bytes % ASH_PIECE_BYTES != 0);
    uint64_t *sums = calloc(count + 1, sizeof(*sums));

    if (sums == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the checksums of a file");
    *pieces = (struct ash_pieces){.size_bytes = size_bytes, .count = count, .sums = sums};
    return 0;
}

void ash_pieces_fini(struct ash_pieces *pieces)
{
    free(pieces->sums);
    *pieces = (struct ash_pieces){0};
}

size_t ash_pieces_bytes(const struct ash_pieces *pieces, size_t index)
{
    uint64_t first = (uint64_t)index * ASH_PIECE_BYTES;

    ash_assert(index < pieces->count);
    return (size_t)ash_min(pieces->size_bytes - first, ASH_PIECE_BYTES);
}

uint64_t ash_piece_sum(uint64_t offset, const void *data, size_t size_bytes)
{
    size_t words = size_bytes / WORD_BYTES, rest = size_bytes % WORD_BYTES;
    uint64_t sum;
    uint32_t last = 0;

    ash_assert(offset % WORD_BYTES == 0 && (uintptr_t)data % WORD_BYTES == 0);
    sum = ash_hash_words(data, words, offset / WORD_BYTES, 0);
    if (rest == 0) return sum;
    memcpy(&last, (const char *)data + words * WORD_BYTES, rest);
    return sum + ash_hash_words(&last, 1, offset / WORD_BYTES + words, 0);
}

void ash_pieces_add(struct ash_pieces *pieces, uint64_t offset, const void *data, size_t size_bytes)
{
    size_t index = (size_t)(offset / ASH_PIECE_BYTES);

    if (size_bytes == 0) return;
    ash_assert(offset + size_bytes <= pieces->size_bytes);
    ash_assert((offset + size_bytes - 1) / ASH_PIECE_BYTES == index);
    ash_assert(size_bytes % WORD_BYTES == 0 || offset + size_bytes == pieces->size_bytes);
    pieces->sums[index] += ash_piece_sum(offset, data, size_bytes);
}
