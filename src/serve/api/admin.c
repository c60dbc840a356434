/* What the admin key alone may do: forget the prefix cache, as vLLM (/reset_prefix_cache) and SGLang (/flush_cache). */
#include "serve/api/api_priv.h"

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
