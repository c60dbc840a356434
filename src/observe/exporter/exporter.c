/* The metrics endpoint: two quick routes of the program's HTTP server. */
#include "observe/exporter/exporter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "http/http.h"
#include "observe/exporter/process.h"
#include "record/metrics.h"

#define CONNECTIONS_MAX 32
#define CONNECTION_SECONDS 10
#define BODY_BYTES_MAX 4096

struct ash_exporter {
    struct ash_keys_opts keys_opts;
    struct ash_keys *keys;
    struct ash_http *http;
};

static void send_text(struct ash_http_exchange *exchange, unsigned status, const char *text)
{
    struct ash_str body = {0};

    ash_str_adds(&body, text);
    ash_http_respond(exchange, status, ASH_HTTP_TYPE_TEXT, &body);
}

static void send_metrics(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_str body = {0};
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);

    (void)ctx;
    if (out != NULL) {
        ash_metrics_write(out);
        ash_process_write(out);
    }
    if (out == NULL || fclose(out) != 0) {
        free(text);
        send_text(exchange, 503, "no memory for the metrics\n");
        return;
    }
    body = (struct ash_str){.data = text, .size_bytes = size_bytes, .capacity_bytes = size_bytes + 1};
    ash_http_respond(exchange, 200, ASH_HTTP_TYPE_METRICS, &body);
}

static void send_health(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    send_text(exchange, 200, "ok\n");
}

static void send_refusal(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code,
                         const char *text)
{
    struct ash_str body = {0};

    (void)ctx, (void)code;
    ash_str_addf(&body, "%s; there are GET /metrics and GET /healthz\n", text);
    ash_http_respond(exchange, status, ASH_HTTP_TYPE_TEXT, &body);
}

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/metrics", .handle = send_metrics, .is_open = true, .is_quick = true},
    {.method = "GET", .path = "/healthz", .handle = send_health, .is_open = true, .is_quick = true},
};

static bool is_address(const char *text)
{
    struct in6_addr buf;

    return inet_pton(AF_INET, text, &buf) == 1 || inet_pton(AF_INET6, text, &buf) == 1;
}

static int start(struct ash_exporter *exporter, const char *address, int port, struct ash_err *err)
{
    struct ash_http_opts opts = ash_http_defaults();
    int rc = ash_keys_open(&exporter->keys_opts, &exporter->keys, err);

    if (rc < 0) return rc;
    opts.host = address;
    opts.port = port;
    opts.connections_max = CONNECTIONS_MAX;
    opts.body_bytes_max = BODY_BYTES_MAX;
    opts.workers = 1;
    opts.header_seconds = opts.body_seconds = opts.stall_seconds = CONNECTION_SECONDS;
    opts.logs_access = false;
    opts.keys = exporter->keys;
    opts.routes = routes;
    opts.route_count = ASH_COUNT(routes);
    opts.refuse = send_refusal;
    return ash_http_open(&opts, &exporter->http, err);
}

int ash_exporter_open(const char *address, int port, struct ash_exporter **exporter_out, struct ash_err *err)
{
    const char *text = address != NULL ? address : "127.0.0.1";
    struct ash_exporter *exporter = NULL;
    int rc;

    if (port < 0 || port > 65535) return ash_err_set(err, -EINVAL, "metrics: %d is not a port (0 to 65535)", port);
    if (!is_address(text)) return ash_err_set(err, -EINVAL, "metrics: '%s' is not an IPv4 or IPv6 address", text);
    exporter = calloc(1, sizeof(*exporter));
    if (exporter == NULL) return ash_err_set(err, -ENOMEM, "metrics: out of memory");
    rc = start(exporter, text, port, err);
    if (rc < 0) goto fail;
    *exporter_out = exporter;
    return 0;

fail:
    ash_exporter_close(exporter);
    return ash_err_set(err, rc, "metrics: cannot listen on %s port %d: %s", text, port,
                       rc == -EADDRINUSE ? "the port is in use, choose another or 0 for any" : strerror(-rc));
}

void ash_exporter_close(struct ash_exporter *exporter)
{
    if (exporter == NULL) return;
    ash_http_close(exporter->http);
    ash_keys_close(exporter->keys);
    free(exporter);
}

int ash_exporter_port(const struct ash_exporter *exporter)
{
    return ash_http_port(exporter->http);
}
