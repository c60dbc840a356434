/* fetch - GET of a small answer from an agent or a Prometheus, within a deadline. Plain HTTP. */
#ifndef ASH_OBSERVE_FETCH_H
#define ASH_OBSERVE_FETCH_H

#include "ashlar/err.h"
#include "base/str.h"

/* GET http://HOST:PORT/PATH; token NULL: none. The body of a 200 answer is appended to body, at most max_bytes of it.
 * Returns 0, -EINVAL (no such address), -EPROTO (another answer, with its status) or a negative errno. */
int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err);
/* The body of a whole HTTP answer (data, size_bytes), chunked or not, appended to body. Returns 0 or -EPROTO. */
int ash_fetch_parse(const char *data, size_t size_bytes, struct ash_str *body, struct ash_err *err);

#endif
