/* http_priv - the inside of the HTTP server: connections, exchanges, workers. */
#ifndef ASH_HTTP_HTTP_PRIV_H
#define ASH_HTTP_HTTP_PRIV_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include "http/http.h"

#define ASH_HTTP_HEADERS_MAX 24
#define ASH_HTTP_NOTE_BYTES 128
#define ASH_HTTP_ID_BYTES 65
#define ASH_HTTP_PATH_BYTES 128

/* ---- connections (connections.c, watch.c) ------------------------------------------------------------------------ */

/* Where a connection is, and by when it must have left that place. */
enum ash_http_phase {
    ASH_HTTP_HEADER,  /* its first request's header is read */
    ASH_HTTP_READING, /* a body is read */
    ASH_HTTP_WORKING, /* suspended, or about to be: the client waits for us, without a deadline */
    ASH_HTTP_SENDING, /* we wait for the client */
    ASH_HTTP_IDLE,    /* between requests */
};

/* One slot of the table of connections. */
struct ash_http_connection {
    int fd; /* -1: free */
    uint32_t generation;
    enum ash_http_phase phase;
    uint64_t since_ns, deadline_ns;        /* start of the phase; 0: no deadline */
    struct in6_addr client;                /* its address; IPv4 mapped */
    bool is_over_limit, was_cut, has_left; /* left: it closed its end */
    struct ash_http_exchange *exchange;    /* the one that is being answered, or NULL */
    uint32_t next_free;
};

/* All of them, and the thread that accepts and watches. */
struct ash_http_watch {
    pthread_mutex_t lock;
    struct ash_http_connection *slots;
    size_t slot_count;
    size_t accepted_count; /* handed to libmicrohttpd and not closed yet: at most slot_count */
    size_t used, cut;      /* slots; those of them that were cut, and will be free soon */
    uint32_t first_free;
    int listen_fd, epoll_fd, wake_fd;
    bool is_listening; /* the socket is in the epoll set */
    bool is_full;      /* accepting waits for a slot */
    uint64_t resume_accept_ns;
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_stopping;
    _Atomic uint64_t accepted, refused;
};

/* Reserve a slot for a connection that will be handed to libmicrohttpd. False: all are taken, and wake_fd signals a
 * free one. libmicrohttpd 0.9.75 hangs once its own limit is reached, so this one must come first. */
bool ash_http_slot_reserve(struct ash_http_watch *watch);
/* Give it back: libmicrohttpd did not take the connection. */
void ash_http_slot_unreserve(struct ash_http_watch *watch);
/* The value that epoll gives for a connection's socket. */
uint64_t ash_http_slot_tag(const struct ash_http_watch *watch, const struct ash_http_connection *connection);
/* Shut a connection's socket down: libmicrohttpd closes it. The lock is held. */
void ash_http_slot_cut(struct ash_http_watch *watch, struct ash_http_connection *connection);
/* Make the table. Returns 0 or -ENOMEM. */
int ash_http_slots_init(struct ash_http *http);
/* Make the table; the socket listens already. */
int ash_http_watch_init(struct ash_http *http, struct ash_err *err);
/* Start the thread; libmicrohttpd runs. */
int ash_http_watch_start(struct ash_http *http, struct ash_err *err);
/* Accept no more connections. */
void ash_http_watch_stop(struct ash_http *http);
/* Free the table; all connections must be closed. */
void ash_http_watch_fini(struct ash_http *http);
/* libmicrohttpd opened or closed a connection. */
void ash_http_watch_notify(void *ctx, struct MHD_Connection *connection, void **socket_ctx,
                           enum MHD_ConnectionNotificationCode code);
/* The record of an exchange's connection enters a phase, with a deadline of `seconds` (0: none). */
void ash_http_watch_enter(struct ash_http *http, struct ash_http_connection *connection, enum ash_http_phase phase,
                          double seconds);
/* From now on (NULL: no longer) the connection belongs to exchange. Returns whether the client has left already. */
bool ash_http_watch_bind(struct ash_http *http, struct ash_http_connection *connection,
                         struct ash_http_exchange *exchange);

/* Shut the socket of an exchange's connection down, if it is still the same one. */
void ash_http_watch_cut(struct ash_http *http, struct ash_http_exchange *exchange);

/* ---- workers (workers.c) ----------------------------------------------------------------------------------------- */

struct ash_http_job {
    void (*fn)(void *ctx);
    void *ctx;
};

/* A queue that many threads take from. Its room grows: there are at most a few jobs for every connection. */
struct ash_http_workers {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct ash_http_job *jobs; /* ring of capacity */
    size_t first, count, capacity;
    pthread_t *threads;
    size_t thread_count;
    bool is_stopping;
};

