/* route_priv - the inside of the router. Replicas, connections and calls belong to the router's thread; what others
 * may touch is atomic or under a lock. */
#ifndef ASH_SERVE_ROUTE_ROUTE_PRIV_H
#define ASH_SERVE_ROUTE_ROUTE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "base/json.h"
#include "base/str.h"
#include "record/metrics.h"
#include "serve/api/apart.h"
#include "serve/client/response.h"
#include "serve/route/event.h"
#include "serve/route/held.h"
#include "serve/route/index.h"
#include "serve/route/prompt.h"
#include "serve/route/router.h"

#define ASH_ROUTE_TRIES_MAX 64
#define ASH_ROUTE_HEADERS_MAX 16
#define ASH_ROUTE_READ_BYTES ((size_t)64 << 10)
#define ASH_ROUTE_OUT_BYTES_MAX ((size_t)1 << 20) /* that wait for a slow client: then its replica is not read */

/* ---- replicas (replica.c, probe.c) ------------------------------------------------------------------------------- */

enum ash_replica_state {
    ASH_REPLICA_NEW,  /* not seen yet */
    ASH_REPLICA_UP,   /* it answers */
    ASH_REPLICA_BUSY, /* it answers, but takes no requests: it loads, or shuts down */
    ASH_REPLICA_LOST,
};

struct ash_route_conn;
struct ash_route_call;

struct ash_replica {
    struct ash_router *router;
    struct ash_replica *next;
    uint32_t id; /* never used again */
    struct ash_route_target target;
    enum ash_replica_state state;
    bool is_listed;                    /* in the list of targets; else it was added over HTTP */
    bool is_draining;                  /* no new requests; it goes when the last one is done */
    bool is_held;                      /* no new requests, though it is listed: it was drained over HTTP */
    enum ash_api_role role, role_seen; /* as its last look says; as the present one does */
    bool asks_health;                  /* it has no /ready */
    size_t looks;                      /* since it came up */
    struct ash_route_conn *conns;      /* all */
    struct ash_route_conn *probe;      /* a look that is not answered yet */
    uint64_t probe_due_ns, probe_end_ns;
    size_t in_flight;
    uint64_t turn;
    uint64_t requests, errors, prompt_tokens, cached_tokens; /* since it was added */
    struct ash_route_index *index;                           /* prompts that it was sent */
    struct ash_route_conn *events;                           /* the stream of its cache's events, or NULL */
    struct ash_str events_part;                              /* the received part of an event */
    bool has_events, refuses_events;                         /* they come; it has none, or not for this router */
    uint64_t events_due_ns;                                  /* when it is asked for them next */
    struct ash_route_held held;                              /* blocks of prompts that it holds, by its events */
    struct ash_route_held computing;                         /* those of the requests that it is answering */
    json_t *models;                                          /* the list that it gives; NULL: it does not say */
    char why[128];                                           /* why it is not up */
    struct ash_metric *requests_total, *errors_total, *in_flight_gauge, *up_gauge, *prompt_total, *cached_total;
    struct ash_metric *events_gauge, *known_gauge;
};

/* May it get requests? */
static inline bool ash_replica_is_usable(const struct ash_replica *replica)
{
    return replica->state == ASH_REPLICA_UP && !replica->is_draining && !replica->is_held;
}

/* Add a replica. Returns it, or NULL without memory. */
struct ash_replica *ash_replica_add(struct ash_router *router, const struct ash_route_target *target, bool is_listed);
/* The one with this name, or NULL. */
struct ash_replica *ash_replica_find(struct ash_router *router, const char *name);
/* No new requests; it goes with its last one, or stays without any if it is on the list. */
void ash_replica_drain(struct ash_replica *replica);
/* Close its connections without a word to their calls, and free it. */
void ash_replica_free(struct ash_replica *replica);
/* Its state is this from now on; why is for people, NULL with ASH_REPLICA_UP. Lost: its requests move on. */
void ash_replica_set_state(struct ash_replica *replica, enum ash_replica_state state, const char *why);
/* The replica for a call, other than those it has tried; NULL: there is none now. */
struct ash_replica *ash_replica_choose(struct ash_router *router, struct ash_route_call *call);
/* The prefill server for a call; NULL: there is none now. */
struct ash_replica *ash_replica_choose_prefill(struct ash_router *router, struct ash_route_call *call);
/* "up", "lost", "draining": for people. */
const char *ash_replica_state_name(const struct ash_replica *replica);
/* Look at replicas whose time has come, give up those that are silent, free those that are drained. */
void ash_replicas_tick(struct ash_router *router, uint64_t now_ns);
/* Count a request that it lost, or a look that failed. */
void ash_replica_count_error(struct ash_replica *replica);
/* A request to it failed: no new ones until it answers a look, which is due now. */
void ash_replica_suspect(struct ash_replica *replica, int rc);

