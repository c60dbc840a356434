/* What every request form does first, and the responses that are not a stream. */
#include "serve/api/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json_put.h"
#include "base/log.h"

struct ash_api_resumable ash_api_resumable_read(const char *text)
{
    unsigned long long seed = 0;
    long long created_s = 0;
    char end = 0;

    if (text == NULL || sscanf(text, "%20llu %20lld%c", &seed, &created_s, &end) != 2)
        return (struct ash_api_resumable){0};
    return (struct ash_api_resumable){.is_set = true, .seed = seed, .created_s = created_s};
}

uint64_t ash_api_blocks_salt(struct ash_http_exchange *exchange)
{
    const char *given = ash_http_request_header(exchange, "authorization");

    if (given == NULL) given = ash_http_request_header(exchange, "x-api-key");
    return given != NULL ? ash_hash_str(given) : 0;
}

bool ash_api_request_init(struct ash_api_request *request, struct ash_api *api, struct ash_http_exchange *exchange)
{
    size_t size_bytes = 0;
    const char *body = ash_http_body(exchange, &size_bytes);

    *request = (struct ash_api_request){.api = api, .exchange = exchange};
    request->resumable = ash_api_resumable_read(ash_http_request_header(exchange, ASH_API_RESUMABLE_HEADER));
    if (!atomic_load(&api->is_ready))
        ash_api_err_set(&request->err, 503, "model_loading", NULL, "the model is being loaded: try again");
    else
        (void)ash_fields_parse(body, size_bytes, api->opts.depth_max, &request->json, &request->err);
    if (ash_api_request_failed(request)) {
        ash_http_drop_body(exchange);
        return false;
    }
    ash_fields_init(&request->fields, request->json, "", &request->err);
    return true;
}

bool ash_api_request_failed(struct ash_api_request *request)
{
    if (request->err.status == 0) return false;
    if (request->err.status == ASH_API_LATER)
        ash_http_defer(request->exchange); /* from here on its body belongs to the other thread */
    else
        ash_api_respond_err(request->exchange, &request->err);
    return true;
}

void ash_api_request_fini(struct ash_api_request *request)
{
    ash_adapters_put(request->api->engine.adapters, request->adapter);
    request->adapter = NULL;
    if (request->err.status != ASH_API_LATER) ash_http_drop_body(request->exchange);
    json_decref(request->json);
    request->json = NULL;
}

void ash_api_read_blocks(struct ash_api_request *request, struct ash_prompt_blocks *blocks_out)
{
    *blocks_out = (struct ash_prompt_blocks){0};
    if (request->api->engine.page_events == NULL) return;
    if (ash_prompt_blocks_read(request->json, ash_api_blocks_salt(request->exchange), blocks_out) < 0)
        ash_prompt_blocks_fini(blocks_out); /* without memory a router knows less, and that is all */
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
    ash_api_err_no_model(&request->err, opts->names[0], name);
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

    ash_json_put_json(&body, NULL, json);
    json_decref(json);
    if (body.rc == 0)
        ash_http_respond(exchange, status, "application/json", &body);
    else
        ash_api_respond_text(exchange, body.rc, &body);
    ash_str_fini(&body);
}
