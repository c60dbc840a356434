/* What the router says of its replicas, and changes of their list over HTTP. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "observe/exporter/process.h"
#include "serve/api/errors.h"
#include "serve/api/request.h"
#include "serve/route/route_priv.h"

static json_t *describe(const struct ash_replica *replica)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "url", replica->target.name,
                     "state", ash_replica_state_name(replica), "why", replica->why, "role",
                     ash_api_roles[replica->role], "in_flight", (json_int_t)replica->in_flight, "requests",
                     (json_int_t)replica->requests, "errors", (json_int_t)replica->errors, "prompt_tokens",
                     (json_int_t)replica->prompt_tokens, "cached_tokens", (json_int_t)replica->cached_tokens,
                     "known_blocks", (json_int_t)ash_replica_known_count(replica), "kv_events", replica->has_events,
                     "listed", replica->is_listed);
}

void ash_route_list_replicas(struct ash_route_call *call)
{
    json_t *list = json_array();

    for (const struct ash_replica *replica = call->router->replicas; replica != NULL; replica = replica->next)
        json_array_append_new(list, describe(replica));
    ash_route_call_respond(call, json_pack("{s:o}", "replicas", list));
}

/* Add one that is not there, or take one that is being drained back. Its name is looked up: give an address, or the
 * router waits for the name server. */
static void add(struct ash_route_call *call, const char *url)
{
    struct ash_route_targets targets = {0};
    struct ash_err err = {0};
    int rc = ash_route_targets_add(&targets, url, &err);

    for (size_t i = 0; i < targets.count && rc == 0; i++) {
        struct ash_replica *replica = ash_replica_find(call->router, targets.items[i].name);

        if (replica == NULL) replica = ash_replica_add(call->router, &targets.items[i], false);
        if (replica == NULL) rc = ash_err_set(&err, -ENOMEM, "no memory for the replica");
        if (replica != NULL) replica->is_draining = replica->is_held = false;
    }
    ash_route_targets_fini(&targets);
    ash_router_recount(call->router);
    if (rc < 0)
        ash_route_call_refuse(call, 400, "invalid_value", "add: %s", err.text);
    else
        ash_route_list_replicas(call);
}

static void drain(struct ash_route_call *call, const char *url)
{
    struct ash_replica *replica = ash_replica_find(call->router, url);

    if (replica == NULL) {
        ash_route_call_refuse(call, 404, "not_found", "drain: there is no replica %.200s: GET /replicas lists them",
                              url);
        return;
    }
    ash_replica_drain(replica);
    ash_route_list_replicas(call);
}

void ash_route_change_replicas(struct ash_route_call *call)
{
    size_t size_bytes = 0;
    const char *body = ash_http_body(call->exchange, &size_bytes), *added, *drained;
    struct ash_err err = {0};
    json_t *json = NULL;

    if (ash_json_parse(body, size_bytes, "the request", &json, &err) < 0) {
        ash_route_call_refuse(call, 400, "invalid_json", "%s", err.text);
        return;
    }
    added = json_string_value(json_object_get(json, "add"));
    drained = json_string_value(json_object_get(json, "drain"));
    if (added != NULL && drained == NULL)
        add(call, added);
    else if (drained != NULL && added == NULL)
        drain(call, drained);
    else
        ash_route_call_refuse(call, 400, "invalid_value", "send {\"add\": URL} or {\"drain\": URL}");
    json_decref(json);
}

/* Add a model, unless one of its name is there. */
static void add_model(json_t *list, json_t *model)
{
    const char *id = json_string_value(json_object_get(model, "id"));

    for (size_t i = 0; id != NULL && i < json_array_size(list); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(list, i), "id"));

        if (other != NULL && strcmp(other, id) == 0) return;
    }
    json_array_append(list, model);
}

void ash_route_list_models(struct ash_route_call *call)
{
    bool is_known = ash_router_usable(call->router) > 0;
    json_t *list;

    for (const struct ash_replica *replica = call->router->replicas; replica != NULL; replica = replica->next)
        if (ash_replica_is_usable(replica) && replica->models == NULL) is_known = false;
    if (!is_known) { /* one of them has a list that only the client's key opens: one answers for all */
        ash_route_call_forward(call);
        return;
    }
    list = json_array();
    for (const struct ash_replica *replica = call->router->replicas; replica != NULL; replica = replica->next)
        for (size_t i = 0; ash_replica_is_usable(replica) && i < json_array_size(replica->models); i++)
            add_model(list, json_array_get(replica->models, i));
    ash_route_call_respond(call, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static void show_model_metrics(struct ash_route_call *call)
{
    size_t model = ash_route_call_find_model(call);

    if (model == ASH_ROUTE_NO_MODEL) return;
    if (ash_route_models_get(call->router->opts.models, model).state == ASH_ROUTE_MODEL_LOADED)
        ash_route_call_forward(call);
    else
        ash_route_call_refuse(call, 404, "model_not_loaded", "the model %s is not loaded: it has no metrics now",
                              call->prompt.model);
}

void ash_route_show_metrics(struct ash_route_call *call)
{
    struct ash_str body = {0};
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out;

    if (call->router->opts.models != NULL && call->prompt.model[0] != '\0') { /* those of its server */
        show_model_metrics(call);
        return;
    }
    out = open_memstream(&text, &size_bytes);
    if (out != NULL) {
        ash_metrics_write(out);
        ash_process_write(out);
        fclose(out);
    }
    body = (struct ash_str){.data = text, .size_bytes = size_bytes, .capacity_bytes = size_bytes + 1};
    call->has_begun = true;
    ash_http_respond(call->exchange, out != NULL ? 200 : 503, ASH_HTTP_TYPE_METRICS, &body);
    ash_route_call_end(call);
}
