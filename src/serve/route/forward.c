/* A request on its way: to a replica, to another one if that fails, and what comes back. A stream that broke is asked
 * for again, with the same seed; events that the client has got already are compared with the new ones, and dropped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "serve/api/request.h"
#include "serve/route/route_priv.h"

#define CHOICES_MAX 65536 /* more answers of one request are not repeated */

ASH_COUNTER(retried_total, "ashlar_route_retried_total", "requests that were sent to another replica before an answer");
ASH_COUNTER(continued_total, "ashlar_route_continued_total", "streams that another replica continued");

static const struct ash_route_conn_ops call_ops;

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Send it to this replica. */
static void send_to(struct ash_route_call *call, struct ash_replica *replica)
{
    int rc = 0;
    struct ash_route_conn *conn = ash_route_conn_get(replica, &call_ops, &rc);

    ash_assert(call->replica == NULL && call->conn == NULL && call->try_count < ASH_ROUTE_TRIES_MAX);
    call->replica = replica;
    call->tried[call->try_count++] = replica->id;
    replica->in_flight++;
    ash_metric_set(replica->in_flight_gauge, (double)replica->in_flight);
    if (conn == NULL && (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM)) { /* the replica is innocent */
        ash_route_call_refuse(call, 503, "out_of_descriptors",
                              "no connection to a replica: %s (--max-connections, ulimit -n)", strerror(-rc));
        return;
    }
    if (conn == NULL) {
        ash_replica_suspect(replica, rc);
        ash_route_call_lost(call, rc);
        return;
    }
    call->conn = conn;
    conn->call = call;
    if (ash_route_call_write(call, &conn->out) < 0) {
        ash_route_call_refuse(call, 503, "out_of_memory", "no memory for the request");
        return;
    }
    replica->requests++;
    ash_metric_add(replica->requests_total, 1);
    ash_replica_add_prompt(replica, call);
    ash_route_conn_start(conn);
}

/* There is no replica for it now: one may come back, if one was lost. */
static void wait_or_refuse(struct ash_route_call *call)
{
    struct ash_router *router = call->router;
    uint64_t now_ns = ash_clock_ns();

    if (call->model != ASH_ROUTE_NO_MODEL) {
        ash_route_call_await(call);
        return;
    }
    if (call->wait_end_ns == 0 && call->tries > 0)
        call->wait_end_ns = now_ns + (uint64_t)(router->opts.wait_seconds * 1e9);
    call->try_count = 0; /* those that it has tried may be well again */
    if (call->wait_end_ns > now_ns) return;
    if (router->opts.models != NULL)
        ash_route_call_refuse(call, 503, "no_model_loaded", "no model is loaded: name one (model=NAME) to load it");
    else if (router->replicas == NULL)
        ash_route_call_refuse(call, 503, "no_replica", "the router has no replicas: --to names them");
    else
        ash_route_call_refuse(call, 503, "no_replica", "no replica takes requests now: GET /replicas says why");
}

