/* remote_file - a file of a folder here whose bytes are still in a remote place. It has its path and size; its bytes
 * are read by ranges, by any thread. Readers of weights check whether a path is one. */
#ifndef ASH_STORAGE_IO_REMOTE_FILE_H
#define ASH_STORAGE_IO_REMOTE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/file.h"
#include "storage/io/direct_reader.h"

struct ash_remote_file_ops {
    size_t size; /* of this table */
    /* Exactly these bytes into data. Any thread. */
    int (*read)(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err);
};

struct ash_remote_file {
    const struct ash_remote_file_ops *ops;
    void *ctx;
    uint64_t size_bytes;
    uint64_t identity; /* a hash of its version: changes with its bytes, and is the same on every machine */
    bool is_here;      /* the file at its path has all its bytes */
};

/* From now on the file at path (copied) is this one; ops, ctx stay until the process ends. A later one of the same path
 * takes its place. Returns 0 or -ENOMEM. */
int ash_remote_file_add(const char *path, const struct ash_remote_file *file);
/* The remote file at path, or NULL. Stays valid. */
const struct ash_remote_file *ash_remote_file_find(const char *path);
/* *hash becomes a hash of itself and of the file at path: of a remote one its identity, of others their bytes. */
int ash_remote_file_hash(const char *path, uint64_t *hash, struct ash_err *err);

/* Map the file at path as ash_map_open does. Of a remote one that is not here, the mapping is memory that is empty
 * until ash_remote_file_bring fills ranges of it, and map_out->remote is set. */
int ash_remote_file_map(const char *path, struct ash_map *map_out, struct ash_err *err);
/* Fill ranges of remote mappings, several at a time, roughly in order; those of other mappings are left out. Ranges
 * that nearly touch are read as one. The order of ranges (caller's) is changed. */
int ash_remote_file_bring(struct ash_direct_range *ranges, size_t count, struct ash_err *err);

#endif
