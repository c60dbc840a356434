/* fetch - GET of a small answer from an agent or a Prometheus, within a deadline. */
#ifndef ASH_HTTP_FETCH_H
#define ASH_HTTP_FETCH_H

#include "ashlar/err.h"
#include "base/str.h"

/* GET a URL (http:// if it has no scheme); token NULL: none. The body of a 200 answer is appended to body, at most
 * max_bytes of it. Any thread. Returns 0, -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT, -EPROTO (another answer, with its
 * status), -ENOTSUP (no libcurl) or another negative errno. */
int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err);

#endif
