/* A call from the client's request to its end: what the HTTP threads do with it, and its ties to the router. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "serve/api/request.h"
#include "serve/route/route_priv.h"

#define SEED_SHIFT 11 /* 53 bits: every JSON reader can give it back */

/* ---- life -------------------------------------------------------------------------------------------------------- */

void ash_route_call_forget_answer(struct ash_route_call *call)
{
    for (size_t i = 0; i < call->answer_header_count; i++)
        free(call->answer_headers[i].name);
    call->answer_header_count = 0;
    call->type[0] = '\0';
    call->status = 0;
    call->is_stream = false;
    ash_str_clear(&call->body);
}

void ash_route_call_put(struct ash_route_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) != 1) return;
    ash_route_call_forget_answer(call);
    ash_str_fini(&call->headers);
    ash_str_fini(&call->body);
    ash_str_fini(&call->out);
    ash_str_fini(&call->pages);
    ash_route_prompt_fini(&call->prompt);
    free(call->seen);
    free(call->cursors);
    pthread_mutex_destroy(&call->lock);
    ash_http_exchange_put(call->exchange);
    free(call);
}

/* ---- hooks of the HTTP server ------------------------------------------------------------------------------------ */

static void on_gone(void *ctx)
{
    struct ash_route_call *call = ctx;

    atomic_store(&call->is_gone, true);
    ash_router_post(call->router, call);
}

static void on_end(void *ctx)
{
    ash_route_call_put(ctx);
}

/* Headers that are between the client and this server, or that the router sends itself. */
static bool is_own_header(const char *name)
{
    static const char *const names[] = {"host",
                                        "connection",
                                        "content-length",
                                        "transfer-encoding",
                                        "keep-alive",
                                        "accept-encoding",
                                        "expect",
                                        "te",
                                        "upgrade",
                                        "proxy-connection",
                                        "x-request-id",
                                        "origin",
                                        "trailer",
                                        "referer",
                                        ASH_API_RESUMABLE_HEADER,
                                        ASH_API_PREFILL_HEADER,
                                        ASH_API_PAGES_HEADER,
                                        ASH_API_PAGES_KEY_HEADER};

    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (strcasecmp(name, names[i]) == 0) return true;
    return false;
}

static bool is_key_header(const char *name)
{
    return strcasecmp(name, "authorization") == 0 || strcasecmp(name, "x-api-key") == 0 ||
           strcasecmp(name, "api-key") == 0;
}

static int add_header(void *ctx, const char *name, const char *value)
{
    struct ash_route_call *call = ctx;

    if (strcasecmp(name, "via") == 0 && strstr(value, call->router->via) != NULL) call->has_been_here = true;
    if (is_own_header(name)) return 0;
    if (call->router->opts.replica_key != NULL && is_key_header(name)) return 0;
    return ash_str_addf(&call->headers, "%s: %s\r\n", name, value);
}

/* Prompts of different keys share nothing on a replica either. As the replica computes it, of the key that it gets. */
static uint64_t salt_of(const struct ash_route_call *call)
{
    return call->router->has_replica_salt ? call->router->replica_salt : ash_api_blocks_salt(call->exchange);
}

/* Seed and time of the answer: another router's, in front of this one, or new ones. */
static void read_resumable(struct ash_route_call *call)
{
    struct ash_api_resumable given =
        ash_api_resumable_read(ash_http_request_header(call->exchange, ASH_API_RESUMABLE_HEADER));

    call->is_from_router = given.is_set;
    call->seed = given.seed;
    call->created_s = given.created_s;
    if (given.is_set) return;
    if (getrandom(&call->seed, sizeof(call->seed), 0) < 0) call->seed = ash_hash_mix(ash_clock_ns());
    call->seed >>= SEED_SHIFT;
    call->created_s = (int64_t)ash_clock_wall_s();
}

/* A request without a body names its model in the query. */
static void read_query(struct ash_route_call *call)
{
    const char *model = ash_http_query(call->exchange, "model");

    if (model != NULL && strlen(model) < sizeof(call->prompt.model))
        snprintf(call->prompt.model, sizeof(call->prompt.model), "%s", model);
}

