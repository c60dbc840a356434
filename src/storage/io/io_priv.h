/* io - files read and written so that a full disk, a quota or a missing permission becomes a sentence, for this
 * folder. */
#ifndef ASH_STORAGE_IO_IO_PRIV_H
#define ASH_STORAGE_IO_IO_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* Fill err with "PATH: cannot DO: the disk is full: ..." for the negative errno code, and return code. */
int ash_io_fail(struct ash_err *err, int code, const char *path, const char *action);

/* Write all of data to fd. Returns 0 or a negative errno. */
int ash_io_write(int fd, const void *data, size_t size_bytes);

/* Exactly size_bytes bytes of fd from offset on into data. Returns 0, a negative errno, or -EIO if it is shorter. */
int ash_io_read_at(int fd, uint64_t offset, void *data, size_t size_bytes);

/* Flush and close fd, closing it in every case. Returns 0 or the first negative errno. */
int ash_io_flush_close(int fd);

/* The folder that holds path ("." where path has no slash) into buf. Returns 0 or -ENAMETOOLONG. */
int ash_io_parent(char *buf, size_t buf_bytes, const char *path);

#endif
