/* piece_writer - writes parts of large files in the background of its caller: bytes are copied into buffers of a
 * bounded size, summed while they are there, and written past the page cache while the caller fills the next ones.
 * Several processes may write parts of the same files concurrently; each gets the checksums of its own parts, which add
 * up to those of the files. While a folder's files are written to the disk, those of the next may be filled, out of the
 * same memory. One owner thread. */
#ifndef ASH_STORAGE_IO_PIECE_WRITER_H
#define ASH_STORAGE_IO_PIECE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "ashlar/err.h"
#include "storage/io/pieces.h"

#define ASH_PIECE_WRITER_FILES_MAX 3

struct ash_piece_writer;

/* A file that is written in parts. */
struct ash_piece_file {
    const char *name;    /* in the folder */
    uint64_t size_bytes; /* at the end */
};

struct ash_piece_writer_opts {
    size_t memory_bytes; /* for buffers; at least four pieces are taken */
    bool wants_uring;    /* see ash_io_queue_open */
};

/* The caller owns *writer_out. Returns 0, -ENOMEM or -EAGAIN. */
int ash_piece_writer_open(const struct ash_piece_writer_opts *opts, struct ash_piece_writer **writer_out,
                          struct ash_err *err);
/* Free; all sets are closed. NULL is a no-op. */
void ash_piece_writer_close(struct ash_piece_writer *writer);

/* Files of one folder that are being written. */
struct ash_piece_set;

struct ash_piece_set_opts {
    const char *dir; /* it is there; for messages too */
    const struct ash_piece_file *files;
    size_t count;
    /* This process gives the files their sizes and the room on the disk, so that a full disk is known at once. One of
     * all writers does. */
    bool sets_sizes;
};

/* Open files, created where they are not there. No other set is being filled. The caller owns *set_out. On error
 * nothing is open. */
int ash_piece_set_open(struct ash_piece_writer *writer, const struct ash_piece_set_opts *opts,
                       struct ash_piece_set **set_out, struct ash_err *err);
/* Memory for up to size_bytes of file `file` from offset (a multiple of 4) on: at least 4 bytes, never beyond a piece.
 * May wait for a buffer. Returns how many bytes there are at *data_out, or a negative errno of an earlier write. */
ssize_t ash_piece_set_room(struct ash_piece_set *set, size_t file, uint64_t offset, size_t size_bytes, void **data_out,
                           struct ash_err *err);
/* The bytes that room gave are filled. */
void ash_piece_set_filled(struct ash_piece_set *set);
/* Everything is filled and goes to the disk: the next set may be opened. */
void ash_piece_set_submit(struct ash_piece_set *set);
/* Wait for one write. Returns false where none of this set is under way. */
bool ash_piece_set_advance(struct ash_piece_set *set);
/* Give up: what waits is not written, and close returns rc, a negative errno. */
void ash_piece_set_cancel(struct ash_piece_set *set, int rc);
/* Write buffered pieces, flush the files to disk, close them and free the set. pieces_out[count] (may be NULL) gets the
 * checksums of this process's writes; the caller frees them. Returns 0 or the first error; then pieces_out is
 * untouched. */
int ash_piece_set_close(struct ash_piece_set *set, struct ash_pieces *pieces_out, struct ash_err *err);
/* The largest number of bytes that buffers have taken so far. */
size_t ash_piece_writer_peak_bytes(const struct ash_piece_writer *writer);

#endif
