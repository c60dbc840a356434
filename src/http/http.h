/* http - an HTTP server for handlers that take their time. libmicrohttpd reads and writes; a thread of ours accepts,
 * watches for clients that leave and keeps deadlines; worker threads run the handlers. A handler answers at once, later
 * from any thread, or with a stream that is pulled as fast as the client reads. */
#ifndef ASH_HTTP_HTTP_H
#define ASH_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "http/keys.h"

#define ASH_HTTP_TYPE_TEXT "text/plain; charset=utf-8"
#define ASH_HTTP_TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8" /* what Prometheus reads */

struct ash_http;          /* the server */
struct ash_http_exchange; /* one request and its response */

/* Answers an exchange: exactly one ash_http_respond or ash_http_stream, now or later (ash_http_exchange_get). On a
 * worker thread, or for quick routes on the thread that reads and writes: then it must not block. */
typedef void (*ash_http_handle_fn)(void *ctx, struct ash_http_exchange *exchange);

struct ash_http_route {
    const char *method, *path; /* GET serves HEAD too; a path may end in a star */
    ash_http_handle_fn handle;
    bool is_open;        /* needs no key */
    bool is_quick;       /* handled on the reading thread, also if all workers are busy and while the server drains; if
                          * open too, also beyond the limit of connections */
    bool is_inline;      /* handled on the reading thread too, but as other requests are: it may be answered later */
    bool needs_admin;    /* the admin key alone opens it */
    bool takes_requests; /* counts against the request limits of its key */
};

struct ash_http_opts {
    const char *host; /* an IPv4 or IPv6 address, or localhost */
    int port;         /* 0: any */
    size_t connections_max, body_bytes_max, workers;
    size_t slow_workers;              /* threads for deferred handlers; 0: there are none */
    size_t client_connections_max;    /* of one address; 0: three quarters of all, of this machine all */
    double header_seconds;            /* for the request's first byte to the end of its header */
    double body_seconds;              /* for its body */
    double idle_seconds;              /* between the requests of a connection */
    double stall_seconds;             /* without a byte that the client takes */
    const char *cert_file, *key_file; /* PEM; both or none */
    const char *const *origins;       /* pages of these origins may call ("*": all); none: those of this machine */
    size_t origin_count;
    const char *const
        *names; /* without keys on a loopback address: Host names next to those of this machine; "*": all */
    size_t name_count;
    bool logs_access;
    struct ash_keys *keys; /* borrowed */
    const struct ash_http_route *routes;
    size_t route_count;
    /* Fills the response of a request that this layer refuses; on any thread, at once (ash_http_respond). */
    void (*refuse)(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text);
    void *ctx; /* of refuse and of all handlers */
};

/* The server's defaults. */
struct ash_http_opts ash_http_defaults(void);

/* Listen and serve. opts is copied, its pointers are borrowed until close. Returns 0 or a negative errno with a
 * sentence. The caller owns *http_out. */
int ash_http_open(const struct ash_http_opts *opts, struct ash_http **http_out, struct ash_err *err);
/* The port it listens on. */
int ash_http_port(const struct ash_http *http);
/* From now on refuse new requests (503, Retry-After) but for quick routes, and wait until the others have their
 * answers, `seconds` at most. Returns 0 or -ETIMEDOUT. */
int ash_http_drain(struct ash_http *http, double seconds);
/* End every exchange that is left as if its client had gone, and stop all threads. Afterwards no handler runs;
 * responses that are still owed may be given, and are dropped. */
void ash_http_stop(struct ash_http *http);
/* Stop, and free. No response may be pending; exchanges that were kept live until they are put. NULL is a
 * no-op. */
void ash_http_close(struct ash_http *http);

struct ash_http_stats {
    size_t connections, exchanges; /* open now; exchanges without those of quick routes */
    uint64_t accepted, refused;    /* connections since the start; refused: beyond the limit */
    uint64_t deferred;             /* exchanges since the start */
};
/* Figures of now. Any thread. */
struct ash_http_stats ash_http_get_stats(struct ash_http *http);

/* ---- input of a handler; borrowed as long as the exchange is ----------------------------------------------------- */