void ash_route_call_forward(struct ash_route_call *call)
{
    struct ash_replica *replica;

    ash_assert(!call->is_ended);
    if (call->has_been_here) {
        ash_route_call_refuse(call, 508, "loop_detected",
                              "this router is among its own replicas: --to must not name it");
        return;
    }
    if (call->router->opts.models != NULL && !ash_route_call_claim(call)) return;
    if (ash_route_call_prefill(call)) return;
    replica = ash_replica_choose(call->router, call);
    if (replica == NULL) {
        wait_or_refuse(call);
        return;
    }
    call->wait_end_ns = 0;
    call->is_repeating = call->seen_count > 0;
    call->repeats_frames = false;
    if (!call->is_repeating) call->has_frames = false;
    memset(call->cursors != NULL ? call->cursors : &(size_t){0}, 0, call->cursor_count * sizeof(*call->cursors));
    ash_route_call_forget_answer(call);
    send_to(call, replica);
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

/* Send it elsewhere. */
static void try_again(struct ash_route_call *call)
{
    const struct ash_router *router = call->router;
    bool is_stream = call->has_begun;

    ash_route_call_detach(call);
    call->tries++;
    if (call->tries >= router->opts.tries) {
        ash_route_call_refuse(call, 502, "replicas_failed", "%zu replicas failed to answer this request", call->tries);
        return;
    }
    ash_metric_add(is_stream ? &continued_total : &retried_total, 1);
    ash_log(ASH_LOG_INFO, "%s goes to another replica: id=%s events=%zu", is_stream ? "a stream" : "a request",
            ash_http_id(call->exchange), call->seen_count);
    ash_route_call_forward(call);
}

void ash_route_call_lost(struct ash_route_call *call, int rc)
{
    const char *name = call->replica != NULL ? call->replica->target.name : "";

    ash_assert(rc < 0 && !call->is_ended);
    if (call->is_prefilling) {
        ash_route_prefill_lost(call, rc);
        return;
    }
    if (rc == -EBADMSG)
        ash_route_call_refuse(call, 502, "answers_differ",
                              "the replica was lost, and another one (%s) does not give the same answer", name);
    else if (rc == -EFBIG)
        ash_route_call_refuse(call, 502, "answer_too_large", "the answer of %s is larger than the router takes", name);
    else if (rc == -ENOMEM)
        ash_route_call_refuse(call, 503, "out_of_memory", "no memory for the answer");
    else if (call->has_begun && !call->has_frames)
        ash_route_call_refuse(call, 502, "replica_lost", "the replica %s was lost while it answered: %s", name,
                              strerror(-rc));
    else
        try_again(call);
}

/* ---- what comes back --------------------------------------------------------------------------------------------- */

/* Headers that this server sends itself, or that are between it and the replica. */
static bool is_own_header(const char *name)
{
    static const char *const names[] = {"connection", "keep-alive",    "transfer-encoding",     "content-length",
                                        "date",       "cache-control", "x-accel-buffering",     "x-request-id",
                                        "vary",       "server",        "x-content-type-options"};

    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (strcasecmp(name, names[i]) == 0) return true;
    return strncasecmp(name, "access-control-", 15) == 0;
}

static int take_header(struct ash_route_conn *conn, const char *name, const char *value)
{
    struct ash_route_call *call = conn->call;
    size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    char *copy;

    if (call->is_repeating) {
        if (strcasecmp(name, ASH_API_FRAMES_HEADER) == 0) call->repeats_frames = true;
        return 0;
    }
    if (strcasecmp(name, ASH_API_FRAMES_HEADER) == 0) call->has_frames = true;
    if (call->has_frames && !call->is_from_router && strcasecmp(name, ASH_API_FRAMES_HEADER) == 0) return 0;
    if (strcasecmp(name, "content-type") == 0) {
        snprintf(call->type, sizeof(call->type), "%s", value);
        return 0;
    }
    if (is_own_header(name) || call->answer_header_count == ASH_ROUTE_HEADERS_MAX) return 0;
    copy = malloc(name_bytes + value_bytes);
    if (copy == NULL) return -ENOMEM;
    memcpy(copy, name, name_bytes);
    memcpy(copy + name_bytes, value, value_bytes);
    call->answer_headers[call->answer_header_count].name = copy;
    call->answer_headers[call->answer_header_count].value = copy + name_bytes;
    call->answer_header_count++;
    return 0;
}

/* Has the client this event? Returns 1, 0 (it is new) or -EBADMSG: it got another one. */
static int was_seen(struct ash_route_call *call, const struct ash_route_event *event)
{
    size_t *cursor;

    if (!call->repeats_frames) return -EBADMSG;
    if (event->choice >= call->cursor_count) return 0;
    cursor = &call->cursors[event->choice];
    while (*cursor < call->seen_count && call->seen[*cursor].choice != event->choice)
        ++*cursor;
    if (*cursor == call->seen_count) return 0;
    return call->seen[(*cursor)++].digest == event->digest ? 1 : -EBADMSG;
}

/* Note that the client gets it. Returns 0 or -ENOMEM. */
static int note_seen(struct ash_route_call *call, const struct ash_route_event *event)
{
    size_t cursors = call->cursor_count;

    if (!call->has_frames) return 0;
    if (event->choice >= CHOICES_MAX) {
        call->has_frames = false;
        return 0;
    }
    if (event->choice >= cursors) {
        size_t wanted = (size_t)event->choice + 1, *grown = realloc(call->cursors, wanted * sizeof(*grown));

        if (grown == NULL) return -ENOMEM;
        call->cursors = grown;
        call->cursor_count = wanted;
        for (size_t i = cursors; i < wanted; i++)
            grown[i] = call->seen_count;
    }
    if (ash_array_reserve(&call->seen, &call->seen_capacity, call->seen_count + 1, sizeof(*call->seen)) < 0)
        return -ENOMEM;
    call->seen[call->seen_count++] = (struct ash_route_seen){event->choice, event->digest};
    call->cursors[event->choice] = call->seen_count;
    return 0;
}

static int take_event(struct ash_route_call *call, const char *bytes, size_t size_bytes)
{
    struct ash_route_event event;
    int rc = 0;

    ash_route_event_read(bytes, size_bytes, &event);
    if (!event.has_data && call->is_repeating) return 0;
    if (event.usage.prompt_tokens > 0) call->usage = event.usage;
    if (event.is_shutdown && (call->has_frames || !call->has_begun)) return -EREMOTEIO;
    if (event.has_data && call->is_repeating) rc = was_seen(call, &event);
    if (rc != 0) return rc < 0 ? rc : 0;
    if (event.has_data) rc = note_seen(call, &event);
    if (rc < 0) return rc;
    call->status = 200;
    ash_route_call_begin_stream(call);
    return ash_route_call_pass(call, bytes, size_bytes, false);
}

/* Take all whole events. Returns their bytes, or a negative errno. */
static ssize_t take_events(struct ash_route_call *call, const char *bytes, size_t size_bytes)
{
    size_t used = 0;

    for (;;) {
        size_t event = ash_route_event_bytes(bytes + used, size_bytes - used);
        int rc = event > 0 ? take_event(call, bytes + used, event) : 0;

        if (rc < 0) return rc;
        if (event == 0) return (ssize_t)used;
        used += event;
    }
}

static int take_body(struct ash_route_conn *conn, const char *bytes, size_t size_bytes)
{
    struct ash_route_call *call = conn->call;
    const struct ash_response *response = &conn->response;
    bool is_stream = response->is_stream && response->status == 200;
    struct ash_str *body = &call->body;
    ssize_t used = 0;
    int rc;

    if (is_stream && body->size_bytes == 0) used = take_events(call, bytes, size_bytes);
    if (used < 0) return (int)used;
    if ((size_t)used == size_bytes) return 0;
    if (body->size_bytes + size_bytes > call->router->opts.answer_bytes_max) return -EFBIG;
    rc = ash_str_add(body, bytes + used, size_bytes - (size_t)used);
    if (rc < 0 || !is_stream || used > 0) return rc;
    used = take_events(call, body->data, body->size_bytes);
    if (used <= 0) return (int)used;
    body->size_bytes -= (size_t)used;
    memmove(body->data, body->data + used, body->size_bytes + 1);
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void count_tokens(struct ash_route_call *call)
{
    struct ash_replica *replica = call->replica;

    ash_assert(replica != NULL);
    replica->prompt_tokens += call->usage.prompt_tokens;
    replica->cached_tokens += call->usage.cached_tokens;
    ash_metric_add(replica->prompt_total, (double)call->usage.prompt_tokens);
    ash_metric_add(replica->cached_total, (double)call->usage.cached_tokens);
}

/* Has the client got everything that the replica repeated? */
static bool has_repeated_all(const struct ash_route_call *call)
{
    for (size_t i = 0; call->is_repeating && i < call->seen_count; i++)
        if (call->cursors[call->seen[i].choice] <= i) return false;
    return true;
}

static void end_stream(struct ash_route_call *call)
{
    if (!has_repeated_all(call)) {
        ash_route_call_lost(call, -EBADMSG);
        return;
    }
    count_tokens(call);
    ash_route_call_begin_stream(call);
    (void)ash_route_call_pass(call, call->body.data != NULL ? call->body.data : "", call->body.size_bytes, true);
    ash_route_call_end(call);
}

/* Does another replica perhaps answer where this one did not? */
static bool wants_another(const struct ash_route_call *call)
{
    if (call->tries + 1 >= call->router->opts.tries) return false;
    if (call->status == 503) return true;
    return call->status == 429 && call->body.data != NULL && strstr(call->body.data, "queue_full") != NULL;
}

static void end_answer(struct ash_route_call *call)
{
    struct ash_route_event event;
    bool is_all = call->goes_to_all && call->status == 200 && call->try_count < ASH_ROUTE_TRIES_MAX;

    if (wants_another(call) && (call->has_begun || ash_router_usable(call->router) > 1)) {
        if (call->status == 503) ash_replica_set_state(call->replica, ASH_REPLICA_BUSY, "it answered with 503");
        try_again(call);
        return;
    }
    if (call->has_begun) {
        ash_route_call_refuse(call, 502, "replica_lost", "the replica was lost, and another one answers with %u",
                              call->status);
        return;
    }
    if (call->status == 200 && call->body.data != NULL) {
        ash_route_event_read(call->body.data, call->body.size_bytes, &event);
        call->usage = event.usage;
        count_tokens(call);
    }
    if (is_all && ash_replica_choose(call->router, call) != NULL) {
        ash_route_call_detach(call);
        ash_route_call_forward(call);
        return;
    }
    ash_route_call_answer(call);
}

static void complete(struct ash_route_conn *conn)
{
    struct ash_route_call *call = conn->call;

    ash_assert(call->conn == conn);
    call->status = conn->response.status;
    call->is_stream = conn->response.is_stream;
    call->conn = NULL;
    ash_route_conn_release(conn);
    if (call->is_stream && call->status == 200)
        end_stream(call);
    else
        end_answer(call);
}

static void fail(struct ash_route_conn *conn, int rc, bool is_stale)
{
    struct ash_route_call *call = conn->call;
    struct ash_replica *replica = conn->replica;

    ash_route_conn_close(conn);
    if (is_stale) { /* that is no try */
        ash_assert(call->try_count > 0);
        call->try_count--;
        ash_route_call_detach(call);
        ash_route_call_forward(call);
        return;
    }
    if (rc != -EREMOTEIO && rc != -EBADMSG && rc != -ENOMEM) ash_replica_suspect(replica, rc);
    ash_route_call_lost(call, rc);
}

static const struct ash_route_conn_ops call_ops = {
    .take_header = take_header, .take_body = take_body, .complete = complete, .fail = fail};
