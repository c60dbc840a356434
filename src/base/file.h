/* file - whole files: mapped, read, and replaced in one step so that a crash leaves the old or the new, never half. */
#ifndef ASH_BASE_FILE_H
#define ASH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_remote_file; /* storage/io/remote_file.h */

/* A read-only mapping. The caller owns it and keeps it alive while anything borrows from it. */
struct ash_map {
    const uint8_t *base;
    size_t size_bytes;
    int fd; /* of the file, open for reading as long as it is mapped; not where base is NULL */
    const struct ash_remote_file *remote; /* NULL, or where its bytes come from when they are asked for; no fd then */
};

/* Map a regular file. An empty file gives base NULL and size 0. Returns 0 or a negative errno with path and cause in
 * err. */
int ash_map_open(const char *path, struct ash_map *map_out, struct ash_err *err);
/* Unmap and close; whatever borrowed from it is invalid. A zeroed map is fine. */
void ash_map_close(struct ash_map *map);
/* Does data point into it? */
bool ash_map_holds(const struct ash_map *map, const void *data);
/* Release the memory of the whole pages inside a range of a mapping: they are read from the file when they are touched
 * again. */
void ash_map_drop(const void *data, size_t size_bytes);
/* *hash becomes a hash of itself and the file's bytes. No more than a part of the file is resident at a time. Returns 0
 * or the error of opening it. */
int ash_file_hash(const char *path, uint64_t *hash, struct ash_err *err);
/* Ask for the pages of a range of a mapping, these alone: a fault would read megabytes around each. Does not wait. */
void ash_map_want(const void *data, size_t size_bytes);
/* Is the page of a mapping that holds this byte in memory? True where the system does not tell. */
bool ash_map_cached(const void *data);

/* Read a whole file of at most max_bytes; *data_out is malloc'd and NUL-terminated after *size_out bytes. */
int ash_file_read(const char *path, size_t max_bytes, char **data_out, size_t *size_out, struct ash_err *err);
/* Write path through a temporary file in its folder, flushed to disk and renamed. On error path is as it was. */
int ash_file_replace(const char *path, const void *data, size_t size_bytes, struct ash_err *err);
/* Remove what killed processes left in dir when they were replacing files: names that end in .tmp-<digits>-<digits>.
 * Only for a folder without other writers. Folders of such names stay. */
int ash_file_sweep(const char *dir, struct ash_err *err);
/* mkdir -p; an existing folder is success. */
int ash_dir_make(const char *path, struct ash_err *err);
/* Flush a folder's entries to disk, so that a rename inside it is durable. */
int ash_dir_sync(const char *path, struct ash_err *err);
/* Remove a folder and all below it. A missing one is success. */
int ash_dir_remove(const char *path, struct ash_err *err);
/* Is it a folder with nothing in it? */
bool ash_dir_is_empty(const char *path);
/* Is there a file, folder or anything else of this name? */
bool ash_path_exists(const char *path);
/* "dir/name" into buf. Returns -ENAMETOOLONG when it does not fit. */
int ash_path_join(char *buf, size_t buf_bytes, const char *dir, const char *name);

#endif
