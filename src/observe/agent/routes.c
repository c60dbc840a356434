/* The agent's routes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "observe/agent/agent_priv.h"
#include "observe/agent/parts.h"
#include "observe/exporter/process.h"
#include "observe/page/page.h"
#include "observe/page/recent.h"
#include "observe/page/servers.h"
#include "observe/ranks/rank_steps.h"

#define CONNECTIONS_MAX 600
#define STEPS_SHOWN 256
#define TYPE_JSON "application/json"

static void send_json(struct ash_http_exchange *exchange, json_t *json)
{
    struct ash_str body = {0};
    int rc = json != NULL ? ash_json_add_text(json, &body) : -ENOMEM;

    json_decref(json);
    if (rc < 0) ash_str_clear(&body);
    ash_http_add_header(exchange, "Cache-Control", "no-store");
    ash_http_respond(exchange, rc == 0 ? 200 : 503, TYPE_JSON, &body);
}

static void add_own(struct ash_str *out)
{
    size_t size_bytes = 0;
    char *text = NULL;
    FILE *file = open_memstream(&text, &size_bytes);

    if (file == NULL) return;
    ash_process_write(file);
    if (fclose(file) == 0) ash_str_add(out, text, size_bytes);
    free(text);
}

static void send_metrics(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_str body = {0};
    int rc = ash_agent_scrape(ctx, &body);

    if (rc == 0) add_own(&body);
    if (rc < 0) ash_str_clear(&body);
    ash_http_respond(exchange, rc == 0 ? 200 : 503, ASH_HTTP_TYPE_METRICS, &body);
}

static json_t *verdict_json(struct ash_agent *agent)
{
    json_t *json;

    pthread_mutex_lock(&agent->lock);
    json = ash_node_state_json(&agent->state);
    if (json != NULL) {
        json_object_set_new(json, "node", json_string(agent->opts.node));
        if (!agent->is_log_read) json_object_set_new(json, "kernel_log", json_string(agent->log_error));
    }
    pthread_mutex_unlock(&agent->lock);
    return json;
}

static void send_verdict(void *ctx, struct ash_http_exchange *exchange)
{
    send_json(exchange, verdict_json(ctx));
}

/* Data of the page: this node and the processes on it; with ?recent=1 those that run, and a little longer. */
static void send_board(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_agent *agent = ctx;
    json_t *nodes = json_array(), *ranks = json_array(), *servers = json_array();
    char pages[ASH_FOLDER_ID_BYTES] = "";

    json_array_append_new(nodes, verdict_json(agent));
    if (agent->opts.source.pages != NULL) {
        ash_rank_steps_json(agent->opts.source.pages, STEPS_SHOWN, ranks);
        ash_servers_json(agent->opts.source.pages, servers);
        ash_folder_id(agent->opts.source.pages, pages);
    }
    if (ash_http_query(exchange, "recent") != NULL) {
        ash_recent_keep(ranks, ash_clock_wall_s());
        ash_recent_keep(servers, ash_clock_wall_s());
    }
    send_json(exchange, json_pack("{s:o, s:o, s:o, s:[], s:s}", "nodes", nodes, "ranks", ranks, "servers", servers,
                                  "runs", "pages", pages));
}

/* Parts of this node; the page requests one node at a time. */
static void send_parts(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_agent *agent = ctx;
    struct ash_str text = {0};
    json_t *parts = NULL;

    if (ash_sources_scrape(agent->sources, &text) == 0 && text.data != NULL) {
        pthread_mutex_lock(&agent->lock);
        parts = ash_parts_json(text.data, text.size_bytes, &agent->state);
        pthread_mutex_unlock(&agent->lock);
    }
    ash_str_fini(&text);
    send_json(exchange,
              json_pack("{s:s, s:o}", "node", agent->opts.node, "parts", parts != NULL ? parts : json_array()));
}

static void send_health(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_str body = {0};

    (void)ctx;
    ash_str_adds(&body, "ok\n");
    ash_http_respond(exchange, 200, ASH_HTTP_TYPE_TEXT, &body);
}

/* Clear the node: by an operator, or after a check that passed. */
static void take_clear(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_agent *agent = ctx;
    struct ash_str body = {0};
    uint64_t one = 1;

    atomic_store(&agent->wants_clear, true);
    if (write(agent->wake_fd, &one, sizeof(one)) < 0) ash_log(ASH_LOG_DEBUG, "the judge is awake");
    ash_str_adds(&body, "the node's findings are cleared\n");
    ash_http_respond(exchange, 202, ASH_HTTP_TYPE_TEXT, &body);
}

