/* Prefill apart from decode: a long prompt goes to a prefill server first, whose answer says at once where its pages
 * will be; then the request goes to a decode server, with that, and reads them as they come. Whatever goes wrong, the
 * decode server computes the prompt. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/log.h"
#include "serve/route/route_priv.h"

ASH_COUNTER(prefilled_total, "ashlar_route_prefilled_total", "prompts that a prefill server took");
ASH_COUNTER(failed_total, "ashlar_route_prefill_failed_total",
            "prompts that no prefill server computed, as it was lost or refused: the decode server did");
ASH_COUNTER(whole_total, "ashlar_route_whole_total",
            "requests that went whole to a server, though there are prefill servers: short prompts, or known ones");

/* Does the request ask for an answer to one prompt? */
static bool has_answer(const struct ash_route_call *call)
{
    static const char *const ends[] = {"/completions", "/completion", "/messages",
                                       "/responses",   "/api/chat",   "/api/generate"};
    const char *path = ash_http_path(call->exchange);
    size_t bytes = strlen(path);

    if (strcmp(ash_http_method(call->exchange), "POST") != 0) return false;
    for (size_t i = 0; i < ASH_COUNT(ends); i++)
        if (bytes >= strlen(ends[i]) && strcmp(path + bytes - strlen(ends[i]), ends[i]) == 0) return true;
    return false;
}

/* Blocks of the prompt that no decode server has; 0 if there is no decode server. */
static size_t unknown_blocks(const struct ash_router *router, const struct ash_route_call *call)
{
    size_t most = 0, servers = 0;

    for (const struct ash_replica *replica = router->replicas; replica != NULL; replica = replica->next) {
        size_t known;

        if (replica->role != ASH_API_DECODE || !ash_replica_is_usable(replica)) continue;
        known = ash_replica_match(replica, &call->prompt.blocks);
        servers++;
        if (known > most) most = known;
    }
    return servers > 0 ? call->prompt.blocks.count - most : 0;
}

static bool has_prefill_server(const struct ash_router *router)
{
    const struct ash_replica *replica = router->replicas;

    while (replica != NULL && !(replica->role == ASH_API_PREFILL && ash_replica_is_usable(replica)))
        replica = replica->next;
    return replica != NULL;
}

/* Not this way: send the request whole. */
static void go_on(struct ash_route_call *call, bool has_failed)
{
    if (has_failed) ash_metric_add(&failed_total, 1);
    ash_route_call_detach(call);
    call->is_prefilling = false;
    call->handle(call); /* which forwards it */
}

void ash_route_prefill_lost(struct ash_route_call *call, int rc)
{
    ash_assert(call->is_prefilling);
    ash_log(ASH_LOG_WARN,
            "a prefill server was lost: id=%s why=\"%s\"; the prompt is computed where the answer is written",
            ash_http_id(call->exchange), strerror(-rc));
    go_on(call, true);
}

static int take_header(struct ash_route_conn *conn, const char *name, const char *value)
{
    if (strcasecmp(name, ASH_API_PAGES_HEADER) != 0) return 0;
    ash_str_clear(&conn->call->pages);
    return ash_str_adds(&conn->call->pages, value);
}

/* It has said where pages will be: the call goes on while it computes them. */
static void advance(struct ash_route_conn *conn)
{
    struct ash_route_call *call = conn->call;
    bool has_headers = conn->response.stage > ASH_RESPONSE_HEADER;

    if (call->prefill == conn || !has_headers || conn->response.status != 200 || call->pages.size_bytes == 0) return;
    ash_replica_remove_prompt(call->replica, call);
    call->prefill = conn;
    call->conn = NULL;
    call->replica = NULL;
    ash_metric_add(&prefilled_total, 1);
    go_on(call, false);
}

static void complete(struct ash_route_conn *conn)
{
    struct ash_route_call *call = conn->call;
    unsigned status = conn->response.status;
    bool is_done = status == 200 && call->pages.size_bytes > 0;

    if (call->prefill == conn) {
        (void)ash_route_call_leave_prefill(call);
        ash_route_conn_release(conn);
        return;
    }
    call->conn = NULL;
    if (!is_done) {
        ash_log(ASH_LOG_INFO, "the prefill server %s answered with %u: id=%s", conn->replica->target.name, status,
                ash_http_id(call->exchange));
        ash_str_clear(&call->pages);
    }
    ash_route_conn_release(conn);
    if (is_done) ash_metric_add(&prefilled_total, 1);
    go_on(call, !is_done && status != 400); /* 400: it will be said by the other server */
}

static void fail(struct ash_route_conn *conn, int rc, bool is_stale)
{
    struct ash_route_call *call = conn->call;
    struct ash_replica *replica = conn->replica;

    if (call->prefill == conn) { /* the decode server sees it too, and computes the rest */
        (void)ash_route_call_leave_prefill(call);
        ash_route_conn_close(conn);
        ash_metric_add(&failed_total, 1);
        ash_replica_suspect(replica, rc);
        return;
    }
    ash_route_conn_close(conn);
    ash_str_clear(&call->pages);
    if (is_stale) { /* that is no try */
        call->was_prefilled = false;
        go_on(call, false);
        return;
    }
    ash_replica_suspect(replica, rc);
    ash_route_prefill_lost(call, rc);
}

static const struct ash_route_conn_ops prefill_ops = {
    .take_header = take_header, .complete = complete, .advance = advance, .fail = fail};

/* Send it to this prefill server. Returns 0 or why that is not possible. */
static int send_to(struct ash_route_call *call, struct ash_replica *replica)
{
    int rc = 0;
    struct ash_route_conn *conn = ash_route_conn_get(replica, &prefill_ops, &rc);

    if (conn == NULL) return rc;
    call->replica = replica;
    call->conn = conn;
    conn->call = call;
    call->is_prefilling = true;
    replica->in_flight++;
    ash_metric_set(replica->in_flight_gauge, (double)replica->in_flight);
    rc = ash_route_call_write(call, &conn->out);
    if (rc < 0) {
        ash_route_call_detach(call);
        call->is_prefilling = false;
        return rc;
    }
    replica->requests++;
    ash_metric_add(replica->requests_total, 1);
    ash_replica_add_prompt(replica, call);
    ash_route_conn_start(conn);
    return 0;
}

bool ash_route_call_prefill(struct ash_route_call *call)
{
    struct ash_router *router = call->router;
    struct ash_replica *replica;
    int rc;

    if (call->was_prefilled || call->goes_to_all || router->opts.models != NULL) return false;
    if (!has_prefill_server(router) || !has_answer(call)) return false;
    call->was_prefilled = true;
    if (unknown_blocks(router, call) < router->opts.apart_blocks) {
        ash_metric_add(&whole_total, 1);
        return false;
    }
    replica = ash_replica_choose_prefill(router, call);
    if (replica == NULL) return false;
    rc = send_to(call, replica);
    if (rc == 0) return true;
    ash_log(ASH_LOG_WARN, "the prefill server %s cannot be reached: %s", replica->target.name, strerror(-rc));
    if (rc != -ENOMEM && rc != -EMFILE && rc != -ENFILE) ash_replica_suspect(replica, rc);
    ash_metric_add(&failed_total, 1);
    return false;
}
