/* sigv4 - AWS Signature Version 4: a request and a pair of keys make the text of the Authorization header. */
#ifndef ASH_STORAGE_S3_SIGV4_PRIV_H
#define ASH_STORAGE_S3_SIGV4_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"

#define ASH_S3_ACCESS_BYTES 256
#define ASH_S3_SECRET_BYTES 256
#define ASH_S3_TOKEN_BYTES 8192
#define ASH_S3_STAMP_BYTES 17 /* 20130524T000000Z and a NUL */
#define ASH_SIGV4_PAIRS_MAX 16

struct ash_s3_keys {
    char access[ASH_S3_ACCESS_BYTES], secret[ASH_S3_SECRET_BYTES];
    char token[ASH_S3_TOKEN_BYTES]; /* of temporary keys; "" for others */
    double expires_s;               /* seconds since 1970; 0: never */
};

/* A header or a parameter of the query. */
struct ash_s3_pair {
    const char *name, *value;
};

struct ash_sigv4_request {
    const char *method, *path;         /* "GET"; the path as it is sent, percent-encoded */
    const struct ash_s3_pair *query;   /* not encoded, in any order; at most ASH_SIGV4_PAIRS_MAX */
    size_t query_count;                /* of them */
    const struct ash_s3_pair *headers; /* names in lower case, in any order; host and x-amz-date are among them */
    size_t header_count;               /* of them, at most ASH_SIGV4_PAIRS_MAX */
    const char *payload_hash;          /* SHA-256 of the body, hexadecimal */
    const char *region, *service;      /* "us-east-1", "s3" */
    const char *stamp;                 /* the value of x-amz-date */
};

/* Append text with all but letters, digits and -._~ percent-encoded; a slash stays where keeps_slash. Returns 0 or
 * -ENOMEM. */
int ash_uri_encode(struct ash_str *out, const char *text, bool keeps_slash);
/* Append the query as it is sent and signed: encoded and sorted, without the question mark. Returns 0 or -ENOMEM. */
int ash_sigv4_query(struct ash_str *out, const struct ash_s3_pair *query, size_t count);
/* Seconds since 1970 as the value of x-amz-date. */
void ash_sigv4_stamp(double now_s, char stamp_out[ASH_S3_STAMP_BYTES]);
/* Append the value of the Authorization header. Returns 0, -ENOMEM or -ENOTSUP (OpenSSL refuses). */
int ash_sigv4_sign(const struct ash_sigv4_request *request, const struct ash_s3_keys *keys,
                   struct ash_str *authorization);

#endif
