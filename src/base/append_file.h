/* append_file - a file that records are appended to. If the disk is full, whole records wait in memory and are written
 * with the next one. One owner thread. */
#ifndef ASH_BASE_APPEND_FILE_H
#define ASH_BASE_APPEND_FILE_H

#include "ashlar/err.h"
#include "base/str.h"

/* Zero-initialise; nothing but pending is for others. */
struct ash_append_file {
    struct ash_str pending; /* records that are not in the file yet; the caller appends them */
    char *path;
    int fd;
};

/* Open path, made if it is not there, and cut it to its first size_bytes. Returns 0 or an error. */
int ash_append_file_open(struct ash_append_file *file, const char *path, size_t size_bytes, struct ash_err *err);
/* Write the pending records; a partial write keeps the rest of them. */
int ash_append_file_flush(struct ash_append_file *file, struct ash_err *err);
/* Try once more to write them, and close. Does nothing if it is not open. */
void ash_append_file_close(struct ash_append_file *file);

#endif
