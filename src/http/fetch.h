/* fetch - small answers of other machines within a deadline: of an agent, a Prometheus, a model's server. */
#ifndef ASH_HTTP_FETCH_H
#define ASH_HTTP_FETCH_H

#include "ashlar/err.h"
#include "base/str.h"

/* GET a URL (http:// if it has no scheme); token NULL: none. The body of a 200 answer is appended to body, at most
 * max_bytes of it. Any thread. Returns 0, -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT, -EPROTO (another answer, with its
 * status), -ENOTSUP (no libcurl) or another negative errno. */
int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err);
/* POST a JSON text. The body of an answer, whatever its status, is appended to body; more than 64 MiB are an error. Any
 * thread. Returns 0 with the status, or as ash_fetch. */
int ash_fetch_post(const char *url, const struct ash_str *json, double seconds, struct ash_str *body, long *status_out,
                   struct ash_err *err);

#endif