/* ---- what replicas hold (known.c, kv_events.c) ------------------------------------------------------------------- */

/* How many blocks of a prompt, from its first one on, the replica has or computes. */
size_t ash_replica_match(const struct ash_replica *replica, const struct ash_prompt_blocks *blocks);
/* How many blocks of prompts are known of it. */
size_t ash_replica_known_count(const struct ash_replica *replica);
/* It gets the call's prompt. */
void ash_replica_add_prompt(struct ash_replica *replica, struct ash_route_call *call);
/* It is done with the prompt: from now on its events alone count. */
void ash_replica_remove_prompt(struct ash_replica *replica, struct ash_route_call *call);
/* Its cache events come now, or no more. */
void ash_replica_set_known(struct ash_replica *replica, bool has_events);
/* Its cache may be empty: forget everything, and follow its events anew. */
void ash_replica_forget(struct ash_replica *replica);
/* kv_events.c: ask for its cache's events, if it is time. */
void ash_replica_follow(struct ash_replica *replica, uint64_t now_ns);

/* ---- connections to replicas (conn.c) ---------------------------------------------------------------------------- */

/* What the user of a connection does with what comes over it. */
struct ash_route_conn_ops {
    /* A header or bytes of the body: 0, or a negative errno that ends the connection. NULL: headers are not wanted, the
     * body is collected in the response. */
    int (*take_header)(struct ash_route_conn *conn, const char *name, const char *value);
    int (*take_body)(struct ash_route_conn *conn, const char *bytes, size_t size_bytes);
    /* The response is complete: release or close the connection. */
    void (*complete)(struct ash_route_conn *conn);
    /* Bytes came, and more will. NULL: nothing is to be done then. It may close the connection. */
    void (*advance)(struct ash_route_conn *conn);
    /* It broke: close it. Stale: nothing came, and the replica may just have closed it as idle. */
    void (*fail)(struct ash_route_conn *conn, int rc, bool is_stale);
};

struct ash_route_conn {
    struct ash_replica *replica;
    struct ash_route_conn *prev, *next; /* of the replica's */
    struct ash_route_conn *next_dead;
    int fd;                               /* -1: closed, and freed after the present events */
    const struct ash_route_conn_ops *ops; /* NULL: it idles */
    struct ash_route_call *call;          /* NULL: it is a look, or idles */
    bool was_used;
    bool has_hung_up;
    bool was_idle; /* the present request came on a connection that had idled: the replica may just have closed it */
    struct ash_str out;
    size_t sent_bytes;
    struct ash_response response;
};

/* An idle connection to the replica, or a new one, for a request that is put into conn->out. NULL with *rc_out: it
 * cannot be opened. */
struct ash_route_conn *ash_route_conn_get(struct ash_replica *replica, const struct ash_route_conn_ops *ops,
                                          int *rc_out);
/* Put a GET request into conn->out, with this key or none. Returns 0 or -ENOMEM. */
int ash_route_conn_write_get(struct ash_route_conn *conn, const char *path, const char *key);
/* Its response is complete: it idles, or is closed if the replica wants that. */
void ash_route_conn_release(struct ash_route_conn *conn);
/* Send its request, as much as the socket takes. Failures are reported like later ones. */
void ash_route_conn_start(struct ash_route_conn *conn);
/* Read all received bytes; also when a slow client is ready for more. */
void ash_route_conn_read(struct ash_route_conn *conn);
/* An event of its socket; hung up: the replica sends nothing more. */
void ash_route_conn_handle(struct ash_route_conn *conn, bool has_hung_up);
/* Close it. */
void ash_route_conn_close(struct ash_route_conn *conn);
/* Free the closed ones: no event refers to them any more. */
void ash_route_conns_bury(struct ash_router *router);

