/* The API's life, its routes, and what every request form does first. */
#include "serve/api/api_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/api/grammars.h"
#include "serve/api/metrics.h"
#include "serve/api/write.h"
#include "serve/page/page.h"

#define GENERATES .takes_requests = true
#define QUICK .is_open = true, .is_quick = true

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/", .handle = ash_page_respond, QUICK},
    {.method = "GET", .path = "/health", .handle = ash_api_health, QUICK},
    {.method = "GET", .path = "/ping", .handle = ash_api_health, QUICK},
    {.method = "POST", .path = "/ping", .handle = ash_api_health, QUICK},
    {.method = "GET", .path = "/ready", .handle = ash_api_ready, QUICK},
    {.method = "GET", .path = "/v1/health", .handle = ash_api_health, QUICK},
    {.method = "GET", .path = "/metrics", .handle = ash_api_metrics_page, .is_open = true},
    {.method = "GET", .path = "/version", .handle = ash_api_version, QUICK},
    {.method = "GET", .path = "/load", .handle = ash_api_load, QUICK},
    {.method = "GET", .path = "/props", .handle = ash_api_props},
    {.method = "GET", .path = "/slots", .handle = ash_api_slots},
    {.method = "GET", .path = "/v1/models", .handle = ash_api_models},
    {.method = "GET", .path = "/models", .handle = ash_api_models},
    {.method = "POST", .path = "/v1/completions", .handle = ash_api_completions, GENERATES},
    {.method = "POST", .path = "/v1/chat/completions", .handle = ash_api_chat, GENERATES},
    {.method = "POST", .path = "/chat/completions", .handle = ash_api_chat, GENERATES},
    {.method = "POST", .path = "/v1/responses", .handle = ash_api_responses, GENERATES},
    {.method = "POST", .path = "/responses", .handle = ash_api_responses, GENERATES},
    {.method = "POST", .path = "/v1/embeddings", .handle = ash_api_embeddings, GENERATES},
    {.method = "POST", .path = "/embeddings", .handle = ash_api_embeddings, GENERATES},
    {.method = "POST", .path = "/v1/messages", .handle = ash_api_messages, GENERATES},
    {.method = "POST", .path = "/v1/messages/count_tokens", .handle = ash_api_count_tokens},
    {.method = "POST", .path = "/completion", .handle = ash_api_llama_completion, GENERATES},
    {.method = "POST", .path = "/completions", .handle = ash_api_llama_completion, GENERATES},
    {.method = "POST", .path = "/infill", .handle = ash_api_infill, GENERATES},
    {.method = "POST", .path = "/reset_prefix_cache", .handle = ash_api_reset_prefix, .needs_admin = true},
    {.method = "POST", .path = "/flush_cache", .handle = ash_api_reset_prefix, .needs_admin = true},
    {.method = "GET", .path = "/flush_cache", .handle = ash_api_reset_prefix, .needs_admin = true},
    {.method = "POST", .path = "/v1/load_lora_adapter", .handle = ash_api_load_adapter, .needs_admin = true},
    {.method = "POST", .path = "/v1/unload_lora_adapter", .handle = ash_api_unload_adapter, .needs_admin = true},
    {.method = "POST", .path = "/tokenize", .handle = ash_api_tokenize},
    {.method = "POST", .path = "/detokenize", .handle = ash_api_detokenize},
    {.method = "POST", .path = "/apply-template", .handle = ash_api_apply_template},
};

