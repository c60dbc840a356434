/* What the server says of itself: models, health, load, version, and llama.cpp's props and slots. */
#include "serve/api/handlers.h"

#include <stdio.h>
#include <string.h>

#include "observe/exporter/process.h"
#include "record/metrics.h"
#include "serve/api/apart.h"
#include "serve/api/metrics.h"
#include "serve/api/request.h"

static bool is_ready(struct ash_api *api)
{
    return atomic_load(&api->is_ready);
}

static void respond_loading(struct ash_http_exchange *exchange)
{
    struct ash_api_err err = {0};

    ash_api_err_set(&err, 503, "model_loading", NULL, "the model is being loaded: try again");
    ash_api_respond_err(exchange, &err);
}

void ash_api_health(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_api_err err = {0};
    double stalled;

    if (!is_ready(api)) {
        respond_loading(exchange);
        return;
    }
    stalled = api->engine.get_stalled_seconds(api->engine.ctx);
    if (stalled > api->opts.stall_seconds) {
        ash_api_err_set(&err, 503, "engine_stalled", NULL, "there is work, but no step for %.0f s", stalled);
        ash_api_respond_err(exchange, &err);
        return;
    }
    ash_api_respond_json(exchange, 200, json_pack("{s:s}", "status", "ok"));
}

void ash_api_ready(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_api_err err = {0};

    if (!is_ready(api)) {
        respond_loading(exchange);
    } else if (atomic_load(&api->is_draining)) {
        ash_api_err_set(&err, 503, "shutting_down", NULL, "the server is shutting down");
        ash_api_respond_err(exchange, &err);
    } else {
        if (api->opts.role != ASH_API_BOTH)
            ash_http_add_header(exchange, ASH_API_ROLE_HEADER, ash_api_roles[api->opts.role]);
        ash_api_respond_json(exchange, 200, json_pack("{s:s}", "status", "ok"));
    }
}

void ash_api_load(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_core_stats stats = {0};

    if (is_ready(api)) api->engine.get_stats(api->engine.ctx, &stats);
    ash_api_respond_json(exchange, 200,
                         json_pack("{s:I, s:I, s:I}", "server_load", (json_int_t)atomic_load(&api->calls), "running",
                                   (json_int_t)stats.running, "waiting", (json_int_t)stats.waiting));
}

void ash_api_version(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    ash_api_respond_json(exchange, 200, json_pack("{s:s}", "version", ash_version()));
}

/* parent: of an adapter; NULL for the model itself. */
static json_t *model_json(const struct ash_api *api, const char *name, const char *root, const char *parent)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s?, s:I, s:{s:I, s:I, s:I}}", "id", name, "object", "model",
                     "created", (json_int_t)api->created_s, "owned_by", "ashlar", "root", root, "parent", parent,
                     "max_model_len", (json_int_t)api->engine.context_tokens, "meta", "n_vocab",
                     (json_int_t)api->engine.vocab, "n_ctx_train", (json_int_t)api->engine.context_tokens, "n_embd",
                     (json_int_t)api->engine.hidden);
}

static json_t *own_model_json(const struct ash_api *api, const char *name)
{
    return model_json(api, name, api->opts.model_path != NULL ? api->opts.model_path : api->opts.names[0], NULL);
}

struct model_list {
    const struct ash_api *api;
    json_t *items;
};

static void add_adapter(void *ctx, const struct ash_served_adapter *adapter)
{
    struct model_list *list = ctx;

    json_array_append_new(list->items, model_json(list->api, adapter->name, adapter->dir, list->api->opts.names[0]));
}

void ash_api_models(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    const struct ash_api_opts *opts = &api->opts;
    struct model_list list = {.api = api};

    if (!is_ready(api)) {
        respond_loading(exchange);
        return;
    }
    list.items = json_array();
    for (size_t i = 0; i < opts->name_count; i++)
        json_array_append_new(list.items, own_model_json(api, opts->names[i]));
    ash_adapters_visit(api->engine.adapters, add_adapter, &list);
    ash_api_respond_json(exchange, 200, json_pack("{s:s, s:o}", "object", "list", "data", list.items));
}

