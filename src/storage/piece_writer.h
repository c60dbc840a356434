/* piece_writer - writes parts of large files in the background of its caller: bytes are copied into buffers of a
 * bounded size, summed while they are there, and written past the page cache while the caller fills the next ones.
 * Several processes may write parts of the same files at the same time; each gets the sums of its own parts, which add
 * up to those of the files. One owner thread. */
#ifndef ASH_STORAGE_PIECE_WRITER_H
#define ASH_STORAGE_PIECE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "ashlar/err.h"
#include "storage/pieces.h"

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
/* Wait for what is under way and free. NULL is a no-op. */
void ash_piece_writer_close(struct ash_piece_writer *writer);

/* Open `count` files of a folder that is there, created where they are not. sets_sizes: this process gives them their
 * sizes and the room on the disk, so that a full disk is known at once; one of all writers does. dir is for messages
 * too. On error nothing is open. */
int ash_piece_writer_begin(struct ash_piece_writer *writer, const char *dir, const struct ash_piece_file *files,
                           size_t count, bool sets_sizes, struct ash_err *err);
/* Memory for up to size_bytes of file `file` from offset (a multiple of 4) on: at least 4 bytes, never beyond a piece.
 * May wait for a buffer. Returns how many bytes there are at *data_out, or a negative errno of an earlier write. */
ssize_t ash_piece_writer_room(struct ash_piece_writer *writer, size_t file, uint64_t offset, size_t size_bytes,
                              void **data_out, struct ash_err *err);
/* The bytes that room gave are filled. */
void ash_piece_writer_filled(struct ash_piece_writer *writer);
/* Give up: what waits is not written, and end returns rc, a negative errno. */
void ash_piece_writer_cancel(struct ash_piece_writer *writer, int rc);
/* Write what waits, flush the files to disk and close them. pieces_out[count] (may be NULL) gets the sums of what this
 * process wrote; the caller frees them. Returns 0 or the first error; then pieces_out is untouched. */
int ash_piece_writer_end(struct ash_piece_writer *writer, struct ash_pieces *pieces_out, struct ash_err *err);
/* The largest number of bytes that buffers have taken so far. */
size_t ash_piece_writer_peak_bytes(const struct ash_piece_writer *writer);

#endif
