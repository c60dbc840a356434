/* Several models as clients see them: OpenAI's list with llama.cpp's status, Ollama's lists, and requests that load a
 * model or put it away. */
#include <string.h>

#include "base/clock.h"
#include "base/json_put.h"
#include "serve/api/errors.h"
#include "serve/api/ollama_list.h"
#include "serve/api/request.h"
#include "serve/route/route_priv.h"

/* ---- OpenAI's and llama.cpp's ------------------------------------------------------------------------------------ */

/* What its server says of it; NULL: it is not loaded, or says nothing. */
static json_t *find_entry(const struct ash_router *router, size_t model, const char *name)
{
    for (const struct ash_replica *replica = router->replicas; replica != NULL; replica = replica->next) {
        if (replica->target.model != model || !ash_replica_is_usable(replica)) continue;
        for (size_t i = 0; i < json_array_size(replica->models); i++) {
            json_t *entry = json_array_get(replica->models, i);
            const char *id = json_string_value(json_object_get(entry, "id"));

            if (id != NULL && strcmp(id, name) == 0) return entry;
        }
    }
    return NULL;
}

static json_t *status_json(const struct ash_route_model *facts)
{
    static const char *const names[ASH_ROUTE_MODEL_STATES] = {"unloaded", "loading", "loaded", "loaded", "unloaded"};
    json_t *status = json_pack("{s:s}", "value", names[facts->state]);

    if (facts->state != ASH_ROUTE_MODEL_UNLOADED || facts->exit_code == 0) return status;
    json_object_set_new(status, "failed", json_true());
    json_object_set_new(status, "exit_code", json_integer(facts->exit_code));
    return status;
}

static json_t *model_json(const struct ash_router *router, size_t model)
{
    struct ash_route_model facts = ash_route_models_get(router->opts.models, model);
    json_t *known = find_entry(router, model, facts.name);
    json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:s, s:n}", "id", facts.name, "object", "model", "created",
                             (json_int_t)facts.created_s, "owned_by", "ashlar", "root", facts.path, "parent");

    if (known != NULL) json_object_update(json, known);
    json_object_set_new(json, "path", json_string(facts.path));
    json_object_set_new(json, "size", json_integer((json_int_t)facts.bytes));
    json_object_set_new(json, "status", status_json(&facts));
    return json;
}

void ash_route_list_all_models(struct ash_route_call *call)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ash_route_models_count(call->router->opts.models); i++)
        json_array_append_new(list, model_json(call->router, i));
    ash_route_call_respond(call, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

void ash_route_show_model(struct ash_route_call *call)
{
    const char *name = ash_http_path(call->exchange) + strlen("/v1/models/");
    size_t model;

    if (strlen(name) < sizeof(call->prompt.model)) memcpy(call->prompt.model, name, strlen(name) + 1);
    model = ash_route_call_find_model(call);
    if (model != ASH_ROUTE_NO_MODEL) ash_route_call_respond(call, model_json(call->router, model));
}

/* ---- Ollama's ---------------------------------------------------------------------------------------------------- */

static void list_ollama(struct ash_route_call *call, bool only_loaded)
{
    struct ash_route_models *models = call->router->opts.models;
    struct ash_str body = {0};

    ash_json_put_begin(&body, NULL, '{');
    ash_json_put_begin(&body, "models", '[');
    for (size_t i = 0; i < ash_route_models_count(models); i++) {
        struct ash_route_model facts = ash_route_models_get(models, i);
        struct ash_ollama_model model = {.name = facts.name,
                                         .bytes = facts.bytes,
                                         .modified_s = facts.created_s,
                                         .has_expiry = only_loaded && facts.idle_s >= 0,
                                         .expires_s = (int64_t)(ash_clock_wall_s() + facts.idle_s)};
        bool is_loaded = facts.state == ASH_ROUTE_MODEL_LOADED || facts.state == ASH_ROUTE_MODEL_LEAVING;

        if (is_loaded || !only_loaded) ash_ollama_put_model(&model, &body);
    }
    ash_json_put_end(&body, ']');
    ash_json_put_end(&body, '}');
    call->has_begun = true;
    ash_api_respond_text(call->exchange, body.rc, &body);
    ash_route_call_end(call);
}

void ash_route_list_tags(struct ash_route_call *call)
{
    list_ollama(call, false);
}

void ash_route_list_running(struct ash_route_call *call)
{
    list_ollama(call, true);
}

/* ---- loaded and put away by request ------------------------------------------------------------------------------ */

static void want(struct ash_route_call *call, bool is_wanted)
{
    size_t model = ash_route_call_find_model(call);

    if (model == ASH_ROUTE_NO_MODEL) return;
    ash_route_models_want(call->router->opts.models, model, is_wanted);
    ash_route_call_respond(call, json_pack("{s:b}", "success", 1));
}

void ash_route_load_model(struct ash_route_call *call)
{
    want(call, true);
}

void ash_route_unload_model(struct ash_route_call *call)
{
    want(call, false);
}