/* Start count threads. */
int ash_http_workers_init(struct ash_http_workers *workers, size_t count, struct ash_err *err);
/* Run a job. Returns 0, -ENOMEM or -ESHUTDOWN. */
int ash_http_workers_post(struct ash_http_workers *workers, void (*fn)(void *ctx), void *ctx);
/* Run queued functions and end the threads; post fails from now on. A zeroed struct is a no-op. */
void ash_http_workers_stop(struct ash_http_workers *workers);
/* Free it, stopped. A zeroed struct is a no-op. */
void ash_http_workers_fini(struct ash_http_workers *workers);

/* ---- the server -------------------------------------------------------------------------------------------------- */

struct ash_http {
    struct ash_http_opts opts;
    struct MHD_Daemon *daemon;
    struct ash_http_watch watch;
    struct ash_http_workers workers, slow_workers;
    char *cert, *key; /* PEM text */
    int port;
    uint64_t id_seed;
    _Atomic uint64_t next_id;
    _Atomic bool is_draining;
    _Atomic size_t exchanges; /* of routes that are not quick */
    _Atomic uint64_t deferred;
    pthread_mutex_t lock; /* for idle */
    pthread_cond_t idle;  /* an exchange ended */
};

/* ---- exchanges (exchange.c, respond.c, routes.c) ----------------------------------------------------------------- */

enum ash_http_state {
    ASH_HTTP_TAKING_BODY,
    ASH_HTTP_HANDLED, /* its handler was called, or it was refused; no response yet */
    ASH_HTTP_READY,   /* the response is there */
    ASH_HTTP_QUEUED,  /* libmicrohttpd has it */
};

struct ash_http_header {
    const char *name;
    char *value;
};

struct ash_http_exchange {
    struct ash_http *http;              /* NULL: it has no connection (detached.h) */
    const struct ash_http_route *route; /* NULL: refused */
    struct ash_http_connection *record;
    pthread_mutex_t lock;
    _Atomic int refs;
    /* under lock: */
    struct MHD_Connection *connection; /* NULL once libmicrohttpd is done with it */
    enum ash_http_state state;
    bool is_suspended, is_woken, is_gone, is_complete;
    bool is_whole; /* libmicrohttpd has the last byte: a client that leaves now has missed nothing */
    void (*gone)(void *ctx);
    void *gone_ctx;
    void (*end)(void *ctx);
    void *end_ctx;
    bool is_over;              /* libmicrohttpd is done with it */
    pthread_mutex_t gone_lock; /* held while gone runs: end waits for it */
    /* the request: */
    char method[16], path[ASH_HTTP_PATH_BYTES], id[ASH_HTTP_ID_BYTES], client[64];
    struct ash_str body;
    bool is_counted, must_close;
    bool is_deferred; /* its handler was sent to the slow workers */
    struct ash_key *key;
    uint64_t started_ns;
    unsigned refused_status; /* 0: not refused */
    const char *refused_code;
    char refused_text[256];
    /* the response: */
    unsigned status;
    const char *type;
    struct ash_http_header headers[ASH_HTTP_HEADERS_MAX];
    size_t header_count;
    struct ash_str out;
    size_t out_sent;
    uint64_t received_bytes, sent_bytes;
    ash_http_read_fn read;
    void *read_ctx;
    bool read_ended;
    char note[ASH_HTTP_NOTE_BYTES];
};

/* libmicrohttpd's callbacks. A request's header, a piece of its body, or the end of it. */
enum MHD_Result ash_http_on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                                    const char *version, const char *upload, size_t *upload_bytes, void **request);
/* The response was sent, or the connection broke. */
void ash_http_on_completed(void *ctx, struct MHD_Connection *connection, void **request,
                           enum MHD_RequestTerminationCode code);
/* The client of an exchange has gone (watch.c): notify its handler, and let libmicrohttpd close the connection. */
void ash_http_exchange_gone(struct ash_http_exchange *exchange);

/* The one call of end, after that of gone. */
void ash_http_exchange_end(struct ash_http_exchange *exchange);

/* routes.c: find the route and check key, limits, method and size. A refusal is in refused_*. */
void ash_http_admit(struct ash_http_exchange *exchange, struct MHD_Connection *connection);
/* routes.c: headers that let a page of another origin read the response. */
void ash_http_add_cors(struct ash_http_exchange *exchange, struct MHD_Connection *connection);
/* respond.c: hand the response, which is ready, to libmicrohttpd. */
enum MHD_Result ash_http_queue(struct ash_http_exchange *exchange, struct MHD_Connection *connection);
/* respond.c: suspend, with the lock held. The caller has seen under it that there is nothing to do. */
void ash_http_suspend(struct ash_http_exchange *exchange);
/* log.c: a line of the access log. */
void ash_http_log(struct ash_http_exchange *exchange, enum MHD_RequestTerminationCode code);

#endif
