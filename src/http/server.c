/* The server: a socket that we bind ourselves, libmicrohttpd with one thread for reading and writing, our thread that
 * accepts and watches, and workers. */
#include "http/http_priv.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/thread.h"

#define PEM_BYTES_MAX ((size_t)1 << 20)
#define CONNECTION_BYTES ((size_t)32 << 10) /* libmicrohttpd's memory of one: header and send buffer */
#define CLOSE_SECONDS 10.0

struct ash_http_opts ash_http_defaults(void)
{
    return (struct ash_http_opts){.host = "127.0.0.1",
                                  .port = 8000,
                                  .connections_max = 1024,
                                  .body_bytes_max = (size_t)64 << 20,
                                  .workers = 2,
                                  .header_seconds = 20,
                                  .body_seconds = 60,
                                  .idle_seconds = 75,
                                  .stall_seconds = 60,
                                  .logs_access = true};
}

static void log_mhd(void *ctx, const char *fmt, va_list args)
{
    char line[512];

    (void)ctx;
    vsnprintf(line, sizeof(line), fmt, args);
    line[strcspn(line, "\n")] = '\0';
    ash_log(ASH_LOG_DEBUG, "libmicrohttpd: %s", line);
}

static int read_pem(const char *path, char **text_out, struct ash_err *err)
{
    size_t size_bytes = 0;

    return ash_file_read(path, PEM_BYTES_MAX, text_out, &size_bytes, err);
}

static int load_tls(struct ash_http *http, struct ash_err *err)
{
    int rc;

    if (http->opts.cert_file == NULL && http->opts.key_file == NULL) return 0;
    if (http->opts.cert_file == NULL || http->opts.key_file == NULL)
        return ash_err_set(err, -EINVAL, "TLS needs both --ssl-certfile and --ssl-keyfile");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return ash_err_set(err, -ENOTSUP, "this libmicrohttpd was built without TLS");
    rc = read_pem(http->opts.cert_file, &http->cert, err);
    return rc < 0 ? rc : read_pem(http->opts.key_file, &http->key, err);
}

static int start_daemon(struct ash_http *http, struct ash_err *err)
{
    bool has_tls = http->cert != NULL;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET |
                     MHD_USE_ERROR_LOG | (has_tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, http->cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, http->key},
                                   {MHD_OPTION_END, 0, NULL}};
    /* Our deadlines come first; what libmicrohttpd itself lost sight of ends here. */
    unsigned backstop = (unsigned)(2 * http->opts.idle_seconds + 2 * http->opts.stall_seconds) + 1;
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    sigset_t all, before;

    sigfillset(&all); /* signals are for the main thread: libmicrohttpd's inherits this mask */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, ash_http_on_request, http, MHD_OPTION_EXTERNAL_LOGGER, log_mhd, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, ash_http_on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, ash_http_watch_notify,
        http, MHD_OPTION_CONNECTION_LIMIT, (unsigned)INT_MAX, MHD_OPTION_CONNECTION_TIMEOUT, backstop,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_ARRAY, has_tls ? tls : none, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (http->daemon != NULL) return 0;
    return ash_err_set(err, -EIO,
                       has_tls ? "cannot start the server: are %s and %s a PEM certificate and its key?"
                               : "cannot start the server%.0s%.0s",
                       http->opts.cert_file, http->opts.key_file);
}

static int listen_at(struct ash_http *http, struct ash_err *err)
{
    int fd = ash_socket_listen(http->opts.host, http->opts.port, err);

    if (fd == -EADDRINUSE)
        return ash_err_set(err, fd, "port %d is in use: choose another with --port, or 0 for any", http->opts.port);
    if (fd < 0) return fd;
    http->watch.listen_fd = fd;
    http->port = ash_socket_port(fd);
    return 0;
}

static int start(struct ash_http *http, struct ash_err *err)
{
    int rc = listen_at(http, err);

    if (rc < 0) return rc;
    rc = load_tls(http, err);
    if (rc < 0) return rc;
    rc = ash_http_workers_init(&http->workers, http->opts.workers, err);
    if (rc == 0 && http->opts.slow_workers > 0)
        rc = ash_http_workers_init(&http->slow_workers, http->opts.slow_workers, err);
    if (rc < 0) return rc;
    rc = ash_http_watch_init(http, err);
    if (rc < 0) return rc;
    rc = start_daemon(http, err);
    return rc < 0 ? rc : ash_http_watch_start(http, err);
}

