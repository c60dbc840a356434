/* s3 - objects in a bucket of any server that speaks S3: read by ranges, written whole or in parts, listed, removed.
 * Requests are signed (SigV4) with their payload. Transient failures (503, 500, 429, resets, bodies cut short) are
 * retried with jitter inside a budget of time. Every read is checked for its length and that the object is the same
 * one. A client belongs to one thread at a time. All calls return 0 or a negative errno with a sentence in err: -ENOENT
 * (no such object or bucket), -EACCES (keys, rights, clock), -ESTALE (another version), -EEXIST, -EINTR (stop request),
 * -ETIMEDOUT (the budget is spent), -EIO. */
#ifndef ASH_STORAGE_S3_S3_H
#define ASH_STORAGE_S3_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

#define ASH_S3_ETAG_BYTES 128
#define ASH_S3_PARTS_MAX 10000 /* of one object, by S3's rules */

/* Settings of section "s3". Unset ones come from the environment (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL,
 * AWS_REGION, AWS_PROFILE, AWS_CA_BUNDLE), then from the profile. */
struct ash_s3_opts {
    const char *endpoint, *region, *profile, *ca_file;
    int addressing; /* index into auto, path, host */
    int64_t connections, part_bytes;
    double retry_s;
    double interrupt_s; /* after Ctrl-C requests continue for this long, for a program that ends in good order */
    /* Called when a request will be tried again: why (a sentence), and in how many seconds. May be NULL. */
    void (*on_retry)(void *ctx, const char *why, double wait_s);
    void *on_retry_ctx;
};

extern const struct ash_opt_table ash_s3_table;

struct ash_s3; /* a bucket */

/* One object as the server describes it. */
struct ash_s3_object {
    uint64_t size_bytes;
    double modified_s;            /* seconds since 1970; 0: unknown */
    char etag[ASH_S3_ETAG_BYTES]; /* with its quotes, as the server gave it */
    uint64_t part_bytes;          /* of the parts it was uploaded in, where Ashlar did that; 0: unknown */
    bool is_etag_opaque;          /* encrypted by the server: the ETag cannot verify the bytes */
};

/* Read keys and settings; nothing is sent. Borrows what opts point to until close. The caller owns *s3_out. */
int ash_s3_open(const char *bucket, const struct ash_s3_opts *opts, struct ash_s3 **s3_out, struct ash_err *err);
/* Free; requests under way are dropped. NULL is a no-op. */
void ash_s3_close(struct ash_s3 *s3);

/* Metadata of an object from the server. */
int ash_s3_stat(struct ash_s3 *s3, const char *key, struct ash_s3_object *object_out, struct ash_err *err);
/* Bytes of an object. etag (may be NULL): the version that it must be. */
struct ash_s3_range {
    const char *key, *etag;
    uint64_t offset;
    size_t size_bytes;
};

/* Exactly the bytes of range into data, in several concurrent requests if they are many. -ESTALE if the object is
 * another version. If it is the whole object in one request and the ETag is an MD5, that is compared too (-EBADMSG). */
int ash_s3_read(struct ash_s3 *s3, const struct ash_s3_range *range, void *data, struct ash_err *err);

/* A range and where its bytes go. */
struct ash_s3_piece {
    struct ash_s3_range range;
    void *data;
};

/* Exactly the bytes of every piece, of any objects, several requests at a time. As ash_s3_read; the first error ends
 * all. A piece without an etag must be at most one part long. */
int ash_s3_read_pieces(struct ash_s3 *s3, const struct ash_s3_piece *pieces, size_t count, struct ash_err *err);

/* What must be so for an object to be written: it is not there, or it is the one with this etag. */
struct ash_s3_condition {
    bool wants_absent;
    const char *etag; /* NULL: any */
};

/* Write an object in one request. condition (may be NULL): -EEXIST if it exists and must not, -ESTALE if it is another
 * version, -ENOTSUP if the server lacks conditions. */
