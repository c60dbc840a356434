/* Opening a place by its address: the one file that knows every kind. */
#include "storage/tier/tier.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "storage/s3/url.h"
#include "storage/tier/tier_priv.h"

#define STRIPE "stripe:"
#define SHARED "shared:"

bool ash_tier_is_url(const char *text)
{
    return ash_s3_url_is(text);
}

int ash_tier_open(const char *url, const struct ash_s3_opts *s3, struct ash_tier **tier_out, struct ash_err *err)
{
    struct ash_s3_url parts;
    char prefix[ASH_TIER_KEY_BYTES + 1];
    size_t length;
    int rc;

    if (strncmp(url, STRIPE, strlen(STRIPE)) == 0) return ash_tier_stripe_open(url + strlen(STRIPE), tier_out, err);
    if (strncmp(url, SHARED, strlen(SHARED)) == 0) return ash_tier_dir_open(url + strlen(SHARED), true, tier_out, err);
    if (!ash_tier_is_url(url)) return ash_tier_dir_open(url, false, tier_out, err);
    rc = ash_s3_url_parse(url, &parts, err);
    if (rc < 0) return rc;
    length = strlen(parts.key);
    snprintf(prefix, sizeof(prefix), "%s%s", parts.key, length > 0 && parts.key[length - 1] != '/' ? "/" : "");
    return ash_tier_s3_open(parts.bucket, prefix, s3, tier_out, err);
}

/* The folder and the name of a file's path. */
static int open_file(const char *path, bool is_shared, struct ash_tier **tier_out, char *key_out, struct ash_err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    char folder[PATH_MAX];

    if (strlen(path) >= sizeof(folder)) return ash_err_set(err, -ENAMETOOLONG, "the path is too long: %.200s...", path);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return ash_err_set(err, -EINVAL, "'%.200s' is a folder: name a file", path);
    snprintf(folder, sizeof(folder), "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
    snprintf(key_out, ASH_TIER_KEY_BYTES, "%s", name);
    return ash_tier_dir_open(folder, is_shared, tier_out, err);
}

/* "/a,/b::key". */
static int open_striped(const char *text, struct ash_tier **tier_out, char *key_out, struct ash_err *err)
{
    const char *key = strstr(text, "::");
    char paths[PATH_MAX];

    if (key == NULL || (size_t)(key - text) >= sizeof(paths) || strlen(key + 2) >= ASH_TIER_KEY_BYTES)
        return ash_err_set(err, -EINVAL, "an object of a stripe is stripe:/a,/b::key, not '%.200s'", text);
    snprintf(paths, sizeof(paths), "%.*s", (int)(key - text), text);
    snprintf(key_out, ASH_TIER_KEY_BYTES, "%s", key + 2);
    return ash_tier_stripe_open(paths, tier_out, err);
}

int ash_tier_open_object(const char *url, const struct ash_s3_opts *s3, struct ash_tier **tier_out, char *key_out,
                         struct ash_err *err)
{
    struct ash_s3_url parts;
    int rc;

    if (strncmp(url, STRIPE, strlen(STRIPE)) == 0) return open_striped(url + strlen(STRIPE), tier_out, key_out, err);
    if (strncmp(url, SHARED, strlen(SHARED)) == 0) return open_file(url + strlen(SHARED), true, tier_out, key_out, err);
    if (!ash_tier_is_url(url)) return open_file(url, false, tier_out, key_out, err);
    rc = ash_s3_url_parse(url, &parts, err);
    if (rc < 0) return rc;
    if (parts.key[0] == '\0') return ash_err_set(err, -EINVAL, "'%.200s' is a bucket: name an object in it", url);
    snprintf(key_out, ASH_TIER_KEY_BYTES, "%s", parts.key);
    return ash_tier_s3_open(parts.bucket, "", s3, tier_out, err);
}
