/* Without libcurl at build time: other machines cannot be asked. */
#include "http/fetch.h"

#include <errno.h>

static int refuse(const char *url, struct ash_err *err)
{
    return ash_err_set(err, -ENOTSUP, "%s: this build has no libcurl: install libcurl4-openssl-dev and build it again",
                       url);
}

int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err)
{
    (void)token, (void)seconds, (void)max_bytes, (void)body;
    return refuse(url, err);
}

int ash_fetch_post(const char *url, const struct ash_str *json, double seconds, struct ash_str *body, long *status_out,
                   struct ash_err *err)
{
    (void)json, (void)seconds, (void)body, (void)status_out;
    return refuse(url, err);
}
