/* POST /v1/responses/input_tokens, and the items of a response's input: messages, calls and their outputs. */
#include "serve/api/responses_read.h"

#include <stdio.h>
#include <string.h>

#include "serve/api/grammars.h"
#include "serve/api/handlers.h"
#include "serve/api/responses_memory.h"

static void wrong(struct ash_api_request *request, const char *param, const char *text)
{
    ash_api_err_set(&request->err, 400, "invalid_value", param, "'%s' %s", param, text);
}

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void add(struct ash_conversation *conversation, struct ash_api_request *request, json_t *message,
                const char *param)
{
    if (message == NULL)
        wrong(request, param, "lacks a field");
    else
        ash_conversation_add(conversation, request, message, param);
    json_decref(message);
}

/* A call joins the assistant's message before it, if there is one: a turn may have several. */
static void add_call(struct ash_conversation *conversation, struct ash_api_request *request, const json_t *item,
                     const char *param)
{
    size_t count = json_array_size(conversation->messages);
    json_t *last = count > 0 ? json_array_get(conversation->messages, count - 1) : NULL;
    json_t *message = json_pack("{s:s, s:n, s:[{s:O*, s:s, s:{s:O, s:O}}]}", "role", "assistant", "content",
                                "tool_calls", "id", json_object_get(item, "call_id"), "type", "function", "function",
                                "name", json_object_get(item, "name"), "arguments", json_object_get(item, "arguments"));
    json_t *calls = json_object_get(last, "tool_calls");

    add(conversation, request, message, param);
    if (request->err.status != 0 || strcmp(string_of(last, "role"), "assistant") != 0) return;
    message = json_array_get(conversation->messages, count);
    if (calls != NULL)
        json_array_extend(calls, json_object_get(message, "tool_calls"));
    else
        json_object_set(last, "tool_calls", json_object_get(message, "tool_calls"));
    json_array_remove(conversation->messages, count);
}

static void add_item(struct ash_conversation *conversation, struct ash_api_request *request, const json_t *item,
                     const char *param)
{
    const char *type = string_of(item, "type");

    if (type[0] == '\0' || strcmp(type, "message") == 0)
        ash_conversation_add(conversation, request, item, param);
    else if (strcmp(type, "function_call") == 0)
        add_call(conversation, request, item, param);
    else if (strcmp(type, "function_call_output") == 0)
        add(conversation, request,
            json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", json_object_get(item, "call_id"), "content",
                      json_object_get(item, "output")),
            param);
    else if (strcmp(type, "reasoning") != 0)
        ash_api_err_set(&request->err, 400, "unsupported_content", param, "'%s' is of type %.40s, which is not served",
                        param, type);
}

/* ---- the input --------------------------------------------------------------------------------------------------- */

static uint64_t owner_of(const struct ash_api_request *request)
{
    return ash_key_id(ash_http_key(request->exchange));
}

/* The items of the response that this one follows, or an empty list. */
static json_t *read_previous(struct ash_api_request *request)
{
    const char *id = ash_fields_string(&request->fields, "previous_response_id");
    size_t limit_bytes = request->api->opts.responses_bytes;
    json_t *items = NULL;

    if (id == NULL) return json_array();
    items = ash_responses_memory_get(request->api->responses, owner_of(request), id);
    if (items != NULL) return items;
    ash_api_err_set(&request->err, 400, "previous_response_not_found", "previous_response_id",
                    "Previous response with id '%.100s' not found: this server keeps the last %zu bytes of responses "
                    "(--responses-memory); send the whole input",
                    id, limit_bytes);
    return json_array();
}

/* An item, or the one that it refers to. */
static void append_item(json_t *items, struct ash_api_request *request, json_t *item, const char *param)
{
    const char *id = string_of(item, "id");
    json_t *found;

    if (strcmp(string_of(item, "type"), "item_reference") != 0) {
        json_array_append(items, item);
        return;
    }
    found = ash_responses_memory_find_item(request->api->responses, owner_of(request), id);
    if (found == NULL)
        ash_api_err_set(&request->err, 404, "item_not_found", param,
                        "Item with id '%.100s' not found: this server keeps the last %zu bytes of responses "
                        "(--responses-memory); send the item itself",
                        id, request->api->opts.responses_bytes);
    else
        json_array_append_new(items, found);
}

/* The whole input as items: those of the previous response, then the request's. */
static json_t *read_items(struct ash_api_request *request)
{
    const json_t *input = ash_fields_any(&request->fields, "input");
    json_t *items = read_previous(request);

    if (json_is_string(input))
        json_array_append_new(items, json_pack("{s:s, s:s, s:O}", "type", "message", "role", "user", "content", input));
    else if (json_array_size(input) == 0)
        ash_api_err_set(&request->err, 400, input == NULL ? "missing_required_parameter" : "invalid_value", "input",
                        "'input' must be a text or a list of items");
    for (size_t i = 0; i < json_array_size(input) && request->err.status == 0; i++) {
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "input[%zu]", i);
        append_item(items, request, json_array_get(input, i), param);
    }
    return items;
}

static void add_items(struct ash_conversation *conversation, struct ash_api_request *request, const json_t *items)
{
    const json_t *instructions = ash_fields_any(&request->fields, "instructions");

    if (instructions != NULL)
        add(conversation, request, json_pack("{s:s, s:O}", "role", "system", "content", instructions), "instructions");
    for (size_t i = 0; i < json_array_size(items) && request->err.status == 0; i++) {
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "input[%zu]", i);
        add_item(conversation, request, json_array_get(items, i), param);
    }
}

