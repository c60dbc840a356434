/* A request as its replica gets it: the client's, with headers of the router's own. */
#include <string.h>

#include "serve/api/request.h"
#include "serve/route/route_priv.h"

/* For servers with a role. */
static int write_apart(const struct ash_route_call *call, struct ash_str *out)
{
    const char *key = call->router->opts.replica_admin_key;
    int rc;

    if (call->is_prefilling) return ash_str_adds(out, ASH_API_PREFILL_HEADER ": 1\r\n");
    if (call->pages.size_bytes == 0 || call->replica->role != ASH_API_DECODE) return 0;
    rc = ash_str_addf(out, ASH_API_PAGES_HEADER ": %s\r\n", call->pages.data);
    return rc == 0 && key != NULL ? ash_str_addf(out, ASH_API_PAGES_KEY_HEADER ": %s\r\n", key) : rc;
}

int ash_route_call_write(const struct ash_route_call *call, struct ash_str *out)
{
    const struct ash_replica *replica = call->replica;
    struct ash_http_exchange *exchange = call->exchange;
    size_t size_bytes = 0;
    const char *body = ash_http_body(exchange, &size_bytes), *method = ash_http_method(exchange);
    int rc = ash_str_addf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nVia: 1.1 %s\r\nx-request-id: %s\r\n",
                          strcmp(method, "HEAD") == 0 ? "GET" : method, replica->target.url.path,
                          ash_http_path(exchange), replica->target.host, call->router->via, ash_http_id(exchange));

    if (rc == 0)
        rc = ash_str_addf(out, ASH_API_RESUMABLE_HEADER ": %llu %lld\r\n", (unsigned long long)call->seed,
                          (long long)call->created_s);
    if (rc == 0 && strcmp(method, "POST") == 0) rc = ash_str_addf(out, "Content-Length: %zu\r\n", size_bytes);
    if (rc == 0) rc = ash_str_add(out, call->headers.data != NULL ? call->headers.data : "", call->headers.size_bytes);
    if (rc == 0) rc = write_apart(call, out);
    if (rc == 0) rc = ash_str_adds(out, "\r\n");
    return rc == 0 ? ash_str_add(out, body, size_bytes) : rc;
}
