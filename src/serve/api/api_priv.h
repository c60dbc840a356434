/* api_priv - the inside of the API, which its request forms share. */
#ifndef ASH_SERVE_API_API_PRIV_H
#define ASH_SERVE_API_API_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "serve/adapters.h"
#include "serve/api/api.h"
#include "serve/api/errors.h"
#include "serve/api/fields.h"
#include "serve/engine/think.h"
#include "serve/tools/tools.h"

struct ash_api_metrics;
struct ash_api_grammars;

struct ash_api {
    struct ash_api_opts opts;
    struct ash_api_engine engine; /* valid once is_ready */
    _Atomic bool is_ready, is_draining;
    uint64_t fingerprint; /* valid once has_fingerprint */
    _Atomic bool has_fingerprint;
    double created_s; /* when the model was loaded, since 1970 */
    enum ash_tool_format tool_format;
    struct ash_thought_tags thought_tags;
    struct ash_think_words think_words; /* zeroed: the model does not think */
    struct ash_api_metrics *metrics;
    struct ash_api_grammars *grammars;
    _Atomic size_t calls; /* that are being answered */
};

/* A request of any form: its fields, and what is wrong with it. */
struct ash_api_request {
    struct ash_api *api;
    struct ash_http_exchange *exchange;
    json_t *json;
    struct ash_fields fields;
    struct ash_api_err err;
    const struct ash_served_adapter *adapter; /* that the model's name means, held; NULL: none */
};

/* Parse the body of a request that needs the model. False: it was refused, and answered. Release with
 * ash_api_request_fini. */
bool ash_api_request_init(struct ash_api_request *request, struct ash_api *api, struct ash_http_exchange *exchange);
/* Find the adapter that the model's name means, once. Returns request->adapter. */
const struct ash_served_adapter *ash_api_find_adapter(struct ash_api_request *request);
/* Check the model's name (field "model"; absent: the one that is served). */
void ash_api_check_model(struct ash_api_request *request);
/* After all fields were read: name the ones that nobody knows in log and header, or refuse them. */
void ash_api_check_unknown(struct ash_api_request *request);
/* Was anything wrong? Then answer so and return true. */
bool ash_api_request_failed(struct ash_api_request *request);
/* Free what it holds. */
void ash_api_request_fini(struct ash_api_request *request);
/* Respond with a JSON value and drop the reference to it. */
void ash_api_respond_json(struct ash_http_exchange *exchange, unsigned status, json_t *json);
/* Respond with text that is JSON already; takes its memory. A failed write (rc < 0) is 503. */
void ash_api_respond_text(struct ash_http_exchange *exchange, int rc, struct ash_str *body);
/* The name that answers give the model: the request's own, or the first. */
const char *ash_api_model_name(const struct ash_api_request *request);

/* ---- handlers, by file ------------------------------------------------------------------------------------------- */

/* completions.c: POST /v1/completions. */
void ash_api_completions(void *ctx, struct ash_http_exchange *exchange);
/* chat.c: POST /v1/chat/completions. */
void ash_api_chat(void *ctx, struct ash_http_exchange *exchange);
/* responses.c: POST /v1/responses. */
void ash_api_responses(void *ctx, struct ash_http_exchange *exchange);
/* embeddings.c: POST /v1/embeddings. */
void ash_api_embeddings(void *ctx, struct ash_http_exchange *exchange);
/* messages.c: POST /v1/messages. */
void ash_api_messages(void *ctx, struct ash_http_exchange *exchange);
/* messages.c: POST /v1/messages/count_tokens. */
void ash_api_count_tokens(void *ctx, struct ash_http_exchange *exchange);
/* llama_read.c: POST /completion. */
void ash_api_llama_completion(void *ctx, struct ash_http_exchange *exchange);
/* infill.c: POST /infill. */
void ash_api_infill(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /v1/models. */
void ash_api_models(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /health: 200 when the engine can answer and makes steps. */
void ash_api_health(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /ready: 200 when the model is loaded. */
void ash_api_ready(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /load: how many requests are being answered. */
void ash_api_load(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /version. */
void ash_api_version(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /props. */
void ash_api_props(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /slots. */
void ash_api_slots(void *ctx, struct ash_http_exchange *exchange);
/* admin.c: POST /reset_prefix_cache. */
void ash_api_reset_prefix(void *ctx, struct ash_http_exchange *exchange);
/* admin.c: POST /v1/load_lora_adapter. */
void ash_api_load_adapter(void *ctx, struct ash_http_exchange *exchange);
/* admin.c: POST /v1/unload_lora_adapter. */
void ash_api_unload_adapter(void *ctx, struct ash_http_exchange *exchange);
/* tokens.c: POST /tokenize. */
void ash_api_tokenize(void *ctx, struct ash_http_exchange *exchange);
/* tokens.c: POST /detokenize. */
void ash_api_detokenize(void *ctx, struct ash_http_exchange *exchange);
/* tokens.c: POST /apply-template. */
void ash_api_apply_template(void *ctx, struct ash_http_exchange *exchange);
/* metrics.c: GET /metrics. */
void ash_api_metrics_page(void *ctx, struct ash_http_exchange *exchange);

#endif