/* ---- tools and forms --------------------------------------------------------------------------------------------- */

/* Tools here are flat: {"type": "function", "name": …, "parameters": …}. */
static void read_tools(struct ash_conversation *conversation, struct ash_api_request *request)
{
    const json_t *tools = ash_fields_array(&request->fields, "tools");
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(tools) && request->err.status == 0; i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *name = json_object_get(tool, "name");
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "tools[%zu]", i);
        if (strcmp(string_of(tool, "type"), "function") != 0 || !json_is_string(name))
            wrong(request, param, "must be a function with a name: this server has no built-in tools");
        else
            json_array_append_new(list, json_pack("{s:s, s:{s:O, s:O*, s:O*, s:O*}}", "type", "function", "function",
                                                  "name", name, "description", json_object_get(tool, "description"),
                                                  "parameters", json_object_get(tool, "parameters"), "strict",
                                                  json_object_get(tool, "strict")));
    }
    if (json_array_size(list) > 0)
        conversation->tools = list;
    else
        json_decref(list);
}

/* {"format": {"type": "json_schema", "schema": …}} */
static void read_text(struct ash_api_call *call, struct ash_api_request *request)
{
    const json_t *text = ash_fields_object(&request->fields, "text"), *format = json_object_get(text, "format");
    const char *type = string_of(format, "type");

    if (format == NULL || strcmp(type, "text") == 0) return;
    if (strcmp(type, "json_object") == 0)
        ash_api_grammars_set_object(call, request, "text.format");
    else if (strcmp(type, "json_schema") == 0)
        ash_api_grammars_set_schema(call, request, json_object_get(format, "schema"), "text.format.schema",
                                    !json_is_true(json_object_get(format, "strict")));
    else
        wrong(request, "text.format", "must be of type text, json_object or json_schema");
}

/* What needs a server that keeps more than its last responses. */
static void refuse_state(struct ash_api_request *request)
{
    static const char *const keys[] = {"conversation", "prompt"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (ash_fields_has(&request->fields, keys[i]))
            ash_fields_wrong(&request->fields, keys[i], "needs a server that keeps them: send the whole input");
    if (ash_fields_bool(&request->fields, "background", false))
        ash_fields_wrong(&request->fields, "background", "needs a server that keeps what it did meanwhile");
}

/* "include": ["message.output_text.logprobs"], and how many of the likeliest tokens. */
static void read_logprobs(struct ash_api_call *call, struct ash_chat_call *chat, struct ash_api_request *request)
{
    const json_t *include = ash_fields_array(&request->fields, "include");
    int64_t top = ash_fields_int(&request->fields, "top_logprobs", 0, ASH_SAMPLING_LOGPROBS_MAX, 0);

    chat->has_logprobs = top > 0;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *name = json_string_value(json_array_get(include, i));

        if (name != NULL && strcmp(name, "message.output_text.logprobs") == 0) chat->has_logprobs = true;
    }
    if (chat->has_logprobs) call->sampling.top_logprobs = (int)top;
}

static void read_truncation(struct ash_chat_call *chat, struct ash_api_request *request)
{
    const char *truncation = ash_fields_string(&request->fields, "truncation");

    chat->drops_oldest = truncation != NULL && strcmp(truncation, "auto") == 0;
    if (truncation != NULL && !chat->drops_oldest && strcmp(truncation, "disabled") != 0)
        ash_fields_wrong(&request->fields, "truncation", "must be auto or disabled");
}

static void read_all_input(struct ash_chat_call *chat, struct ash_api_request *request, json_t **items_out)
{
    const json_t *kwargs = ash_fields_object(&request->fields, "chat_template_kwargs");

    refuse_state(request);
    if (kwargs != NULL) chat->conversation.kwargs = json_incref((json_t *)(uintptr_t)kwargs);
    *items_out = read_items(request);
    add_items(&chat->conversation, request, *items_out);
    read_tools(&chat->conversation, request);
    ash_tool_policy_read(&chat->policy, &chat->conversation, request);
}

void ash_responses_read(struct ash_api_call *call, struct ash_chat_call *chat, struct ash_api_request *request,
                        json_t **items_out)
{
    read_all_input(chat, request, items_out);
    read_text(call, request);
    read_logprobs(call, chat, request);
    read_truncation(chat, request);
    ash_fields_ignore(&request->fields,
                      "reasoning max_tool_calls stream_options prompt_cache_retention context_management");
}

void ash_api_response_tokens(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_chat_call chat = {0};
    struct ash_prompts prompts = {0};
    struct ash_str text = {0};
    json_t *items = NULL;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    ash_api_check_model(&request);
    read_all_input(&chat, &request, &items);
    ash_conversation_render(&chat.conversation, &request, &text);
    if (request.err.status == 0) ash_prompts_add_text(&prompts, &request, &text, false);
    if (!ash_api_request_failed(&request))
        ash_api_respond_json(exchange, 200,
                             json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                                       (json_int_t)prompts.items[0].count));
    json_decref(items);
    ash_str_fini(&text);
    ash_prompts_fini(&prompts);
    ash_conversation_fini(&chat.conversation);
    ash_api_request_fini(&request);
}
