/* dir (private) - shared by the two files of the folder tier. */
#ifndef ASH_STORAGE_TIER_DIR_PRIV_H
#define ASH_STORAGE_TIER_DIR_PRIV_H

#include <sys/stat.h>
#include "storage/tier/tier_priv.h"

/* Files of this name, with a dot before and numbers behind, are objects that are being written. */
#define ASH_TIER_DIR_TEMPORARY "ashlar-object"

struct ash_tier_dir {
    struct ash_tier base;
    char *root; /* without a slash at its end, unless it is all */
    bool is_shared, is_lustre;
};

/* The path of a key into path (PATH_MAX). Returns 0, or -EINVAL for what cannot be a file below the folder. */
int ash_tier_dir_path(const struct ash_tier_dir *dir, const char *key, char *path, struct ash_err *err);
/* Size, time and version of a file. */
void ash_tier_dir_describe(const struct stat *info, struct ash_tier_object *object_out);
/* The list operation of the tier. */
int ash_tier_dir_list(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                      struct ash_err *err);
/* The write operations of the tier. */
int ash_tier_dir_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                            struct ash_tier_write **write_out, struct ash_err *err);
/* The next bytes; those of large objects go past the page cache, in the background of the caller. */
int ash_tier_dir_write_add(struct ash_tier_write *write, const void *data, size_t size_bytes, struct ash_err *err);
/* Flushed to disk, then renamed. */
int ash_tier_dir_write_finish(struct ash_tier_write *write, struct ash_err *err);
/* Always 0. */
uint64_t ash_tier_dir_write_resumed_bytes(const struct ash_tier_write *write);
/* Free; an unfinished object is removed. */
void ash_tier_dir_write_close(struct ash_tier_write *write, bool keeps_parts);
/* The sweep operation of the tier. */
int ash_tier_dir_sweep(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err);

#endif
