/* AWS Signature Version 4. The order of everything is fixed: a canonical request, its hash in a text to sign, a key
 * derived from date, region and service. Pairs are few, so that sorting them by insertion is the plainest way. */
#include "storage/s3/sigv4_priv.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "storage/s3/digest_priv.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define DAY_BYTES 8 /* 20130524 */

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~", c) != NULL);
}

int ash_uri_encode(struct ash_str *out, const char *text, bool keeps_slash)
{
    for (; *text != '\0'; text++) {
        if (is_unreserved(*text) || (*text == '/' && keeps_slash))
            ash_str_add(out, text, 1);
        else
            ash_str_addf(out, "%%%02X", (unsigned char)*text);
    }
    return ash_str_add(out, "", 0); /* a text, also if it is empty */
}

/* Sort by name, then by value. */
static void sort_pairs(struct ash_s3_pair *pairs, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct ash_s3_pair pair = pairs[i];
        size_t at = i;

        for (; at > 0; at--) {
            int order = strcmp(pairs[at - 1].name, pair.name);

            if (order < 0 || (order == 0 && strcmp(pairs[at - 1].value, pair.value) <= 0)) break;
            pairs[at] = pairs[at - 1];
        }
        pairs[at] = pair;
    }
}

/* Names of the query hold letters, digits and hyphens here, so that their order is the same encoded and not. */
int ash_sigv4_query(struct ash_str *out, const struct ash_s3_pair *query, size_t count)
{
    struct ash_s3_pair sorted[ASH_SIGV4_PAIRS_MAX];

    ash_assert(count <= ASH_SIGV4_PAIRS_MAX);
    if (count > 0) memcpy(sorted, query, count * sizeof(*query));
    sort_pairs(sorted, count);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) ash_str_adds(out, "&");
        ash_uri_encode(out, sorted[i].name, false);
        ash_str_adds(out, "=");
        ash_uri_encode(out, sorted[i].value, false);
    }
    return out->rc;
}

void ash_sigv4_stamp(double now_s, char stamp_out[ASH_S3_STAMP_BYTES])
{
    time_t seconds = (time_t)now_s;
    struct tm utc;

    gmtime_r(&seconds, &utc);
    strftime(stamp_out, ASH_S3_STAMP_BYTES, "%Y%m%dT%H%M%SZ", &utc);
}

/* "host;x-amz-date". */
static void add_signed_names(struct ash_str *out, const struct ash_s3_pair *headers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ash_str_addf(out, "%s%s", i > 0 ? ";" : "", headers[i].name);
}

/* headers are sorted. */
static int canonical_hash(const struct ash_sigv4_request *request, const struct ash_s3_pair *headers,
                          char hash_out[ASH_SHA256_HEX_BYTES])
{
    struct ash_str text = {0};
    int rc;

    ash_str_addf(&text, "%s\n%s\n", request->method, request->path);
    ash_sigv4_query(&text, request->query, request->query_count);
    ash_str_adds(&text, "\n");
    for (size_t i = 0; i < request->header_count; i++)
        ash_str_addf(&text, "%s:%s\n", headers[i].name, headers[i].value);
    ash_str_adds(&text, "\n");
    add_signed_names(&text, headers, request->header_count);
    rc = ash_str_addf(&text, "\n%s", request->payload_hash);
    if (rc == 0) rc = ash_sha256_hex(text.data, text.size_bytes, hash_out);
    ash_str_fini(&text);
    return rc;
}

/* The signature of text_to_sign with the key of this day, region and service. */
static int signature_of(const struct ash_sigv4_request *request, const char *secret, const char *text_to_sign,
                        char hex_out[2 * ASH_SHA256_BYTES + 1])
{
    char first[ASH_S3_SECRET_BYTES + 4], day[DAY_BYTES + 1];
    uint8_t key[ASH_SHA256_BYTES];
    int rc;

    snprintf(first, sizeof(first), "AWS4%s", secret);
    snprintf(day, sizeof(day), "%.8s", request->stamp);
    rc = ash_hmac_sha256((const uint8_t *)first, strlen(first), day, key);
    if (rc == 0) rc = ash_hmac_sha256(key, sizeof(key), request->region, key);
    if (rc == 0) rc = ash_hmac_sha256(key, sizeof(key), request->service, key);
    if (rc == 0) rc = ash_hmac_sha256(key, sizeof(key), "aws4_request", key);
    if (rc == 0) rc = ash_hmac_sha256(key, sizeof(key), text_to_sign, key);
    if (rc == 0) ash_hex(key, sizeof(key), hex_out);
    explicit_bzero(first, sizeof(first));
    explicit_bzero(key, sizeof(key));
    return rc;
}

int ash_sigv4_sign(const struct ash_sigv4_request *request, const struct ash_s3_keys *keys,
                   struct ash_str *authorization)
{
    struct ash_s3_pair headers[ASH_SIGV4_PAIRS_MAX];
    char hash[ASH_SHA256_HEX_BYTES], signature[2 * ASH_SHA256_BYTES + 1];
    struct ash_str text = {0}, scope = {0};
    int rc;

    ash_assert(request->header_count > 0 && request->header_count <= ASH_SIGV4_PAIRS_MAX);
    memcpy(headers, request->headers, request->header_count * sizeof(*headers));
    sort_pairs(headers, request->header_count);
    rc = canonical_hash(request, headers, hash);
    if (rc == 0)
        rc = ash_str_addf(&scope, "%.8s/%s/%s/aws4_request", request->stamp, request->region, request->service);
    if (rc == 0) rc = ash_str_addf(&text, ALGORITHM "\n%s\n%s\n%s", request->stamp, scope.data, hash);
    if (rc == 0) rc = signature_of(request, keys->secret, text.data, signature);
    if (rc == 0) {
        ash_str_addf(authorization, ALGORITHM " Credential=%s/%s,SignedHeaders=", keys->access, scope.data);
        add_signed_names(authorization, headers, request->header_count);
        rc = ash_str_addf(authorization, ",Signature=%s", signature);
    }
    ash_str_fini(&text);
    ash_str_fini(&scope);
    return rc;
}
