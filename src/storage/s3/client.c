/* A client: which server, which style of address, which keys. Nothing is sent before the first request. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "storage/s3/s3_priv.h"

static const char *const addressing_names[] = {"auto", "path", "host", NULL};
enum { ADDRESS_AUTO, ADDRESS_PATH, ADDRESS_HOST };

static const struct ash_opt s3_opts_list[] = {
    {"endpoint", ASH_OPT_STRING, offsetof(struct ash_s3_opts, endpoint), NULL,
     "the server's address, http(s)://host[:port] (AWS where neither this, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL nor "
     "the profile names one)",
     0, 0, NULL},
    {"region", ASH_OPT_STRING, offsetof(struct ash_s3_opts, region), NULL,
     "the bucket's region (else AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1)", 0, 0, NULL},
    {"profile", ASH_OPT_STRING, offsetof(struct ash_s3_opts, profile), NULL,
     "the profile of ~/.aws/credentials and ~/.aws/config that has the keys (else AWS_PROFILE)", 0, 0, NULL},
    {"ca_file", ASH_OPT_STRING, offsetof(struct ash_s3_opts, ca_file), NULL,
     "a file of certificate authorities to trust (else AWS_CA_BUNDLE, the profile's, the system's)", 0, 0, NULL},
    {"addressing", ASH_OPT_CHOICE, offsetof(struct ash_s3_opts, addressing), "auto",
     "the bucket in the path or in the host's name; auto: host for AWS, path for other servers", 0, 0,
     addressing_names},
    {"connections", ASH_OPT_INT, offsetof(struct ash_s3_opts, connections), "8", "ranges or parts moved at a time", 1,
     256, NULL},
    {"part_bytes", ASH_OPT_INT, offsetof(struct ash_s3_opts, part_bytes), "8388608",
     "bytes of a part or a range (S3 wants at least 5 MiB for parts)", 5 << 20, 1 << 30, NULL},
    {"retry_s", ASH_OPT_DOUBLE, offsetof(struct ash_s3_opts, retry_s), "60",
     "seconds that a request is tried again for, when the server fails", 0, 86400, NULL},
};

const struct ash_opt_table ash_s3_table = {"s3", "S3 server", s3_opts_list, ASH_COUNT(s3_opts_list)};

/* The first of these that is set. */
static const char *first_of(const char *a, const char *b, const char *c, const char *d)
{
    if (a != NULL && a[0] != '\0') return a;
    if (b != NULL && b[0] != '\0') return b;
    return c != NULL && c[0] != '\0' ? c : d;
}

static int set_address(struct ash_s3 *s3, const struct ash_s3_profile *profile, struct ash_err *err)
{
    const char *variable = first_of(ash_env_get("AWS_ENDPOINT_URL_S3"), ash_env_get("AWS_ENDPOINT_URL"), NULL, NULL);
    const char *given = first_of(s3->opts.endpoint, variable, profile->endpoint, "");
    int style = s3->opts.addressing;
    char aws[ASH_S3_SETTING_BYTES + 64];

    if (style == ADDRESS_AUTO && strcmp(profile->addressing, "path") == 0) style = ADDRESS_PATH;
    if (style == ADDRESS_AUTO && strcmp(profile->addressing, "virtual") == 0) style = ADDRESS_HOST;
    if (style == ADDRESS_AUTO)
        style = given[0] == '\0' && ash_s3_bucket_fits_host(s3->bucket) ? ADDRESS_HOST : ADDRESS_PATH;
    if (style == ADDRESS_HOST && !ash_s3_bucket_fits_host(s3->bucket))
        return ash_err_set(err, -EINVAL, "bucket '%s' cannot be part of a host's name: set s3.addressing=path",
                           s3->bucket);
    s3->is_host_style = style == ADDRESS_HOST;
    snprintf(aws, sizeof(aws), "https://s3.%s.amazonaws.com", s3->region);
    return ash_s3_endpoint_parse(given[0] != '\0' ? given : aws, &s3->endpoint, err);
}

static int configure(struct ash_s3 *s3, struct ash_err *err)
{
    struct ash_s3_profile *profile = calloc(1, sizeof(*profile));
    const char *region, *ca_file;
    int rc;

    if (profile == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_s3_keys_find(s3->opts.profile, profile, err);
    if (rc < 0) goto fail;
    region = first_of(ash_env_get("AWS_REGION"), ash_env_get("AWS_DEFAULT_REGION"), profile->region, "us-east-1");
    snprintf(s3->region, sizeof(s3->region), "%s", first_of(s3->opts.region, region, NULL, NULL));
    ca_file = first_of(s3->opts.ca_file, ash_env_get("AWS_CA_BUNDLE"), profile->ca_file, "");
    snprintf(s3->ca_file, sizeof(s3->ca_file), "%s", ca_file);
    if (ca_file[0] != '\0' && access(ca_file, R_OK) < 0) {
        rc =
            ash_err_set(err, -errno, "cannot read the certificate authorities in %.300s: %s", ca_file, strerror(errno));
        goto fail;
    }
    s3->keys = profile->keys;
    s3->keys_read_ns = ash_clock_ns();
    rc = set_address(s3, profile, err);
fail:
    explicit_bzero(profile, sizeof(*profile));
    free(profile);
    return rc;
}

int ash_s3_open(const char *bucket, const struct ash_s3_opts *opts, struct ash_s3 **s3_out, struct ash_err *err)
{
    struct ash_s3 *s3 = calloc(1, sizeof(*s3));
    int rc;

    if (s3 == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    ash_assert(opts->connections > 0 && opts->part_bytes > 0);
    s3->opts = *opts;
    snprintf(s3->bucket, sizeof(s3->bucket), "%s", bucket);
    rc = ash_curl_get(&s3->curl, err);
    if (rc == 0) rc = configure(s3, err);
    if (rc < 0) goto fail;
    s3->jitter = ash_clock_ns() ^ (uint64_t)getpid() << 32;
    s3->multi = s3->curl->multi_init();
    rc = -ENOMEM;
    if (s3->multi == NULL) goto fail;
    s3->curl->multi_setopt(s3->multi, CURLMOPT_MAXCONNECTS, (long)opts->connections + 1);
    *s3_out = s3;
    return 0;
fail:
    ash_s3_close(s3);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
}

void ash_s3_close(struct ash_s3 *s3)
{
    if (s3 == NULL) return;
    while (s3->calls != NULL)
        ash_s3_call_fini(s3, s3->calls);
    if (s3->multi != NULL) s3->curl->multi_cleanup(s3->multi);
    explicit_bzero(&s3->keys, sizeof(s3->keys));
    free(s3);
}