/* ---- calls (call.c, forward.c, answer.c) ------------------------------------------------------------------------- */

struct ash_route_header {
    char *name, *value;
};

/* What a client has got of a stream: one event. */
struct ash_route_seen {
    uint64_t choice, digest;
};

struct ash_route_call {
    struct ash_router *router;
    struct ash_http_exchange *exchange;
    _Atomic int refs;                            /* the router's and the exchange's */
    void (*handle)(struct ash_route_call *call); /* on the router's thread */
    /* under the router's lock: */
    struct ash_route_call *next_inbox, *next_taken;
    bool is_in_inbox;
    _Atomic bool is_gone, wants_more;
    /* the request: */
    struct ash_str headers; /* to pass on, each with its line end */
    struct ash_route_prompt prompt;
    uint64_t seed;
    int64_t created_s;
    bool is_from_router; /* which has given seed and time */
    bool has_been_here;  /* it comes back: the router is among its own replicas */
    bool goes_to_all;    /* every replica gets it, one after the other */
    /* with several models: which one, and how it is used; the failures of its server when the call began to wait */
    size_t model;
    enum ash_route_model_use use;
    uint64_t failures;
    /* the router's thread: */
    bool is_listed, is_ended;
    struct ash_route_call *prev, *next; /* of all that are not ended */
    struct ash_replica *replica;        /* that answers it */
    struct ash_route_conn *conn;
    uint32_t tried[ASH_ROUTE_TRIES_MAX];
    size_t try_count;                  /* of tried: the replicas that do not get it again */
    size_t tries;                      /* that failed */
    uint64_t wait_end_ns;              /* 0: it does not wait for a replica */
    size_t known_blocks;               /* of its prompt, by the replica */
    size_t computing_blocks;           /* of its prompt, that count as the replica's */
    bool is_prefilling, was_prefilled; /* a prefill server computes its prompt; was asked to, or need not be */
    struct ash_route_conn *prefill; /* on which a prefill server says when it is done, while another one has the call */
    struct ash_str pages;           /* where its prompt's pages are, as a header says it; empty: not known */
    /* the response so far: */
    unsigned status;
    struct ash_route_header answer_headers[ASH_ROUTE_HEADERS_MAX];
    size_t answer_header_count;
    bool is_stream;
    bool has_frames, repeats_frames; /* the replica has an event per token: another one can repeat it; it does too */
    char type[128];
    struct ash_str body; /* of an answer that is no stream, or a part of an event */
    bool has_begun;      /* the client has got something */
    struct ash_route_seen *seen;
    size_t seen_count, seen_capacity;
    size_t *cursors; /* while another replica repeats the stream: how many of seen it has repeated, for each choice */
    size_t cursor_count;
    bool is_repeating;
    struct ash_route_usage usage;
    /* under lock, with the thread that writes: */
    pthread_mutex_t lock;
    struct ash_str out;
    bool has_ended_out, is_throttled;
};

/* Open a call for an exchange and hand it to the router's thread, which runs handle. On a handler's call. */
void ash_route_call_post(struct ash_router *router, struct ash_http_exchange *exchange,
                         void (*handle)(struct ash_route_call *call));
/* forward.c: send it to a replica: the first time, and again. */
void ash_route_call_forward(struct ash_route_call *call);
/* write.c: the request as its replica gets it. Returns 0 or -ENOMEM. */
int ash_route_call_write(const struct ash_route_call *call, struct ash_str *out);
/* apart.c: send it to a prefill server first, if that pays. Returns whether it was sent; it is forwarded again when its
 * prompt is computed, or will not be. */
