/* Looks at replicas: GET /ready, or /health of servers that have no /ready, and the list of their models when they come
 * up. A look is a request like others, on a connection that may be used again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/route/route_priv.h"

#define LOADING_SECONDS 0.02 /* between two looks at a server that requests have started: they wait for it */
#define MODELS_LOOKS 64      /* the list of models is read again after this many probes */

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

/* Send a look. */
static void look(struct ash_replica *replica, const char *path, const struct ash_route_conn_ops *ops)
{
    int rc = 0;
    struct ash_route_conn *conn = ash_route_conn_get(replica, ops, &rc);

    replica->probe_end_ns = ash_clock_ns() + ns_of(replica->router->opts.silence_seconds);
    if (conn == NULL && (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM)) return; /* the next look may work */
    if (conn == NULL) {
        ash_replica_set_state(replica, ASH_REPLICA_LOST, strerror(-rc));
        return;
    }
    replica->probe = conn;
    replica->role_seen = ASH_API_BOTH;
    if (ash_route_conn_write_get(conn, path, replica->router->opts.replica_key) < 0) {
        ash_route_conn_close(conn);
        return;
    }
    ash_route_conn_start(conn);
}

/* The list of models that came, if it is one. */
static void take_models(struct ash_replica *replica, const struct ash_response *response)
{
    struct ash_err err;
    json_t *json = NULL, *data;

    if (response->status != 200 || ash_json_parse(response->body.data != NULL ? response->body.data : "",
                                                  response->body.size_bytes, "models", &json, &err) < 0)
        return;
    data = json_object_get(json, "data");
    if (json_is_array(data)) {
        json_decref(replica->models);
        replica->models = json_incref(data);
    }
    json_decref(json);
}

/* What a look says of the replica. Returns whether the list of its models is wanted. */
static bool judge(struct ash_replica *replica, unsigned status)
{
    char why[64];

    if (status == 404 && !replica->asks_health) {
        replica->asks_health = true;
        replica->probe_due_ns = 0;
        return false;
    }
    if ((status >= 200 && status < 300) || status == 404) { /* without either route it is there, at least */
        ash_replica_set_state(replica, ASH_REPLICA_UP, NULL);
        return replica->looks++ % MODELS_LOOKS == 0;
    }
    snprintf(why, sizeof(why), "it answers %s with %u", replica->asks_health ? "/health" : "/ready", status);
    ash_replica_set_state(replica, ASH_REPLICA_BUSY, why);
    replica->looks = 0;
    return false;
}

/* A look failed. */
static void fail(struct ash_route_conn *conn, int rc, bool is_stale)
{
    struct ash_replica *replica = conn->replica;

    replica->probe = NULL;
    ash_route_conn_close(conn);
    if (is_stale) {
        replica->probe_due_ns = 0;
        return;
    }
    replica->looks = 0;
    ash_replica_set_state(replica, ASH_REPLICA_LOST, strerror(-rc));
}

static void complete_models(struct ash_route_conn *conn)
{
    conn->replica->probe = NULL;
    take_models(conn->replica, &conn->response);
    ash_route_conn_release(conn);
}

/* Its role, if it says one. */
static int take_role(struct ash_route_conn *conn, const char *name, const char *value)
{
    struct ash_replica *replica = conn->replica;

    if (strcasecmp(name, ASH_API_ROLE_HEADER) != 0) return 0;
    for (int role = 0; ash_api_roles[role] != NULL; role++)
        if (strcmp(value, ash_api_roles[role]) == 0) replica->role_seen = (enum ash_api_role)role;
    return 0;
}

static void complete(struct ash_route_conn *conn)
{
    static const struct ash_route_conn_ops models_ops = {.complete = complete_models, .fail = fail};
    struct ash_replica *replica = conn->replica;
    unsigned status = conn->response.status;

    replica->probe = NULL;
    ash_route_conn_release(conn);
    if (status == 200) replica->role = replica->role_seen;
    if (judge(replica, status)) look(replica, "/v1/models", &models_ops);
}

static const struct ash_route_conn_ops look_ops = {.take_header = take_role, .complete = complete, .fail = fail};

/* ---- losses ------------------------------------------------------------------------------------------------------ */

/* Everything that it was answering moves on. */
static void move_calls(struct ash_replica *replica)
{
    struct ash_route_call *call = replica->router->calls;

    while (call != NULL) { /* a call that is lost may end, which takes it out of the list: begin again */
        if (call->prefill != NULL && call->prefill->replica == replica)
            ash_route_conn_close(ash_route_call_leave_prefill(call));
        if (call->replica != replica) {
            call = call->next;
            continue;
        }
        ash_route_call_lost(call, -ETIMEDOUT);
        call = replica->router->calls;
    }
    while (replica->conns != NULL)
        ash_route_conn_close(replica->conns);
}

/* It has not answered a look in time. */
static void lose_silent(struct ash_replica *replica)
{
    char why[96];

    snprintf(why, sizeof(why), "it has not answered for %g s", replica->router->opts.silence_seconds);
    ash_replica_count_error(replica);
    ash_replica_set_state(replica, ASH_REPLICA_LOST, why);
    move_calls(replica);
}

static double seconds_between(const struct ash_replica *replica)
{
    const struct ash_router_opts *opts = &replica->router->opts;

    return opts->models != NULL && replica->state != ASH_REPLICA_UP ? LOADING_SECONDS : opts->probe_seconds;
}

static void tick(struct ash_replica *replica, uint64_t now_ns)
{
    if (replica->probe != NULL && now_ns > replica->probe_end_ns) {
        lose_silent(replica);
        return;
    }
    ash_replica_follow(replica, now_ns);
    if (replica->probe != NULL || now_ns < replica->probe_due_ns) return;
    replica->probe_due_ns = now_ns + ns_of(seconds_between(replica));
    look(replica, replica->asks_health ? "/health" : "/ready", &look_ops);
}

void ash_replicas_tick(struct ash_router *router, uint64_t now_ns)
{
    struct ash_replica *replica = router->replicas, *next;

    for (; replica != NULL; replica = next) {
        next = replica->next;
        if (replica->is_draining && replica->in_flight == 0) {
            ash_log(ASH_LOG_INFO, "replica %s is gone", replica->target.name);
            ash_replica_free(replica);
        } else {
            tick(replica, now_ns);
        }
    }
}