const struct ash_http_route *ash_api_routes(size_t *count_out)
{
    *count_out = ASH_COUNT(routes);
    return routes;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct ash_api_opts ash_api_defaults(void)
{
    return (struct ash_api_opts){.queue_max = 1024,
                                 .choices_max = 128,
                                 .depth_max = 128,
                                 .schema_bytes_max = (size_t)1 << 20,
                                 .stall_seconds = 30};
}

int ash_api_open(const struct ash_api_opts *opts, struct ash_api **api_out, struct ash_err *err)
{
    struct ash_api *api = calloc(1, sizeof(*api));
    int rc;

    ash_assert(opts->name_count > 0);
    if (api == NULL) return ash_err_set(err, -ENOMEM, "no memory for the server");
    api->opts = *opts;
    rc = ash_api_metrics_open(opts->names[0], &api->metrics, err);
    if (rc < 0) goto fail;
    *api_out = api;
    return 0;

fail:
    ash_api_close(api);
    return rc;
}

void ash_api_close(struct ash_api *api)
{
    if (api == NULL) return;
    ash_api_grammars_close(api->grammars);
    ash_think_words_fini(&api->think_words);
    ash_api_metrics_close(api->metrics);
    free(api);
}

/* How tool calls and thoughts are written: as the options say, or as the template does. */
static int choose_parsers(struct ash_api *api, struct ash_err *err)
{
    const char *tools = api->opts.tool_parser, *thoughts = api->opts.reasoning_parser;
    const char *source = api->engine.chat_source != NULL ? api->engine.chat_source : "";
    int format = tools != NULL ? ash_tool_format_find(tools) : (int)ash_tool_format_detect(source);

    if (format < 0)
        return ash_err_set(err, -EINVAL,
                           "--tool-call-parser %.40s: there are hermes, llama3_json, mistral, mistral_named, "
                           "deepseek_v3, deepseek_v31 and none",
                           tools);
    api->tool_format = (enum ash_tool_format)format;
    if (thoughts == NULL)
        api->thought_tags = ash_thought_tags_detect(source);
    else if (strcmp(thoughts, "think") == 0 || strcmp(thoughts, "deepseek_r1") == 0 || strcmp(thoughts, "qwen3") == 0)
        api->thought_tags = (struct ash_thought_tags){"<think>", "</think>"};
    else if (strcmp(thoughts, "none") != 0)
        return ash_err_set(err, -EINVAL, "--reasoning-parser %.40s: there are think, qwen3, deepseek_r1 and none",
                           thoughts);
    return 0;
}

/* What ends thoughts: without it there can be no budget. */
static int find_words(struct ash_api *api, struct ash_err *err)
{
    const struct ash_tokenizer *tokenizer = api->engine.tokenizer;
    size_t min = api->opts.think_min, max = api->opts.think_max;
    int rc = ash_think_check(min, max, err);

    if (rc == 0 && tokenizer != NULL)
        rc = ash_think_words_init(&api->think_words, api->thought_tags.close, NULL, tokenizer, err);
    if (rc == -ENOTSUP && min == 0 && max == 0) return 0;
    return rc < 0 ? ash_err_prefix(err, rc, "--think-min, --think-max") : 0;
}

int ash_api_serve(struct ash_api *api, const struct ash_api_engine *engine, struct ash_err *err)
{
    int rc;

    api->engine = *engine;
    api->created_s = ash_clock_wall_s();
    rc = choose_parsers(api, err);
    if (rc == 0) rc = find_words(api, err);
    if (rc < 0) return rc;
    rc = ash_api_grammars_open(api, &api->grammars, err);
    if (rc < 0) return rc;
    atomic_store(&api->is_ready, true);
    return 0;
}

void ash_api_drain(struct ash_api *api)
{
    atomic_store(&api->is_draining, true);
}

void ash_api_set_fingerprint(struct ash_api *api, uint64_t hash)
{
    api->fingerprint = hash;
    atomic_store(&api->has_fingerprint, true);
}

void ash_api_refuse(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text)
{
    struct ash_api_err err = {0};
    struct ash_str body = {0};

    (void)ctx;
    ash_api_err_set(&err, status, code, NULL, "%s", text);
    if (status >= 400) (void)ash_api_err_write(&err, ash_http_path(exchange), ash_http_id(exchange), &body);
    ash_http_respond(exchange, status, status >= 400 ? "application/json" : NULL, &body);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

bool ash_api_request_init(struct ash_api_request *request, struct ash_api *api, struct ash_http_exchange *exchange)
{
    size_t size_bytes = 0;
    const char *body = ash_http_body(exchange, &size_bytes);

    *request = (struct ash_api_request){.api = api, .exchange = exchange};
    if (!atomic_load(&api->is_ready))
        ash_api_err_set(&request->err, 503, "model_loading", NULL, "the model is being loaded: try again");
    else
        (void)ash_fields_parse(body, size_bytes, api->opts.depth_max, &request->json, &request->err);
    ash_http_drop_body(exchange);
    if (ash_api_request_failed(request)) return false;
    ash_fields_init(&request->fields, request->json, "", &request->err);
    return true;
}

bool ash_api_request_failed(struct ash_api_request *request)
{
    if (request->err.status == 0) return false;
    ash_api_respond_err(request->exchange, &request->err);
    return true;
}

void ash_api_request_fini(struct ash_api_request *request)
{
    ash_adapters_put(request->api->engine.adapters, request->adapter);
    request->adapter = NULL;
    json_decref(request->json);
    request->json = NULL;
}

const char *ash_api_model_name(const struct ash_api_request *request)
{
    const char *name = json_string_value(json_object_get(request->json, "model"));

    return name != NULL && name[0] != '\0' ? name : request->api->opts.names[0];
}

const struct ash_served_adapter *ash_api_find_adapter(struct ash_api_request *request)
{
    if (request->adapter == NULL)
        request->adapter = ash_adapters_get(request->api->engine.adapters, ash_api_model_name(request));
    return request->adapter;
}

void ash_api_check_model(struct ash_api_request *request)
{
    const struct ash_api_opts *opts = &request->api->opts;
    const char *name = ash_fields_string(&request->fields, "model");

    if (name == NULL || name[0] == '\0') return;
    for (size_t i = 0; i < opts->name_count; i++)
        if (strcmp(opts->names[i], name) == 0) return;
    if (ash_api_find_adapter(request) != NULL) return;
    ash_api_err_set(&request->err, 404, "model_not_found", "model",
                    "The model `%.100s` does not exist: this server has `%.100s`", name, opts->names[0]);
}

void ash_api_check_unknown(struct ash_api_request *request)
{
    struct ash_str names = {0};

    if (request->err.status == 0 && ash_fields_unknown(&request->fields, &names) == 0 && names.size_bytes > 0) {
        if (request->api->opts.is_strict) {
            ash_api_err_set(&request->err, 400, "unknown_field", names.data,
                            "unknown fields: %s (--strict refuses them)", names.data);
        } else {
            ash_log(ASH_LOG_INFO, "ignored fields id=%s path=%s fields=%.500s", ash_http_id(request->exchange),
                    ash_http_path(request->exchange), names.data);
            ash_http_add_header(request->exchange, "x-ignored-fields", names.data);
        }
    }
    ash_str_fini(&names);
}

/* ---- responses --------------------------------------------------------------------------------------------------- */

void ash_api_respond_text(struct ash_http_exchange *exchange, int rc, struct ash_str *body)
{
    struct ash_api_err err = {0};

    if (rc == 0) {
        ash_http_respond(exchange, 200, "application/json", body);
        return;
    }
    ash_str_clear(body);
    ash_api_err_set(&err, rc == -ENOMEM ? 503 : 500, rc == -ENOMEM ? "out_of_memory" : "internal_error", NULL,
                    "the answer could not be written: %s", strerror(-rc));
    ash_api_respond_err(exchange, &err);
}

void ash_api_respond_json(struct ash_http_exchange *exchange, unsigned status, json_t *json)
{
    struct ash_str body = {0};
    int rc = json != NULL ? ash_write_json(&body, json) : -ENOMEM;

    json_decref(json);
    if (rc == 0)
        ash_http_respond(exchange, status, "application/json", &body);
    else
        ash_api_respond_text(exchange, rc, &body);
    ash_str_fini(&body);
}