static void send_refusal(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code,
                         const char *text)
{
    struct ash_str body = {0};

    (void)ctx;
    ash_str_addf(&body, "%s: %s\n", code, text);
    ash_http_respond(exchange, status, ASH_HTTP_TYPE_TEXT, &body);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

struct ash_listener {
    struct ash_agent *agent;
    struct ash_http_exchange *exchange;
    uint64_t seen; /* changes */
    bool has_begun;
    struct ash_listener *next;
};

static int read_events(void *ctx, struct ash_str *out)
{
    struct ash_listener *listener = ctx;
    struct ash_agent *agent = listener->agent;
    json_t *json;
    char *text;
    uint64_t changes;

    pthread_mutex_lock(&agent->lock);
    changes = agent->changes;
    pthread_mutex_unlock(&agent->lock);
    if (listener->has_begun && listener->seen == changes) return 1;
    listener->has_begun = true;
    listener->seen = changes;
    json = verdict_json(agent);
    text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text != NULL) ash_str_addf(out, "event: verdict\ndata: %s\n\n", text);
    free(text);
    return text != NULL ? 1 : -ENOMEM;
}

/* The server is done with it. */
static void end_listener(void *ctx)
{
    struct ash_listener *listener = ctx, **link;
    struct ash_agent *agent = listener->agent;

    pthread_mutex_lock(&agent->lock);
    for (link = &agent->listeners; *link != NULL && *link != listener; link = &(*link)->next)
        ;
    if (*link == listener) *link = listener->next;
    pthread_mutex_unlock(&agent->lock);
    ash_http_exchange_put(listener->exchange);
    free(listener);
}

static void send_events(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_agent *agent = ctx;
    struct ash_listener *listener = calloc(1, sizeof(*listener));

    if (listener == NULL) {
        send_refusal(ctx, exchange, 503, "out_of_memory", "no memory for another listener");
        return;
    }
    *listener = (struct ash_listener){.agent = agent, .exchange = exchange};
    ash_http_exchange_get(exchange);
    pthread_mutex_lock(&agent->lock);
    listener->next = agent->listeners;
    agent->listeners = listener;
    pthread_mutex_unlock(&agent->lock);
    ash_http_stream(exchange, 200, "text/event-stream", read_events, listener);
    ash_http_on_end(exchange, end_listener, listener);
}

void ash_agent_tell(struct ash_agent *agent)
{
    for (struct ash_listener *listener = agent->listeners; listener != NULL; listener = listener->next)
        ash_http_wake(listener->exchange);
}

void ash_agent_drop_listeners(struct ash_agent *agent)
{
    ash_assert(agent->listeners == NULL); /* a stopped server has ended every exchange */
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/metrics", .handle = send_metrics},
    {.method = "GET", .path = "/v1/verdict", .handle = send_verdict},
    {.method = "GET", .path = "/v1/board", .handle = send_board},
    {.method = "GET", .path = "/v1/parts", .handle = send_parts},
    {.method = "GET", .path = "/v1/events", .handle = send_events},
    {.method = "POST", .path = "/v1/clear", .handle = take_clear, .needs_admin = true},
    {.method = "GET", .path = "/healthz", .handle = send_health, .is_open = true, .is_quick = true},
    {.method = "GET", .path = "/", .handle = ash_board_page_respond, .is_open = true, .is_quick = true},
};

int ash_agent_serve(struct ash_agent *agent, struct ash_err *err)
{
    struct ash_http_opts opts = ash_http_defaults();
    int rc;

    agent->keys_opts = (struct ash_keys_opts){
        .keys = agent->opts.tokens, .key_count = agent->opts.token_count, .admin_key = agent->opts.admin_token};
    rc = ash_keys_open(&agent->keys_opts, &agent->keys, err);
    if (rc < 0) return rc;
    opts.host = agent->opts.host;
    opts.port = agent->opts.port;
    opts.names = agent->opts.names;
    opts.name_count = agent->opts.name_count;
    opts.connections_max = CONNECTIONS_MAX;
    opts.body_bytes_max = 4096;
    opts.header_seconds = opts.body_seconds = opts.stall_seconds = 10;
    opts.logs_access = false;
    opts.keys = agent->keys;
    opts.routes = routes;
    opts.route_count = ASH_COUNT(routes);
    opts.refuse = send_refusal;
    opts.ctx = agent;
    return ash_http_open(&opts, &agent->http, err);
}
