/* etag_check - are bytes those of an object's ETag: the MD5 of them all, or the MD5 of the MD5s of its parts? If the
 * size of the parts is unknown, the usual sizes of clients are tried together, in one pass. One owner thread. */
#ifndef ASH_STORAGE_S3_ETAG_CHECK_PRIV_H
#define ASH_STORAGE_S3_ETAG_CHECK_PRIV_H

#include "storage/s3/digest_priv.h"
#include "storage/s3/s3.h"

#define ASH_ETAG_GUESSES_MAX 6

/* One size of parts. part_bytes 0: the object was not written in parts. */
struct ash_etag_guess {
    uint64_t part_bytes, at; /* at: bytes of the present part so far */
    struct ash_md5 *part, *parts;
};

struct ash_etag_check {
    const struct ash_s3_object *object; /* borrowed */
    struct ash_etag_guess guesses[ASH_ETAG_GUESSES_MAX];
    size_t guess_count, part_count;
};

/* Begin to check the bytes of object. Returns 0, or -ENOTSUP where MD5 is forbidden; end it with fini in any case. */
int ash_etag_check_init(struct ash_etag_check *check, const struct ash_s3_object *object);
/* Free the members. */
void ash_etag_check_fini(struct ash_etag_check *check);
/* The size of parts whose sums can be taken ASH_MD5_LANES at a time by ash_etag_check_add_parts, or 0. */
size_t ash_etag_check_lane_bytes(const struct ash_etag_check *check);
/* The next bytes, in order. */
void ash_etag_check_add(struct ash_etag_check *check, const uint8_t *data, size_t size_bytes);
/* The next ASH_MD5_LANES parts, each of ash_etag_check_lane_bytes. */
void ash_etag_check_add_parts(struct ash_etag_check *check, const uint8_t *const parts[ASH_MD5_LANES]);
/* After the last byte: 1 if they are right, 0 if the ETag cannot decide, -EBADMSG if they are wrong. */
int ash_etag_check_end(struct ash_etag_check *check);
/* The same, with a sentence that names the object. */
int ash_s3_etag_verdict(const struct ash_s3 *s3, const char *key, struct ash_etag_check *check, struct ash_err *err);

#endif
