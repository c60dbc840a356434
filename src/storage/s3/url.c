/* Reading s3://bucket/key and http(s)://host:port/path, refusing what no server would understand. */
#include "storage/s3/url.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define SCHEME "s3://"

bool ash_s3_url_is(const char *text)
{
    return strncmp(text, SCHEME, strlen(SCHEME)) == 0;
}

static bool is_bucket_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_';
}

bool ash_s3_bucket_fits_host(const char *bucket)
{
    size_t length = strlen(bucket);

    if (length < 3 || length > 63 || bucket[0] == '-' || bucket[length - 1] == '-') return false;
    for (; *bucket != '\0'; bucket++)
        if (!((*bucket >= 'a' && *bucket <= 'z') || (*bucket >= '0' && *bucket <= '9') || *bucket == '-')) return false;
    return true;
}

int ash_s3_key_check(const char *key, struct ash_err *err)
{
    size_t length = strlen(key);

    if (length == 0) return ash_err_set(err, -EINVAL, "the name of the object is missing after the bucket");
    if (length >= ASH_S3_KEY_BYTES)
        return ash_err_set(err, -EINVAL, "a key of %zu bytes is too long: S3 allows 1024 (%.60s...)", length, key);
    if (ash_utf8_valid_prefix(key, length) != length)
        return ash_err_set(err, -EINVAL, "a key must be UTF-8, and this one is not after byte %zu",
                           ash_utf8_valid_prefix(key, length));
    return 0;
}

int ash_s3_url_parse(const char *text, struct ash_s3_url *url_out, struct ash_err *err)
{
    const char *bucket = text + strlen(SCHEME), *key;
    size_t length;

    if (!ash_s3_url_is(text)) return ash_err_set(err, -EINVAL, "'%.200s' is not s3://bucket/key", text);
    length = strcspn(bucket, "/");
    if (length < 3 || length >= ASH_S3_BUCKET_BYTES || bucket[0] == '.')
        return ash_err_set(err, -EINVAL, "'%.200s': the bucket's name must have 3 to 255 characters", text);
    for (size_t i = 0; i < length; i++)
        if (!is_bucket_char(bucket[i]))
            return ash_err_set(err, -EINVAL, "'%.200s': a bucket's name has letters, digits and -._ only", text);
    key = bucket[length] == '/' ? bucket + length + 1 : bucket + length;
    if (key[0] != '\0') {
        int rc = ash_s3_key_check(key, err);

        if (rc < 0) return rc;
    }
    snprintf(url_out->bucket, sizeof(url_out->bucket), "%.*s", (int)length, bucket);
    snprintf(url_out->key, sizeof(url_out->key), "%s", key);
    return 0;
}

static bool is_host_char(char c)
{
    return is_bucket_char(c) || c == ':' || c == '[' || c == ']';
}

/* A path that needs no encoding, so that the signed path is the sent one. */
static bool is_plain_path(const char *path)
{
    for (; *path != '\0'; path++)
        if (!is_bucket_char(*path) && *path != '/' && *path != '~') return false;
    return true;
}

int ash_s3_endpoint_parse(const char *text, struct ash_s3_endpoint *endpoint_out, struct ash_err *err)
{
    bool is_https = strncmp(text, "https://", 8) == 0;
    const char *host = text + (is_https ? 8 : 7), *path;
    size_t length, path_length;

    if (!is_https && strncmp(text, "http://", 7) != 0)
        return ash_err_set(err, -EINVAL, "endpoint '%.200s' must begin with http:// or https://", text);
    length = strcspn(host, "/");
    path = host + length;
    path_length = strlen(path);
    while (path_length > 0 && path[path_length - 1] == '/')
        path_length--;
    if (length == 0 || length >= ASH_S3_HOST_BYTES || path_length >= ASH_S3_HOST_BYTES || !is_plain_path(path))
        return ash_err_set(err, -EINVAL, "endpoint '%.200s' must be scheme://host[:port][/path]", text);
    for (size_t i = 0; i < length; i++)
        if (!is_host_char(host[i]))
            return ash_err_set(err, -EINVAL, "endpoint '%.200s' must be scheme://host[:port][/path]", text);
    endpoint_out->is_https = is_https;
    snprintf(endpoint_out->host, sizeof(endpoint_out->host), "%.*s", (int)length, host);
    snprintf(endpoint_out->path, sizeof(endpoint_out->path), "%.*s", (int)path_length, path);
    return 0;
}