void ash_api_model(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    const char *name = ash_http_path(exchange) + strlen("/v1/models/");
    const struct ash_served_adapter *adapter;
    struct ash_api_err err = {0};
    json_t *json = NULL;

    if (!is_ready(api)) {
        respond_loading(exchange);
        return;
    }
    for (size_t i = 0; i < api->opts.name_count && json == NULL; i++)
        if (strcmp(api->opts.names[i], name) == 0) json = own_model_json(api, name);
    adapter = json == NULL ? ash_adapters_get(api->engine.adapters, name) : NULL;
    if (adapter != NULL) json = model_json(api, name, adapter->dir, api->opts.names[0]);
    ash_adapters_put(api->engine.adapters, adapter);
    if (json != NULL) {
        ash_api_respond_json(exchange, 200, json);
        return;
    }
    ash_api_err_no_model(&err, api->opts.names[0], name);
    ash_api_respond_err(exchange, &err);
}

void ash_api_props(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    const struct ash_api_engine *engine = &api->engine;
    const struct ash_tokenizer *tokenizer = engine->tokenizer;
    const char *bos = NULL, *eos = NULL;

    if (!is_ready(api)) {
        respond_loading(exchange);
        return;
    }
    if (engine->bos >= 0) bos = ash_tokenizer_content(tokenizer, engine->bos);
    if (engine->defaults->eos_count > 0) eos = ash_tokenizer_content(tokenizer, engine->defaults->eos[0]);
    ash_api_respond_json(
        exchange, 200,
        json_pack("{s:{s:I, s:{s:f, s:I, s:f, s:f, s:f, s:I}}, s:I, s:s, s:s, s:s, s:s, s:s, s:{s:b, s:b}, s:b}",
                  "default_generation_settings", "n_ctx", (json_int_t)engine->context_tokens, "params", "temperature",
                  0.8, "top_k", (json_int_t)40, "top_p", 0.95, "min_p", 0.05, "repeat_penalty", 1.0, "n_predict",
                  (json_int_t)-1, "total_slots", (json_int_t)engine->sequences_max, "model_alias", api->opts.names[0],
                  "model_path", api->opts.model_path != NULL ? api->opts.model_path : "", "chat_template",
                  engine->chat_source != NULL ? engine->chat_source : "", "bos_token", bos != NULL ? bos : "",
                  "eos_token", eos != NULL ? eos : "", "modalities", "vision", 0, "audio", 0, "is_sleeping", 0));
}

/* llama.cpp's list: there are as many slots as sequences may run, the first ones are those that do. */
void ash_api_slots(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_core_stats stats = {0};
    json_t *list = json_array();

    if (!is_ready(api)) {
        json_decref(list);
        respond_loading(exchange);
        return;
    }
    api->engine.get_stats(api->engine.ctx, &stats);
    for (size_t i = 0; i < api->engine.sequences_max; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:b, s:b}", "id", (json_int_t)i, "n_ctx",
                                              (json_int_t)api->engine.context_tokens, "speculative", stats.drafted > 0,
                                              "is_processing", i < stats.running));
    ash_api_respond_json(exchange, 200, list);
}

void ash_api_refresh_metrics(struct ash_api *api)
{
    struct ash_core_stats stats = {0};

    if (is_ready(api)) api->engine.get_stats(api->engine.ctx, &stats);
    ash_api_metrics_engine(api->metrics, &stats);
}

void ash_api_metrics_page(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_str body = {0};
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);

    ash_api_refresh_metrics(api);
    if (out != NULL) {
        ash_metrics_write(out);
        ash_process_write(out);
        fclose(out);
    }
    body = (struct ash_str){.data = text, .size_bytes = size_bytes, .capacity_bytes = size_bytes + 1};
    ash_http_respond(exchange, out != NULL ? 200 : 503, ASH_HTTP_TYPE_METRICS, &body);
}
