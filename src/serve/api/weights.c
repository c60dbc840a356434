/* What the admin key alone may do with the weights: pause, sleep and go on, as vLLM (/pause, /resume, /sleep, /wake_up)
 * and SGLang; replace them by others of the same shape, as SGLang (/update_weights_from_disk). */
#include <errno.h>

#include "base/log.h"
#include "serve/api/handlers.h"
#include "serve/api/request.h"

#define PAUSE_SECONDS 300.0 /* for the answers that run */

/* Is there an engine, and can it do that? Otherwise it has answered. */
static bool can_pause(struct ash_api *api, struct ash_http_exchange *exchange)
{
    struct ash_api_err err = {0};

    if (atomic_load(&api->is_ready) && api->engine.pause != NULL) return true;
    ash_api_err_set(&err, 503, "model_loading", NULL, "the model is being loaded: try again");
    ash_api_respond_err(exchange, &err);
    return false;
}

void ash_api_pause(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_api_err err = {0};

    if (!can_pause(api, exchange)) return;
    if (api->engine.pause(api->engine.ctx, PAUSE_SECONDS) < 0) {
        ash_api_err_set(&err, 503, "engine_busy", NULL,
                        "answers are still being written after %.0f s: the server was not paused", PAUSE_SECONDS);
        ash_api_respond_err(exchange, &err);
        return;
    }
    ash_api_respond_json(exchange, 200, json_pack("{s:s}", "status", "paused"));
}

/* All pages and packed weights go; files are mapped again when a request reads them. */
void ash_api_sleep(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_api_err refused = {0};
    struct ash_err err = {0};
    uint64_t fingerprint = 0;
    int rc;

    if (!can_pause(api, exchange)) return;
    rc = api->engine.pause(api->engine.ctx, PAUSE_SECONDS);
    if (rc == 0 && api->engine.update != NULL && atomic_load(&api->has_fingerprint))
        rc = api->engine.update(api->engine.update_ctx, NULL, PAUSE_SECONDS, &fingerprint, &err);
    if (rc == 0) {
        ash_api_respond_json(exchange, 200, json_pack("{s:s}", "status", "sleeping"));
        return;
    }
    api->engine.resume(api->engine.ctx);
    ash_api_err_set(&refused, 503, "engine_busy", NULL, "the weights stay: %s",
                    err.text[0] != '\0' ? err.text : "answers are still being written");
    ash_api_respond_err(exchange, &refused);
}

void ash_api_resume(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;

    if (!can_pause(api, exchange)) return;
    api->engine.resume(api->engine.ctx);
    ash_api_respond_json(exchange, 200, json_pack("{s:s}", "status", "resumed"));
}

void ash_api_is_paused(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;

    if (!can_pause(api, exchange)) return;
    ash_api_respond_json(exchange, 200, json_pack("{s:b}", "is_paused", api->engine.is_paused(api->engine.ctx)));
}

/* Replace the weights, and tell what answers say from now on. */
static void update(struct ash_api_request *request, const char *path)
{
    struct ash_api *api = request->api;
    struct ash_err err = {0};
    uint64_t fingerprint = 0;
    char version[32];
    int rc;

    if (api->engine.update == NULL || !atomic_load(&api->has_fingerprint)) {
        ash_api_err_set(&request->err, 503, "model_loading", NULL, "the weights are still being read: try again");
        return;
    }
    rc = api->engine.update(api->engine.update_ctx, path, PAUSE_SECONDS, &fingerprint, &err);
    if (rc == -ETIMEDOUT) {
        ash_api_err_set(&request->err, 503, "engine_busy", NULL, "answers are still being written after %.0f s",
                        PAUSE_SECONDS);
        return;
    }
    if (rc < 0) {
        ash_api_err_take(&request->err, "model_path", &err);
        return;
    }
    snprintf(version, sizeof(version), "fp_%016llx", (unsigned long long)fingerprint);
    ash_log(ASH_LOG_INFO, "weights of %.200s version=%s", path, version);
    ash_api_respond_json(
        request->exchange, 200,
        json_pack("{s:b, s:s, s:s}", "success", 1, "message", "the weights were replaced", "weight_version", version));
}

void ash_api_update_weights(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    const char *path;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    path = ash_fields_string(&request.fields, "model_path");
    if (path == NULL || path[0] == '\0')
        ash_api_err_set(&request.err, 400, "missing_required_parameter", "model_path", "'model_path' is missing");
    ash_fields_ignore(&request.fields, "load_format");
    ash_fields_ignore(&request.fields, "flush_cache");
    ash_api_check_unknown(&request);
    if (request.err.status == 0) update(&request, path);
    (void)ash_api_request_failed(&request);
    ash_api_request_fini(&request);
}
