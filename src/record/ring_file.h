/* ring_file - the last records of a process in a mapped file: its recent activity, readable at any time and after it
 * was killed. A record begins with its number, which is written last; so a reader detects a half-written one. */
#ifndef ASH_RECORD_RING_FILE_H
#define ASH_RECORD_RING_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_RING_LABELS_BYTES 512
#define ASH_RING_KIND_BYTES 16
#define ASH_RING_BYTES_MAX ((size_t)64 << 20)
#define ASH_RING_FILES_MAX 65536

struct ash_ring_file; /* of a writer; any thread adds */

struct ash_ring_opts {
    const char *dir;     /* created if missing, world-writable like /tmp */
    const char *kind;    /* "flight": the end of the file's name, and the readers' selection */
    const char *labels;  /* job="7",rank="0" */
    size_t record_bytes; /* a multiple of 8; the first 8 are the record's number */
    size_t capacity;     /* records that are kept: a power of two */
};

/* Make the file. Returns 0 or a negative errno; on 0 the caller owns *ring_out. */
int ash_ring_open(const struct ash_ring_opts *opts, struct ash_ring_file **ring_out, struct ash_err *err);
/* keeps: leave the file for diagnosis. NULL is a no-op. */
void ash_ring_close(struct ash_ring_file *ring, bool keeps);
/* Add a record; its first 8 bytes are set here. Returns its number, from 1. Any thread, without waiting. */
uint64_t ash_ring_add(struct ash_ring_file *ring, const void *record);
/* Set a word of a record that was added, if it has not been overwritten since. offset: bytes, a multiple of 8. */
void ash_ring_set(struct ash_ring_file *ring, uint64_t number, size_t offset, uint64_t value);

/* Write the ring as it is now to path, for readers as the file itself. Returns 0 or a negative errno. */
int ash_ring_copy(const struct ash_ring_file *ring, const char *path, struct ash_err *err);

/* Remove files of killed processes from dir, an hour after they were first seen dead: until then they serve diagnosis.
 * Files whose names do not end in one of the NULL-terminated kinds, and those of others, stay. */
void ash_ring_sweep(const char *dir, const char *const *kinds);

/* A reader's copy. */
struct ash_ring_view {
    char kind[ASH_RING_KIND_BYTES], labels[ASH_RING_LABELS_BYTES];
    uint32_t pid;
    bool is_alive;       /* the writer still holds its lock */
    int64_t wall_ns;     /* what to add to times of ash_clock_ns of the writer for nanoseconds since 1970 */
    size_t record_bytes; /* of each */
    uint64_t added;      /* since the beginning */
    size_t count;        /* whole ones below, oldest first */
    uint8_t *records;    /* [count][record_bytes] */
};

/* Read a file; kind NULL: any. Returns 0, -EINVAL (another file, or damaged) or a negative errno; on 0 the caller owns
 * the view. */
int ash_ring_read(const char *path, const char *kind, struct ash_ring_view *view_out, struct ash_err *err);
/* The same of bytes in memory: for tests. */
int ash_ring_parse(const void *data, size_t size_bytes, struct ash_ring_view *view_out, struct ash_err *err);
/* A zeroed view is fine. */
void ash_ring_view_fini(struct ash_ring_view *view);
/* Every file of a kind in dir whose records have record_bytes, at most ASH_RING_FILES_MAX; damaged ones are left out.
 * Returns 0 or a negative errno; on 0 the caller owns *views_out [*count_out] (NULL for none) and each view. */
int ash_ring_read_dir(const char *dir, const char *kind, size_t record_bytes, struct ash_ring_view **views_out,
                      size_t *count_out, struct ash_err *err);
/* The value of a label of a view (rank="3"), into buf. Returns 0 or -ENOENT. */
int ash_ring_label(const struct ash_ring_view *view, const char *name, char *buf, size_t buf_bytes);

#endif
