/* The metrics endpoint: libmicrohttpd with one thread, on a socket that we bind ourselves so that a refusal has its
 * exact cause. */
#include "observe/exporter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/metrics.h"
#include "observe/process.h"

#define CONNECTIONS_MAX 32
#define CONNECTION_TIMEOUT_S 10
#define BACKLOG 16
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define TEXT_TYPE "text/plain; charset=utf-8"

struct ash_exporter {
    struct MHD_Daemon *daemon;
    int socket; /* -1 once the daemon owns it */
    int port;
};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned status, const char *type,
                                     struct MHD_Response *response)
{
    enum MHD_Result result;

    if (response == NULL) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return send_response(
        connection, status, TEXT_TYPE,
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result send_metrics(struct MHD_Connection *connection)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);
    struct MHD_Response *response = NULL;

    if (out == NULL) return MHD_NO;
    ash_metrics_write(out);
    ash_process_write(out);
    if (fclose(out) != 0) {
        free(text);
        return MHD_NO;
    }
    response = MHD_create_response_from_buffer(size_bytes, text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) free(text);
    return send_response(connection, MHD_HTTP_OK, METRICS_TYPE, response);
}

static enum MHD_Result answer_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                                      const char *version, const char *upload, size_t *upload_bytes, void **request)
{
    (void)ctx, (void)version, (void)upload, (void)upload_bytes, (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is served here\n");
    if (strcmp(url, "/metrics") == 0) return send_metrics(connection);
    if (strcmp(url, "/healthz") == 0) return send_text(connection, MHD_HTTP_OK, "ok\n");
    return send_text(connection, MHD_HTTP_NOT_FOUND, "not found: there are /metrics and /healthz\n");
}

/* ---- the listening socket ---------------------------------------------------------------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int parse_address(const char *text, int port, union address *address_out, socklen_t *bytes_out)
{
    union address address = {0};

    if (inet_pton(AF_INET, text, &address.v4.sin_addr) == 1) {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons((uint16_t)port);
        *bytes_out = sizeof(address.v4);
    } else if (inet_pton(AF_INET6, text, &address.v6.sin6_addr) == 1) {
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons((uint16_t)port);
        *bytes_out = sizeof(address.v6);
    } else {
        return -EINVAL;
    }
    *address_out = address;
    return 0;
}

static int listen_on(struct ash_exporter *exporter, const union address *wanted, socklen_t wanted_bytes)
{
    union address bound = {0};
    socklen_t bound_bytes = sizeof(bound);
    int one = 1;

    exporter->socket = socket(wanted->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (exporter->socket < 0) return -errno;
    if (setsockopt(exporter->socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0) return -errno;
    if (bind(exporter->socket, &wanted->any, wanted_bytes) < 0) return -errno;
    if (listen(exporter->socket, BACKLOG) < 0) return -errno;
    if (getsockname(exporter->socket, &bound.any, &bound_bytes) < 0) return -errno;
    exporter->port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return 0;
}

static int start_daemon(struct ash_exporter *exporter)
{
    sigset_t all, before;

    /* Signals are for the main thread: the server's thread, which inherits this mask, must not take them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    exporter->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, answer_request,
                                        NULL, MHD_OPTION_LISTEN_SOCKET, exporter->socket, MHD_OPTION_CONNECTION_LIMIT,
                                        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                                        (unsigned)CONNECTION_TIMEOUT_S, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (exporter->daemon == NULL) return -EIO;
    exporter->socket = -1;
    return 0;
}

int ash_exporter_open(const char *address, int port, struct ash_exporter **exporter_out, struct ash_err *err)
{
    const char *text = address != NULL ? address : "127.0.0.1";
    struct ash_exporter *exporter = NULL;
    union address wanted;
    socklen_t wanted_bytes = 0;
    int rc;

    if (port < 0 || port > 65535) return ash_err_set(err, -EINVAL, "metrics: %d is not a port (0 to 65535)", port);
    if (parse_address(text, port, &wanted, &wanted_bytes) < 0)
        return ash_err_set(err, -EINVAL, "metrics: '%s' is not an IPv4 or IPv6 address", text);
    exporter = calloc(1, sizeof(*exporter));
    if (exporter == NULL) return ash_err_set(err, -ENOMEM, "metrics: out of memory");
    exporter->socket = -1;
    rc = listen_on(exporter, &wanted, wanted_bytes);
    if (rc < 0) goto fail;
    rc = start_daemon(exporter);
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
    if (exporter->daemon != NULL) MHD_stop_daemon(exporter->daemon);
    if (exporter->socket >= 0) close(exporter->socket);
    free(exporter);
}

int ash_exporter_port(const struct ash_exporter *exporter)
{
    return exporter->port;
}
