/* The tier of a bucket in a build without libcurl, OpenSSL or expat: it cannot be opened, and the error has the
 * remedy. */
#include <errno.h>

#include "storage/tier/tier_priv.h"

static const struct ash_opt s3_opts_list[] = {
    {"endpoint", ASH_OPT_STRING, offsetof(struct ash_s3_opts, endpoint), NULL, "not in this build", 0, 0, NULL},
};

const struct ash_opt_table ash_s3_table = {"s3", "S3 server", s3_opts_list, 1};

int ash_tier_s3_open(const char *bucket, const char *prefix, const struct ash_s3_opts *opts, struct ash_tier **tier_out,
                     struct ash_err *err)
{
    (void)bucket;
    (void)prefix;
    (void)opts;
    (void)tier_out;
    return ash_err_set(err, -ENOTSUP,
                       "this program was built without S3: install libcurl4-openssl-dev, libssl-dev and libexpat1-dev, "
                       "and build it again");
}
