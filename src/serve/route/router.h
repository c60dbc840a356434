/* router - one address for many servers, of one model or of several: requests go to the replica that knows their
 * prompts, or has room, and move on when a server is lost. One thread talks to the replicas and never waits for one of
 * them; clients talk to the HTTP server, whose routes and context these are. */
#ifndef ASH_SERVE_ROUTE_ROUTER_H
#define ASH_SERVE_ROUTE_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include "http/http.h"
#include "serve/route/choose.h"
#include "serve/route/models.h"
#include "serve/route/target.h"

struct ash_router;

struct ash_router_opts {
    enum ash_route_policy policy;
    size_t index_blocks;           /* of prompts that are remembered, for each replica */
    size_t tries;                  /* of a request, on different replicas */
    double probe_seconds;          /* between two looks at a replica */
    double silence_seconds;        /* a replica that does not answer a look for so long is lost */
    double wait_seconds;           /* a request whose replica was lost waits so long for another */
    const char *replica_key;       /* sent to replicas instead of the client's key; NULL: that one is passed on */
    const char *replica_admin_key; /* sent with GET /kv_events; NULL: replica_key, or none */
    size_t apart_blocks;           /* a prompt with at least as many unknown blocks goes to a prefill server first */
    size_t answer_bytes_max;       /* of an answer that is not streamed */
    /* Several models: each target serves one of these, and requests wait for theirs to be loaded. Borrowed until close.
     * NULL: any replica may have any model. */
    struct ash_route_models *models;
    double load_seconds; /* a request waits so long for its model */
};

/* The program's defaults. */
struct ash_router_opts ash_router_defaults(void);
/* Start the thread, with no replica. opts is copied, its pointers are borrowed until close. */
int ash_router_open(const struct ash_router_opts *opts, struct ash_router **router_out, struct ash_err *err);
/* The server that uses the routes must be stopped, and close after this. NULL is a no-op. */
void ash_router_close(struct ash_router *router);
/* From now on these are the replicas, beside those that were added over HTTP. One that is not among them any more gets
 * no new request and goes when its last answer is done. Takes the list and leaves it empty. Any thread. Returns 0 or
 * -ENOMEM. */
int ash_router_set_targets(struct ash_router *router, struct ash_route_targets *targets);
/* End every request that is open: with an error, streams with an error event. Any thread. */
void ash_router_cancel(struct ash_router *router);
/* How many replicas may get requests now. Any thread. */
size_t ash_router_usable(struct ash_router *router);
/* The routes for ash_http_opts; their ctx is the router. Valid as long as it is open. */
const struct ash_http_route *ash_router_routes(struct ash_router *router, size_t *count_out);

#endif