static int read_request(struct ash_route_call *call)
{
    const char *key = call->router->opts.replica_key;
    size_t size_bytes = 0;
    const char *body = ash_http_body(call->exchange, &size_bytes);
    int rc = ash_http_each_header(call->exchange, add_header, call);

    if (rc == 0 && key != NULL) rc = ash_str_addf(&call->headers, "Authorization: Bearer %s\r\n", key);
    if (rc == 0 && size_bytes > 0) rc = ash_route_prompt_read(body, size_bytes, salt_of(call), &call->prompt);
    if (call->prompt.model[0] == '\0') read_query(call);
    read_resumable(call);
    return rc;
}

void ash_route_call_post(struct ash_router *router, struct ash_http_exchange *exchange,
                         void (*handle)(struct ash_route_call *call))
{
    static const struct ash_api_err no_memory = {
        .status = 503, .code = "out_of_memory", .text = "no memory for the request"};
    struct ash_route_call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        ash_api_respond_err(exchange, &no_memory);
        return;
    }
    ash_assert(handle != NULL);
    call->router = router;
    call->exchange = exchange;
    call->refs = 1;
    call->handle = handle;
    call->model = ASH_ROUTE_NO_MODEL;
    pthread_mutex_init(&call->lock, NULL);
    ash_http_exchange_get(exchange);
    if (read_request(call) < 0) {
        ash_api_respond_err(exchange, &no_memory);
        ash_route_call_put(call);
        return;
    }
    atomic_fetch_add(&call->refs, 1);
    ash_http_on_end(exchange, on_end, call);
    ash_router_post(router, call);
    ash_http_on_gone(exchange, on_gone, call);
}

/* ---- the router's thread ----------------------------------------------------------------------------------------- */

/* It uses its model no more. Ollama's clients say how long the model shall stay. */
static void release_model(struct ash_route_call *call)
{
    struct ash_route_models *models = call->router->opts.models;
    bool says = strncmp(ash_http_path(call->exchange), "/api/", 5) == 0;

    if (call->use == ASH_ROUTE_MODEL_UNUSED) return;
    ash_route_models_keep(models, call->model, says ? call->prompt.keep_seconds : NAN);
    (void)ash_route_models_use(models, call->model, call->use, ASH_ROUTE_MODEL_UNUSED); /* that is always possible */
    call->use = ASH_ROUTE_MODEL_UNUSED;
}

void ash_route_call_detach(struct ash_route_call *call)
{
    struct ash_replica *replica = call->replica;

    if (call->conn != NULL) ash_route_conn_close(call->conn);
    release_model(call);
    if (replica == NULL) return;
    ash_assert(replica->in_flight > 0);
    replica->in_flight--;
    ash_metric_set(replica->in_flight_gauge, (double)replica->in_flight);
    ash_replica_remove_prompt(replica, call);
    call->replica = NULL;
}

struct ash_route_conn *ash_route_call_leave_prefill(struct ash_route_call *call)
{
    struct ash_route_conn *conn = call->prefill;
    struct ash_replica *replica = conn != NULL ? conn->replica : NULL;

    if (conn == NULL) return NULL;
    ash_assert(conn->call == call && replica->in_flight > 0);
    call->prefill = NULL;
    conn->call = NULL;
    replica->in_flight--;
    ash_metric_set(replica->in_flight_gauge, (double)replica->in_flight);
    return conn;
}

void ash_route_call_end(struct ash_route_call *call)
{
    struct ash_route_conn *prefill;

    ash_assert(!call->is_ended);
    ash_route_call_detach(call);
    prefill = ash_route_call_leave_prefill(call);
    if (prefill != NULL) ash_route_conn_close(prefill); /* which ends its work */
    call->is_ended = true;
    if (call->usage.answer_tokens == 0 && call->has_frames) call->usage.answer_tokens = call->seen_count;
    *(call->prev != NULL ? &call->prev->next : &call->router->calls) = call->next;
    if (call->next != NULL) call->next->prev = call->prev;
    ash_key_take_tokens(ash_http_key(call->exchange), (double)(call->usage.prompt_tokens + call->usage.answer_tokens));
    ash_route_call_put(call);
}
