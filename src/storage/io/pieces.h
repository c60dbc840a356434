/* pieces - checksums of a file, one for each 4 MiB of it. A checksum is a sum over 32-bit words and their positions, in
 * any order (ash_hash_words), so each writer of a part of a piece adds its share: several processes that write one file
 * need not read each other's parts, and a reader checks only the pieces that it reads. */
#ifndef ASH_STORAGE_IO_PIECES_H
#define ASH_STORAGE_IO_PIECES_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_PIECE_BYTES ((size_t)4 << 20)

/* Caller's storage; a zeroed struct is of an empty file. */
struct ash_pieces {
    uint64_t size_bytes; /* of the file */
    size_t count;        /* of its pieces */
    uint64_t *sums;      /* [count] */
};

/* Zero sums for a file of size_bytes. Returns 0 or -ENOMEM. */
int ash_pieces_init(struct ash_pieces *pieces, uint64_t size_bytes, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_pieces_fini(struct ash_pieces *pieces);
/* Bytes of piece index (< count). */
size_t ash_pieces_bytes(const struct ash_pieces *pieces, size_t index);
/* Add bytes of one piece that begin at offset, a multiple of 4. data is aligned to 4. size_bytes is a multiple of 4, or
 * goes to the end of the file. */
void ash_pieces_add(struct ash_pieces *pieces, uint64_t offset, const void *data, size_t size_bytes);
/* The sum of such bytes alone. */
uint64_t ash_piece_sum(uint64_t offset, const void *data, size_t size_bytes);

#endif
