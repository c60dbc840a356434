/* url - names of places: s3://bucket/key, and the endpoint of a server. */
#ifndef ASH_STORAGE_S3_URL_H
#define ASH_STORAGE_S3_URL_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_S3_BUCKET_BYTES 256
#define ASH_S3_KEY_BYTES 1025 /* 1,024 and a NUL */
#define ASH_S3_HOST_BYTES 300

struct ash_s3_url {
    char bucket[ASH_S3_BUCKET_BYTES];
    char key[ASH_S3_KEY_BYTES]; /* or a prefix; "" for the whole bucket */
};

/* Where a server listens: scheme://host[:port][/path]. */
struct ash_s3_endpoint {
    bool is_https;
    char host[ASH_S3_HOST_BYTES]; /* with the port where one is given, as the Host header has it */
    char path[ASH_S3_HOST_BYTES]; /* "" or "/prefix", without a slash at its end */
};

/* Does text begin with s3://? */
bool ash_s3_url_is(const char *text);
/* Read s3://bucket/key. The key is taken as it is: nothing is decoded. Returns 0 or -EINVAL with a sentence. */
int ash_s3_url_parse(const char *text, struct ash_s3_url *url_out, struct ash_err *err);
/* Read the address of a server. Returns 0 or -EINVAL with a sentence. */
int ash_s3_endpoint_parse(const char *text, struct ash_s3_endpoint *endpoint_out, struct ash_err *err);
/* Can the bucket's name be part of a host's name under TLS? (Lower case, digits and hyphens, 3 to 63 characters.) */
bool ash_s3_bucket_fits_host(const char *bucket);
/* Is it a key that S3 takes: 1 to 1,024 bytes of UTF-8? Returns 0 or -EINVAL with a sentence. */
int ash_s3_key_check(const char *key, struct ash_err *err);

#endif