bool ash_route_call_prefill(struct ash_route_call *call);
/* apart.c: the prefill server that has it was lost. */
void ash_route_prefill_lost(struct ash_route_call *call, int rc);
/* forward.c: its connection broke (rc), or a hook ended it: repeat it elsewhere, or say why not. */
void ash_route_call_lost(struct ash_route_call *call, int rc);
/* answer.c: answer with an error, or end the stream with one, and end the call. */
void ash_route_call_refuse(struct ash_route_call *call, unsigned status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* answer.c: answer with the body and headers that came from the replica, and end the call. */
void ash_route_call_answer(struct ash_route_call *call);
/* answer.c: answer with JSON, whose reference it takes, and end the call. */
void ash_route_call_respond(struct ash_route_call *call, json_t *json);
/* answer.c: begin the stream, if it has not begun. */
void ash_route_call_begin_stream(struct ash_route_call *call);
/* answer.c: pass bytes on; is_last: nothing follows. Returns 0 or -ENOMEM. */
int ash_route_call_pass(struct ash_route_call *call, const char *bytes, size_t size_bytes, bool is_last);
/* call.c: it is over for the router: its replica is free of it. */
void ash_route_call_end(struct ash_route_call *call);
/* call.c: give one of its references back. */
void ash_route_call_put(struct ash_route_call *call);
/* call.c: the prefill server that is at its prompt, while another server has it, is free of it: it is done, lost, or no
 * longer wanted. Returns the connection to it, to be released or closed; NULL: there is none. */
struct ash_route_conn *ash_route_call_leave_prefill(struct ash_route_call *call);
/* call.c: detach it from its replica and connection, which is closed. */
void ash_route_call_detach(struct ash_route_call *call);
/* call.c: forget the answer of a replica. */
void ash_route_call_forget_answer(struct ash_route_call *call);

/* call_model.c: find its model and have it loaded. Returns true if it may be sent now; else it waits, or was
 * refused. */
bool ash_route_call_claim(struct ash_route_call *call);
/* call_model.c: no replica of its model takes it now: it waits for one, or has waited long enough. */
void ash_route_call_await(struct ash_route_call *call);
/* call_model.c: the model that it names; else it was refused, and ASH_ROUTE_NO_MODEL. */
size_t ash_route_call_find_model(struct ash_route_call *call);

/* ---- the router (router.c, state.c, admin.c) -------------------------------------------------------------------- */

struct ash_router {
    struct ash_router_opts opts;
    char via[32];          /* its name in Via headers */
    uint64_t replica_salt; /* of prompts, with has_replica_salt: all go to the replicas with one key */
    bool has_replica_salt;
    struct ash_http_route *routes;
    size_t route_count;
    pthread_t thread;
    bool has_thread;
    int epoll_fd, wake_fd;
    pthread_mutex_t lock; /* guards what follows */
    struct ash_route_call *inbox, **inbox_end;
    struct ash_route_targets targets; /* new ones */
    bool has_targets, is_stopping, cancels;
    _Atomic size_t usable;
    /* the thread's: */
    struct ash_replica *replicas;
    uint32_t next_id;
    uint64_t turn;
    struct ash_route_call *calls;
    bool has_news;    /* calls that wait may find a replica now */
    uint64_t changes; /* of the models that it has seen */
    struct ash_route_conn *dead;
    char *bytes; /* of ASH_ROUTE_READ_BYTES */
};

/* Wake the thread. Any thread. */
void ash_router_wake(struct ash_router *router);
/* Have the thread look at a call. Any thread. */
void ash_router_post(struct ash_router *router, struct ash_route_call *call);
/* Count the usable replicas again; calls that wait are tried soon. */
void ash_router_recount(struct ash_router *router);
/* admin.c: GET /replicas. */
void ash_route_list_replicas(struct ash_route_call *call);
/* admin.c: POST /replicas: {"add": URL}, {"drain": URL}. */
void ash_route_change_replicas(struct ash_route_call *call);
/* admin.c: GET /v1/models: the union of what replicas have. */
void ash_route_list_models(struct ash_route_call *call);
/* admin.c: GET /metrics. */
void ash_route_show_metrics(struct ash_route_call *call);
/* models_list.c: GET /v1/models of several models. */
void ash_route_list_all_models(struct ash_route_call *call);
/* models_list.c: GET /v1/models/NAME of several models. */
void ash_route_show_model(struct ash_route_call *call);
/* models_list.c: GET /api/tags of several models. */
void ash_route_list_tags(struct ash_route_call *call);
/* models_list.c: GET /api/ps of several models. */
void ash_route_list_running(struct ash_route_call *call);
/* models_list.c: POST /models/load. */
void ash_route_load_model(struct ash_route_call *call);
/* models_list.c: POST /models/unload. */
void ash_route_unload_model(struct ash_route_call *call);
/* routes.c: make the table of routes. Returns 0 or -ENOMEM. */
int ash_route_make_routes(struct ash_router *router);

#endif
