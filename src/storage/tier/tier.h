/* tier - objects in a place: a folder, several folders as one (stripe:/a,/b), a folder of a shared file system
 * (shared:/lustre/a) or a bucket of S3, behind one table of operations. An object has
 * a key ("a/b.bin"), a size and a version, appears whole or not at all, and is replaced as a whole. A tier belongs to
 * one thread at a time. Calls return 0 or a negative errno with a sentence in err; -ENOENT: there is no such object;
 * -ESTALE: the object is another version; -EINVAL: no tier of this kind can have such a key. */
#ifndef ASH_STORAGE_TIER_TIER_H
#define ASH_STORAGE_TIER_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "storage/s3/s3.h"

#define ASH_TIER_KEY_BYTES 1025 /* 1,024 and a NUL */
#define ASH_TIER_VERSION_BYTES ASH_S3_ETAG_BYTES

struct ash_tier;       /* a place */
struct ash_tier_write; /* an object that is being written */

struct ash_tier_object {
    uint64_t size_bytes;
    double modified_s;                    /* seconds since 1970; 0: unknown */
    char version[ASH_TIER_VERSION_BYTES]; /* changes with the bytes: an ETag, or inode, size and time */
    bool is_released; /* the bytes are in Lustre's archive alone: reading restores them, and takes time */
};

/* Bytes of an object. version (may be NULL): the one that it must have. */
struct ash_tier_range {
    const char *key, *version;
    uint64_t offset;
    size_t size_bytes;
};

/* A range and where its bytes go. */
struct ash_tier_piece {
    struct ash_tier_range range;
    void *data;
};

/* Receives an object of a list, or (object NULL) the beginning of keys up to a slash. A negative result ends the list
 * and is returned. */
typedef int (*ash_tier_list_fn)(void *ctx, const char *key, const struct ash_tier_object *object);

struct ash_tier_ops {
    size_t size;      /* of this table */
    const char *name; /* "dir", "s3" */
    int (*stat)(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err);
    int (*list)(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                struct ash_err *err);
    int (*read)(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err);
    int (*read_pieces)(struct ash_tier *tier, const struct ash_tier_piece *pieces, size_t count, struct ash_err *err);
    int (*stream)(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err);
    int (*compare)(struct ash_tier *tier, const char *key, const char *version, int fd, struct ash_err *err);
    int (*remove)(struct ash_tier *tier, const char *key, struct ash_err *err);
    int (*write_if)(struct ash_tier *tier, const char *key, const void *data, size_t size_bytes,
                    const struct ash_s3_condition *condition, struct ash_err *err);
    int (*sweep)(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err);
    int (*write_open)(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                      struct ash_tier_write **write_out, struct ash_err *err);
    int (*write_add)(struct ash_tier_write *write, const void *data, size_t size_bytes, struct ash_err *err);
    int (*write_finish)(struct ash_tier_write *write, struct ash_err *err);
    int (*write_help)(struct ash_tier *tier, const char *key, uint64_t total_bytes, const struct ash_s3_share *share,
                      struct ash_err *err);
    uint64_t (*write_resumed_bytes)(const struct ash_tier_write *write);
    void (*write_close)(struct ash_tier_write *write, bool keeps_parts);
    void (*close)(struct ash_tier *tier);
};

/* Every tier begins with this. */
struct ash_tier {
    const struct ash_tier_ops *ops;
};

/* Is it the address of a tier other than a path ("s3://...")? */
bool ash_tier_is_url(const char *text);
/* Open a place whose keys are below url: s3://bucket, s3://bucket/prefix, stripe:/a,/b, shared:/a or a folder's path.
 * A folder need not be there before something is written. s3 is copied; its pointers are borrowed until close. The
 * caller owns *tier_out. */
int ash_tier_open(const char *url, const struct ash_s3_opts *s3, struct ash_tier **tier_out, struct ash_err *err);
/* Open the place of one object, and its key in there: s3://bucket/key, stripe:/a,/b::key, shared:/a/file or the path of
 * a file. key_out has ASH_TIER_KEY_BYTES. */
int ash_tier_open_object(const char *url, const struct ash_s3_opts *s3, struct ash_tier **tier_out, char *key_out,
                         struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_tier_close(struct ash_tier *tier);

/* Metadata of an object. */
int ash_tier_stat(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err);
/* Every object whose key begins with prefix, in order of their bytes. is_flat false: keys that have a slash after the
 * prefix come once, up to that slash. A place that is not there has no objects. */
int ash_tier_list(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                  struct ash_err *err);
/* Exactly the bytes of range into data. An error where the object has fewer. */
int ash_tier_read(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err);
/* Exactly the bytes of every piece (none is empty), of any objects, several at a time where the tier can. The first
 * error ends all. */
int ash_tier_read_pieces(struct ash_tier *tier, const struct ash_tier_piece *pieces, size_t count, struct ash_err *err);
/* The whole object into sink. Returns 1 if a checksum of the place was right, 0 if it has none, -EBADMSG if it was
 * wrong. */
int ash_tier_stream(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err);
/* Compare the file fd, whose bytes were read by ranges from this version of an object, with the checksum of the place.
 * Returns as ash_tier_stream, and -ESTALE where the object is another version now. */
int ash_tier_compare(struct ash_tier *tier, const char *key, const char *version, int fd, struct ash_err *err);
/* Remove an object. One that is not there is success. */
int ash_tier_remove(struct ash_tier *tier, const char *key, struct ash_err *err);
/* Write a small object in one go, where condition (NULL: none) is met: as ash_s3_write. -ENOTSUP: the tier has no
 * conditions. */
int ash_tier_write_if(struct ash_tier *tier, const char *key, const void *data, size_t size_bytes,
                      const struct ash_s3_condition *condition, struct ash_err *err);
/* Remove what writers that died left behind longer than age_s seconds ago. *count_out: how many. */
int ash_tier_sweep(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err);

/* Begin to write an object. total_bytes (0: unknown) is a hint. wants_resume: continue with an unfinished one, where
 * the tier can. End *write_out with ash_tier_write_close in every case. */
int ash_tier_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                        struct ash_tier_write **write_out, struct ash_err *err);
/* The next bytes; copied or written. After an error only close may follow. */
int ash_tier_write_add(struct ash_tier *tier, struct ash_tier_write *write, const void *data, size_t size_bytes,
                       struct ash_err *err);
/* The object appears, whole and durable as the tier understands it: flushed to disk, or acknowledged by the server. */
int ash_tier_write_finish(struct ash_tier *tier, struct ash_tier_write *write, struct ash_err *err);
/* Send a share of an object that another process writes (with wants_resume): as ash_s3_upload_help. -ENOTSUP: the tier
 * has no such thing. */
int ash_tier_write_help(struct ash_tier *tier, const char *key, uint64_t total_bytes, const struct ash_s3_share *share,
                        struct ash_err *err);
/* Bytes that an earlier, unfinished write had sent. */
uint64_t ash_tier_write_resumed_bytes(const struct ash_tier *tier, const struct ash_tier_write *write);
/* Free; an unfinished object is removed, or (keeps_parts) stays for a later write_open if the tier supports that. NULL
 * is a no-op. */
void ash_tier_write_close(struct ash_tier *tier, struct ash_tier_write *write, bool keeps_parts);

#endif
