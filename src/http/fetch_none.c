/* Without libcurl at build time: other machines cannot be asked. */
#include "http/fetch.h"

#include <errno.h>

int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err)
{
    (void)token, (void)seconds, (void)max_bytes, (void)body;
    return ash_err_set(err, -ENOTSUP, "%s: this build has no libcurl: install libcurl4-openssl-dev and build it again",
                       url);
}
