/* detached - exchanges without a connection: a handler called with a body from memory, its response in memory. For
 * fuzzing and for tests that need no socket. */
#ifndef ASH_HTTP_DETACHED_H
#define ASH_HTTP_DETACHED_H

#include "http/http.h"

/* Call the handler of a route with this body and its ctx, as the anonymous key, and append the response,
 * of a stream all of it, to out. The handler's response must be there when it returns; of a stream, all its parts.
 * Returns the status, or -ENOMEM, or -EAGAIN if a stream does not end. */
int ash_http_detached_call(const struct ash_http_route *route, void *ctx, struct ash_keys *keys, const char *body,
                           size_t size_bytes, struct ash_str *out);

#endif