int ash_s3_write(struct ash_s3 *s3, const char *key, const void *data, size_t size_bytes,
                 const struct ash_s3_condition *condition, struct ash_err *err);
/* Remove an object. One that is not there is success, as S3 has it. */
int ash_s3_remove(struct ash_s3 *s3, const char *key, struct ash_err *err);

/* Receives an object of a list, or (object NULL) a common prefix that ends with a slash. A negative result ends the
 * list and is returned. */
typedef int (*ash_s3_list_fn)(void *ctx, const char *key, const struct ash_s3_object *object);

/* Every object whose key begins with prefix, in order of their bytes. is_flat false: keys with a slash after the prefix
 * come as one common prefix. */
int ash_s3_list(struct ash_s3 *s3, const char *prefix, bool is_flat, ash_s3_list_fn each, void *ctx,
                struct ash_err *err);

/* ---- uploads in parts -------------------------------------------------------------------------------------------- */

struct ash_s3_upload; /* an object that is being written, in order, parts of it at a time */

/* Begin to write key; total_bytes (0: unknown) helps to choose parts. wants_resume: an unfinished upload of this key is
 * gone on with, and parts of it with the same bytes are not sent again. Small objects are sent in one request. */
int ash_s3_upload_open(struct ash_s3 *s3, const char *key, uint64_t total_bytes, bool wants_resume,
                       struct ash_s3_upload **upload_out, struct ash_err *err);
/* The next bytes; copied. After an error only close may follow. */
int ash_s3_upload_add(struct ash_s3_upload *upload, const void *data, size_t size_bytes, struct ash_err *err);
/* Send the remaining parts and complete the object. */
int ash_s3_upload_finish(struct ash_s3_upload *upload, struct ash_err *err);
/* Bytes that an earlier upload had sent already. */
uint64_t ash_s3_upload_resumed_bytes(const struct ash_s3_upload *upload);
/* Free. An upload that was not finished is removed from the server, or (keeps_parts) left there to be gone on with.
 * NULL is a no-op. */
void ash_s3_upload_close(struct ash_s3_upload *upload, bool keeps_parts);

/* A part of the work of an upload that another process has begun, and where its bytes are read. */
struct ash_s3_share {
    size_t index, count; /* this process's number, and how many share; 0 is the one that completes it */
    int (*read)(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err);
    void *ctx;
};
/* Send a share of the parts of key's newest unfinished upload. The opener of that (wants_resume) does not send them
 * again, nor waits for any. total_bytes: of the object; it and s3.part_bytes are the same for all. Returns 0, -ENOENT
 * if there is no such upload or it was completed, or another error. */
int ash_s3_upload_help(struct ash_s3 *s3, const char *key, uint64_t total_bytes, const struct ash_s3_share *share,
                       struct ash_err *err);

/* Remove unfinished uploads of keys that begin with prefix and that are older than age_s seconds. *count_out: how
 * many. */
int ash_s3_sweep(struct ash_s3 *s3, const char *prefix, double age_s, size_t *count_out, struct ash_err *err);

/* ---- whole objects ----------------------------------------------------------------------------------------------- */

/* Takes the bytes of an object, in order, perhaps in another thread than the caller's, one call at a time. A negative
 * result, with a sentence in err, ends the reading. */
struct ash_s3_sink {
    int (*take)(void *ctx, const void *data, size_t size_bytes, struct ash_err *err);
    void *ctx;
};

/* Read the whole object into sink, piece by piece in bounded memory, and compare it with its ETag. Returns 1 if the
 * bytes are the ETag's, 0 if the ETag cannot verify them (then length and version were checked), -EBADMSG if they
 * differ, or another negative errno. */
int ash_s3_stream(struct ash_s3 *s3, const char *key, const struct ash_s3_sink *sink, struct ash_err *err);
/* Compare the file fd, whose bytes were fetched of the object with this etag, with the ETag. Returns as ash_s3_stream,
 * and -ESTALE where the object is another one now. */
int ash_s3_compare_file(struct ash_s3 *s3, const char *key, const char *etag, int fd, struct ash_err *err);

#endif
