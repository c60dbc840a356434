/* A call's model, where there are several: found by its name, waited for while it is loaded, released at the end. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "serve/api/ollama_list.h"
#include "serve/route/route_priv.h"

#define LISTED_MAX 8 /* names in a message */

/* "a, b, c", or "a, b, ... (12)". */
static void list_names(const struct ash_route_call *call, struct ash_str *names)
{
    struct ash_route_models *models = call->router->opts.models;
    size_t count = ash_route_models_count(models);

    for (size_t i = 0; i < count && i < LISTED_MAX; i++)
        ash_str_addf(names, "%s%s", i > 0 ? ", " : "", ash_route_models_get(models, i).name);
    if (count > LISTED_MAX) ash_str_addf(names, ", ... (%zu)", count);
}

size_t ash_route_call_find_model(struct ash_route_call *call)
{
    const char *name = call->prompt.model;
    size_t model = ash_route_models_find(call->router->opts.models, name);
    struct ash_str names = {0};

    if (model != ASH_ROUTE_NO_MODEL) return model;
    list_names(call, &names);
    if (name[0] == '\0')
        ash_route_call_refuse(call, 400, "missing_required_parameter",
                              "model name is missing from the request: this server has %s",
                              names.data != NULL ? names.data : "");
    else
        ash_route_call_refuse(call, 404, "model_not_found", "The model `%.100s` does not exist: this server has %s",
                              name, names.data != NULL ? names.data : "");
    ash_str_fini(&names);
    return ASH_ROUTE_NO_MODEL;
}

static void set_use(struct ash_route_call *call, enum ash_route_model_use use)
{
    bool may = ash_route_models_use(call->router->opts.models, call->model, call->use, use);

    ash_assert(may);
    call->use = use;
}

/* A request of Ollama's clients that only puts the model away: answer it, and return true. */
static bool unloads(struct ash_route_call *call)
{
    const char *path = ash_http_path(call->exchange);
    bool is_generate = strcmp(path, "/api/generate") == 0;
    char now[ASH_OLLAMA_TIME_BYTES];
    json_t *json;

    if (!is_generate && strcmp(path, "/api/chat") != 0) return false;
    if (!call->prompt.is_empty || call->prompt.keep_seconds != 0) return false;
    ash_route_models_want(call->router->opts.models, call->model, false);
    json = json_pack("{s:s, s:s, s:b, s:s}", "model", call->prompt.model, "created_at",
                     ash_ollama_time((int64_t)ash_clock_wall_s(), now), "done", 1, "done_reason", "unload");
    if (is_generate)
        json_object_set_new(json, "response", json_string(""));
    else
        json_object_set_new(json, "message", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    ash_route_call_respond(call, json);
    return true;
}

bool ash_route_call_claim(struct ash_route_call *call)
{
    struct ash_route_models *models = call->router->opts.models;

    if (call->goes_to_all && call->prompt.model[0] == '\0') return true;
    if (call->model == ASH_ROUTE_NO_MODEL) {
        call->model = ash_route_call_find_model(call);
        if (call->model == ASH_ROUTE_NO_MODEL || unloads(call)) return false;
    }
    ash_assert(call->use != ASH_ROUTE_MODEL_RUNS);
    if (ash_route_models_use(models, call->model, call->use, ASH_ROUTE_MODEL_RUNS)) {
        call->use = ASH_ROUTE_MODEL_RUNS;
        return true;
    }
    ash_route_call_await(call);
    return false;
}

void ash_route_call_await(struct ash_route_call *call)
{
    const struct ash_router *router = call->router;
    struct ash_route_model facts = ash_route_models_get(router->opts.models, call->model);
    uint64_t now_ns = ash_clock_ns();

    if (call->wait_end_ns == 0) {
        call->wait_end_ns = now_ns + (uint64_t)(router->opts.load_seconds * 1e9);
        call->failures = facts.failures;
    }
    call->try_count = 0; /* its server may be another one when it comes back */
    if (call->failures != facts.failures)
        ash_route_call_refuse(call, 500, "model_failed",
                              "the model %s could not be loaded: its server ended with code %d, and its log says why",
                              facts.name, facts.exit_code);
    else if (now_ns >= call->wait_end_ns)
        ash_route_call_refuse(call, 503, "model_loading",
                              "the model %s is not loaded after %g s (--load-seconds): try again", facts.name,
                              router->opts.load_seconds);
    else
        set_use(call, ASH_ROUTE_MODEL_WAITS);
}