int ash_http_open(const struct ash_http_opts *opts, struct ash_http **http_out, struct ash_err *err)
{
    struct ash_http *http = calloc(1, sizeof(*http));
    int rc;

    if (http == NULL) return ash_err_set(err, -ENOMEM, "no memory for the server");
    http->opts = *opts;
    http->watch.listen_fd = http->watch.epoll_fd = http->watch.wake_fd = -1;
    pthread_mutex_init(&http->lock, NULL);
    pthread_mutex_init(&http->watch.lock, NULL);
    ash_cond_init(&http->idle);
    if (getrandom(&http->id_seed, sizeof(http->id_seed), 0) < 0) http->id_seed = ash_clock_ns();
    rc = start(http, err);
    if (rc < 0) goto fail;
    *http_out = http;
    return 0;

fail:
    ash_http_close(http);
    return rc;
}

int ash_http_port(const struct ash_http *http)
{
    return http->port;
}

/* Wait until no exchange is left. */
static int wait_idle(struct ash_http *http, double seconds)
{
    struct timespec deadline = ash_cond_deadline((uint64_t)(seconds * 1e9));
    int rc = 0;

    pthread_mutex_lock(&http->lock);
    while (atomic_load(&http->exchanges) > 0 && rc == 0)
        rc = pthread_cond_timedwait(&http->idle, &http->lock, &deadline);
    rc = atomic_load(&http->exchanges) > 0 ? -ETIMEDOUT : 0;
    pthread_mutex_unlock(&http->lock);
    return rc;
}

int ash_http_drain(struct ash_http *http, double seconds)
{
    atomic_store(&http->is_draining, true);
    return wait_idle(http, seconds);
}

/* Every exchange loses its client. */
static void end_exchanges(struct ash_http *http)
{
    struct ash_http_watch *watch = &http->watch;

    for (size_t i = 0; i < watch->slot_count && watch->slots != NULL; i++) {
        struct ash_http_exchange *exchange;

        pthread_mutex_lock(&watch->lock);
        exchange = watch->slots[i].fd >= 0 ? watch->slots[i].exchange : NULL;
        if (exchange != NULL) ash_http_exchange_get(exchange);
        pthread_mutex_unlock(&watch->lock);
        if (exchange == NULL) continue;
        ash_http_exchange_gone(exchange);
        ash_http_exchange_put(exchange);
    }
}

void ash_http_stop(struct ash_http *http)
{
    uint64_t end_ns = ash_deadline_in(CLOSE_SECONDS);

    atomic_store(&http->is_draining, true);
    ash_http_watch_stop(http);
    if (http->daemon != NULL) {
        do
            end_exchanges(http); /* libmicrohttpd must not be stopped while a connection is suspended */
        while (wait_idle(http, 0.05) < 0 && ash_clock_ns() < end_ns);
        MHD_stop_daemon(http->daemon);
        http->daemon = NULL;
    }
    ash_http_workers_stop(&http->slow_workers);
    ash_http_workers_stop(&http->workers);
}

void ash_http_close(struct ash_http *http)
{
    if (http == NULL) return;
    ash_http_stop(http);
    ash_http_workers_fini(&http->slow_workers);
    ash_http_workers_fini(&http->workers);
    ash_http_watch_fini(http);
    free(http->cert);
    if (http->key != NULL) explicit_bzero(http->key, strlen(http->key));
    free(http->key);
    pthread_cond_destroy(&http->idle);
    pthread_mutex_destroy(&http->lock);
    pthread_mutex_destroy(&http->watch.lock);
    free(http);
}

struct ash_http_stats ash_http_get_stats(struct ash_http *http)
{
    struct ash_http_stats stats = {.exchanges = atomic_load(&http->exchanges),
                                   .deferred = atomic_load(&http->deferred),
                                   .accepted = atomic_load(&http->watch.accepted),
                                   .refused = atomic_load(&http->watch.refused)};

    pthread_mutex_lock(&http->watch.lock);
    stats.connections = http->watch.used;
    pthread_mutex_unlock(&http->watch.lock);
    return stats;
}
