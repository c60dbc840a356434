/* What the admin key alone may do: forget the prefix cache, as vLLM (/reset_prefix_cache) and SGLang (/flush_cache);
 * load and unload adapters, as vLLM. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "serve/api/handlers.h"
#include "serve/api/request.h"

#define RESET_SECONDS 30.0 /* a step takes far less */

void ash_api_reset_prefix(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_api_err err = {0};
    size_t pages = 0;
    int rc;

    if (!atomic_load(&api->is_ready)) {
        ash_api_err_set(&err, 503, "model_loading", NULL, "the model is being loaded: try again");
        ash_api_respond_err(exchange, &err);
        return;
    }
    rc = api->engine.reset_prefix(api->engine.ctx, RESET_SECONDS, &pages);
    if (rc < 0) {
        ash_api_err_set(&err, 503, "engine_busy", NULL, "the engine made no step within %.0f s", RESET_SECONDS);
        ash_api_respond_err(exchange, &err);
        return;
    }
    ash_api_respond_json(exchange, 200, json_pack("{s:b, s:I}", "success", 1, "pages_freed", (json_int_t)pages));
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* A field that must be there. */
static const char *required(struct ash_api_request *request, const char *key)
{
    const char *value = ash_fields_string(&request->fields, key);

    if (value == NULL || value[0] == '\0')
        ash_api_err_set(&request->err, 400, "missing_required_parameter", key, "'%s' is missing", key);
    return value;
}

/* Names of the model itself stay its own. */
static void check_name(struct ash_api_request *request, const char *name)
{
    const struct ash_api_opts *opts = &request->api->opts;

    for (size_t i = 0; i < opts->name_count; i++)
        if (strcmp(opts->names[i], name) == 0)
            ash_fields_wrong(&request->fields, "lora_name", "is the name of the model itself");
}

static void respond_adapter(struct ash_api_request *request, const char *name, const char *what)
{
    ash_log(ASH_LOG_INFO, "adapter name=%.100s %s", name, what);
    ash_api_respond_json(request->exchange, 200,
                         json_pack("{s:b, s:s, s:s}", "success", 1, "lora_name", name, "status", what));
}

void ash_api_load_adapter(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_err err = {0};
    const char *name, *dir;
    int rc;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    name = required(&request, "lora_name");
    dir = required(&request, "lora_path");
    if (request.err.status == 0) check_name(&request, name);
    ash_fields_ignore(&request.fields, "base_model_name");
    ash_api_check_unknown(&request);
    if (request.err.status == 0) {
        rc = ash_adapters_load(request.api->engine.adapters, name, dir, &err);
        if (rc < 0) ash_api_err_take(&request.err, rc == -EEXIST ? "lora_name" : "lora_path", &err);
    }
    if (!ash_api_request_failed(&request)) respond_adapter(&request, name, "loaded");
    ash_api_request_fini(&request);
}

void ash_api_unload_adapter(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_err err = {0};
    const char *name;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    name = required(&request, "lora_name");
    ash_fields_ignore(&request.fields, "lora_int_id");
    ash_api_check_unknown(&request);
    if (request.err.status == 0 && ash_adapters_unload(request.api->engine.adapters, name, &err) < 0)
        ash_api_err_set(&request.err, 404, "adapter_not_found", "lora_name", "%s", err.text);
    if (!ash_api_request_failed(&request)) respond_adapter(&request, name, "unloaded");
    ash_api_request_fini(&request);
}
