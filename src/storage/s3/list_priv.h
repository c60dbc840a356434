/* list (private) - unfinished uploads and their parts. */
#ifndef ASH_STORAGE_S3_LIST_PRIV_H
#define ASH_STORAGE_S3_LIST_PRIV_H

#include "storage/s3/s3.h"

/* A part that the server has; etag "" if it does not. */
struct ash_s3_part {
    uint64_t size_bytes;
    char etag[ASH_S3_ETAG_BYTES];
};

/* Receives an unfinished upload; initiated_s is in seconds since 1970. A negative result ends the list. */
typedef int (*ash_s3_upload_fn)(void *ctx, const char *key, const char *upload_id, double initiated_s);

/* The parts of an upload into parts[ASH_S3_PARTS_MAX], part 1 first; those that are not there are left alone. Returns
 * 0, -ENOENT where the upload is gone, or another negative errno with a sentence. */
int ash_s3_list_parts(struct ash_s3 *s3, const char *key, const char *upload_id, struct ash_s3_part *parts,
                      struct ash_err *err);
/* Every unfinished upload of keys that begin with prefix. Returns as ash_s3_list. */
int ash_s3_list_uploads(struct ash_s3 *s3, const char *prefix, ash_s3_upload_fn each, void *ctx, struct ash_err *err);
/* Remove an unfinished upload and its parts. Returns 0, -ENOENT if it is gone, or another negative errno. */
int ash_s3_abort_upload(struct ash_s3 *s3, const char *key, const char *upload_id, struct ash_err *err);

#endif