/* "POST". */
const char *ash_http_method(const struct ash_http_exchange *exchange);
/* Without the query. */
const char *ash_http_path(const struct ash_http_exchange *exchange);
/* The whole body, NUL-terminated. */
const char *ash_http_body(const struct ash_http_exchange *exchange, size_t *size_out);
/* Free the body: it was read. */
void ash_http_drop_body(struct ash_http_exchange *exchange);
/* The value of a query parameter, or NULL. On the handler's call only, before it has responded. */
const char *ash_http_query(struct ash_http_exchange *exchange, const char *name);
/* The value of the request's header, or NULL. On the handler's call only, before it has responded. */
const char *ash_http_request_header(struct ash_http_exchange *exchange, const char *name);
/* Call see for every header of the request, in order, as often as it was sent. On the handler's call only, before it
 * has responded. Returns 0, or the first negative value of see. */
int ash_http_each_header(struct ash_http_exchange *exchange, int (*see)(void *ctx, const char *name, const char *value),
                         void *ctx);
/* The client's x-request-id, or one of ours. */
const char *ash_http_id(const struct ash_http_exchange *exchange);
/* The key that it came with; NULL where the server has none. */
struct ash_key *ash_http_key(const struct ash_http_exchange *exchange);
/* When its header was read, on the clock of ash_clock_ns. */
uint64_t ash_http_started_ns(const struct ash_http_exchange *exchange);

/* ---- answering; any thread --------------------------------------------------------------------------------------- */

/* Keep the exchange beyond the handler's call. */
void ash_http_exchange_get(struct ash_http_exchange *exchange);
/* Give it back. */
void ash_http_exchange_put(struct ash_http_exchange *exchange);
/* Add a header to the response, before responding. name is borrowed for good, value copied; NUL, CR and LF end it. */
void ash_http_add_header(struct ash_http_exchange *exchange, const char *name, const char *value);
/* Respond. Takes body's memory and leaves it empty. type is borrowed for good. */
void ash_http_respond(struct ash_http_exchange *exchange, unsigned status, const char *type, struct ash_str *body);
/* Respond with a page: `write` appends the document, whose scripts and styles carry the nonce. */
void ash_http_respond_page(struct ash_http_exchange *exchange, int (*write)(const char *nonce, struct ash_str *out));

/* Appends the available bytes to out. Returns 1 if more will come (then ash_http_wake signals them), 0 at the end,
 * negative to break the connection. On the thread that writes; must not block. */
typedef int (*ash_http_read_fn)(void *ctx, struct ash_str *out);
/* Respond with a stream. The exchange must be kept (get) until read has returned 0 or the client has gone. */
void ash_http_stream(struct ash_http_exchange *exchange, unsigned status, const char *type, ash_http_read_fn read,
                     void *ctx);
/* There is something for read to append. */
void ash_http_wake(struct ash_http_exchange *exchange);
/* Call gone once when the client leaves, or is dropped, before its response is complete; perhaps before this returns.
 * On any thread; must not block. */
void ash_http_on_gone(struct ash_http_exchange *exchange, void (*gone)(void *ctx), void *ctx);
/* Call end once when the server is done with the exchange: gone was called, or will never be, and read will not be
 * called again. Perhaps before this returns. On any thread; must not block. */
void ash_http_on_end(struct ash_http_exchange *exchange, void (*end)(void *ctx), void *ctx);
/* Has it gone? */
bool ash_http_is_gone(struct ash_http_exchange *exchange);
/* Run fn(ctx) on a worker thread: for work that is too long for the calling one. */
void ash_http_post(struct ash_http_exchange *exchange, void (*fn)(void *ctx), void *ctx);
/* Can the handler that runs be deferred? Not twice, and not without slow workers. */
bool ash_http_may_defer(const struct ash_http_exchange *exchange);
/* Run the exchange's handler again, from its start, on a slow worker: this call of it must return without a response.
 * Only if ash_http_may_defer. */
void ash_http_defer(struct ash_http_exchange *exchange);
/* For the access log: text (values as fields: "prompt_tokens=5") of at most a hundred bytes. */
void ash_http_note(struct ash_http_exchange *exchange, const char *text);

#endif
