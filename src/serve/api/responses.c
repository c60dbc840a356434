/* POST /v1/responses. Events are built as JSON values,
 * because a finished item appears in three of them. */
#include "serve/api/responses_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_put.h"
#include "serve/api/handlers.h"
#include "serve/api/openai.h"
#include "serve/api/responses_memory.h"

/* A stream is a list of items, one after the other. */
struct response_call {
    struct ash_chat_call chat; /* first: call->state */
    size_t sequence;           /* number of the next event */
    json_t *output;            /* items that are finished */
    bool is_open;              /* an item continues */
    enum ash_part_kind kind;   /* of it */
    struct ash_str text;       /* its text, or a call's arguments */
    char name[128], id[48];    /* of a call */
    struct ash_str input;      /* the items of the input as a JSON array, to be kept; empty: nothing is */
    json_t *logprobs, *news;   /* of the item's tokens; of tokens whose text has not come yet. NULL: not asked for */
};

static void free_state(struct ash_api_call *call)
{
    struct response_call *response = call->state;

    if (response != NULL) {
        json_decref(response->output);
        json_decref(response->logprobs);
        json_decref(response->news);
        ash_str_fini(&response->input);
        ash_str_fini(&response->text);
    }
    ash_chat_call_free(call);
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static json_t *text_value(const struct ash_str *text)
{
    return json_stringn_nocheck(text->data != NULL ? text->data : "", text->size_bytes);
}

/* The id of item `index`: "msg_…", "rs_…", "fc_…". */
static json_t *item_id(const struct ash_api_call *call, enum ash_part_kind kind, size_t index)
{
    static const char *const prefixes[] = {
        [ASH_PART_REASONING] = "rs", [ASH_PART_CONTENT] = "msg", [ASH_PART_CALL] = "fc", [ASH_PART_ARGUMENTS] = "fc"};

    return json_sprintf("%s_%s_%zu", prefixes[kind], call->id + strlen("resp_"), index);
}

/* logprobs: taken; NULL: none. */
static json_t *part_json(enum ash_part_kind kind, json_t *text, json_t *logprobs)
{
    if (kind == ASH_PART_REASONING) {
        json_decref(logprobs);
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    }
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations", "logprobs",
                     logprobs != NULL ? logprobs : json_array());
}

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

/* Those of tokens as a list, or NULL if they were not asked for. */
static json_t *logprobs_json(const struct ash_api_call *call, const struct ash_token *tokens, size_t count)
{
    const struct response_call *response = call->state;
    struct ash_str text = {0};
    json_t *json, *list;

    if (!response->chat.has_logprobs) return NULL;
    ash_json_put_begin(&text, NULL, '{');
    ash_openai_write_logprobs(call->api, tokens, count, (size_t)call->sampling.top_logprobs, &text);
    ash_json_put_end(&text, '}');
    json = text.rc == 0 ? json_loadb(text.data, text.size_bytes, 0, NULL) : NULL;
    list = json_incref(json_object_get(json_object_get(json, "logprobs"), "content"));
    json_decref(json);
    ash_str_fini(&text);
    return list;
}

/* The part that a piece of content brought: from now on it is the item's. A new reference, or NULL. */
static json_t *take_news(struct response_call *response)
{
    json_t *news = response->news;

    if (news == NULL) return NULL;
    json_array_extend(response->logprobs, news);
    response->news = json_array();
    return news;
}

/* The item at work. status "in_progress": without its text. */
static json_t *item_json(const struct ash_api_call *call, const char *status)
{
    const struct response_call *response = call->state;
    size_t index = json_array_size(response->output);
    bool is_done = strcmp(status, "in_progress") != 0;
    json_t *id = item_id(call, response->kind, index), *content;

    if (response->kind == ASH_PART_CALL)
        return json_pack("{s:s, s:o, s:s, s:s, s:s, s:o}", "type", "function_call", "id", id, "status", status,
                         "call_id", response->id, "name", response->name, "arguments",
                         is_done ? text_value(&response->text) : json_string(""));
    content = json_array();
    if (is_done)
        json_array_append_new(content,
                              part_json(response->kind, text_value(&response->text), json_incref(response->logprobs)));
    if (response->kind == ASH_PART_REASONING)
        return json_pack("{s:s, s:o, s:s, s:[], s:o}", "type", "reasoning", "id", id, "status", status, "summary",
                         "content", content);
    return json_pack("{s:s, s:o, s:s, s:s, s:o}", "type", "message", "id", id, "status", status, "role", "assistant",
                     "content", content);
}

/* ---- the response ------------------------------------------------------------------------------------------------ */

static json_t *usage_json(struct ash_api_call *call)
{
    struct ash_usage usage = ash_call_usage(call);

    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)usage.prompt_tokens,
                     "input_tokens_details", "cached_tokens", (json_int_t)usage.cached_tokens, "output_tokens",
                     (json_int_t)usage.answer_tokens, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)usage.thought_tokens, "total_tokens",
                     (json_int_t)(usage.prompt_tokens + usage.answer_tokens));
}

/* A field of the request as it came, or another value. */
static void set_echo(json_t *json, const struct ash_api_call *call, const char *key, json_t *otherwise)
{
    const struct response_call *response = call->state;
    json_t *value = json_object_get(response->chat.json, key);

    json_object_set(json, key, value != NULL ? value : otherwise);
    json_decref(otherwise);
}

/* status NULL: it is in progress. */
static json_t *response_json(struct ash_api_call *call, const char *status)
{
    const struct response_call *response = call->state;
    json_t *output = status != NULL ? json_incref(response->output) : json_array();
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:n, s:n, s:b, s:f, s:f}", "id", call->id, "object", "response",
                  "created_at", (json_int_t)call->created_s, "status", status != NULL ? status : "in_progress", "model",
                  call->model, "output", output, "error", "incomplete_details", "store", response->input.size_bytes > 0,
                  "temperature", call->sampling.sampler.temperature, "top_p", call->sampling.sampler.top_p);

    if (json == NULL) return NULL;
    set_echo(json, call, "instructions", json_null());
    set_echo(json, call, "previous_response_id", json_null());
    set_echo(json, call, "max_output_tokens", json_null());
    set_echo(json, call, "metadata", json_object());
    set_echo(json, call, "parallel_tool_calls", json_true());
    set_echo(json, call, "tool_choice", json_string("auto"));
    set_echo(json, call, "tools", json_array());
    set_echo(json, call, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    set_echo(json, call, "reasoning", json_object());
    set_echo(json, call, "truncation", json_string("disabled"));
    json_object_set_new(json, "usage", status != NULL ? usage_json(call) : json_null());
    if (status != NULL && strcmp(status, "incomplete") == 0)
        json_object_set_new(json, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    return json;
}

static const char *final_status(const struct ash_api_call *call)
{
    return strcmp(ash_api_choice_reason(&call->choices[0]), "length") == 0 ? "incomplete" : "completed";
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* Write an event; takes json, which lacks its type and number. */
static int write_event(struct ash_api_call *call, const char *type, json_t *json, struct ash_str *out)
{
    struct response_call *response = call->state;

    if (json == NULL) return -ENOMEM;
    json_object_set_new(json, "type", json_string(type));
    json_object_set_new(json, "sequence_number", json_integer((json_int_t)response->sequence++));
    ash_str_addf(out, "event: %s\ndata: ", type);
    ash_json_put_json(out, NULL, json);
    json_decref(json);
    return ash_event_end(out);
}

/* An event of the item at work: its id and place, and one more field (taken). */
static int write_item_event(struct ash_api_call *call, const char *type, const char *key, json_t *value,
                            struct ash_str *out)
{
    struct response_call *response = call->state;
    bool is_delta = strcmp(key, "delta") == 0;
    json_t *logprobs = is_delta ? take_news(response) : json_incref(response->logprobs);
    size_t index = json_array_size(response->output);
    json_t *json = json_pack("{s:o, s:I, s:o}", "item_id", item_id(call, response->kind, index), "output_index",
                             (json_int_t)index, key, value);

    if (json != NULL && response->kind != ASH_PART_CALL) json_object_set_new(json, "content_index", json_integer(0));
    if (json != NULL && response->kind == ASH_PART_CONTENT && strncmp(type, "response.output_text", 20) == 0)
        json_object_set_new(json, "logprobs", logprobs != NULL ? json_incref(logprobs) : json_array());
    json_decref(logprobs);
    return write_event(call, type, json, out);
}

static int write_added(struct ash_api_call *call, const char *type, const char *status, struct ash_str *out)
{
    struct response_call *response = call->state;

    return write_event(call, type,
                       json_pack("{s:I, s:o}", "output_index", (json_int_t)json_array_size(response->output), "item",
                                 item_json(call, status)),
                       out);
}

static int open_item(struct ash_api_call *call, const struct ash_part *part, struct ash_str *out)
{
    struct response_call *response = call->state;
    int rc;

    response->is_open = true;
    response->kind = part->kind;
    ash_str_clear(&response->text);
    json_array_clear(response->logprobs);
    if (part->kind != ASH_PART_CONTENT) json_array_clear(response->news); /* of thoughts and calls none is told */
    if (part->kind == ASH_PART_CALL) {
        snprintf(response->name, sizeof(response->name), "%.*s", (int)part->size_bytes, part->text);
        snprintf(response->id, sizeof(response->id), "%s", part->id);
    }
    rc = write_added(call, "response.output_item.added", "in_progress", out);
    if (rc < 0 || part->kind == ASH_PART_CALL) return rc;
    return write_item_event(call, "response.content_part.added", "part", part_json(part->kind, json_string(""), NULL),
                            out);
}

static int close_item(struct ash_api_call *call, const char *status, struct ash_str *out)
{
    static const char *const names[] = {[ASH_PART_REASONING] = "response.reasoning_text.done",
                                        [ASH_PART_CONTENT] = "response.output_text.done",
                                        [ASH_PART_CALL] = "response.function_call_arguments.done"};
    struct response_call *response = call->state;
    bool is_call = response->kind == ASH_PART_CALL;
    int rc;

    if (!response->is_open) return 0;
    if (response->kind == ASH_PART_CONTENT) json_decref(take_news(response));
    response->is_open = false;
    rc =
        write_item_event(call, names[response->kind], is_call ? "arguments" : "text", text_value(&response->text), out);
    if (rc == 0 && !is_call)
        rc = write_item_event(call, "response.content_part.done", "part",
                              part_json(response->kind, text_value(&response->text), json_incref(response->logprobs)),
                              out);
    if (rc == 0) rc = write_added(call, "response.output_item.done", status, out);
    json_array_append_new(response->output, item_json(call, status));
    return rc;
}

/* Where parts go. */
struct sink {
    struct ash_api_call *call;
    struct ash_str *out;
};

static int see_part(void *ctx, const struct ash_part *part)
{
    static const char *const names[] = {[ASH_PART_REASONING] = "response.reasoning_text.delta",
                                        [ASH_PART_CONTENT] = "response.output_text.delta",
                                        [ASH_PART_ARGUMENTS] = "response.function_call_arguments.delta"};
    struct sink *sink = ctx;
    struct response_call *response = sink->call->state;
    bool is_new = part->kind == ASH_PART_CALL ||
                  (part->kind != ASH_PART_ARGUMENTS && (!response->is_open || response->kind != part->kind));
    int rc = 0;

    if (is_new) rc = close_item(sink->call, "completed", sink->out);
    if (rc == 0 && is_new) rc = open_item(sink->call, part, sink->out);
    if (rc < 0 || part->kind == ASH_PART_CALL) return rc;
    rc = ash_str_add(&response->text, part->text, part->size_bytes);
    if (rc < 0) return rc;
    return write_item_event(sink->call, names[part->kind], "delta", json_stringn_nocheck(part->text, part->size_bytes),
                            sink->out);
}

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    int rc = write_event(call, "response.created", json_pack("{s:o}", "response", response_json(call, NULL)), out);

    if (rc < 0) return rc;
    return write_event(call, "response.in_progress", json_pack("{s:o}", "response", response_json(call, NULL)), out);
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    struct response_call *response = call->state;
    json_t *news = logprobs_json(call, delta->tokens, delta->token_count);

    if (news != NULL) json_array_extend(response->news, news);
    json_decref(news);
    return ash_chat_call_push(choice, delta, see_part, &(struct sink){call, out});
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    size_t call_count = 0;
    int rc = ash_chat_call_finish(choice, see_part, &(struct sink){call, out}, &call_count);

    return rc == 0 ? close_item(call, final_status(call), out) : rc;
}

/* Keep the conversation up to here. */
static void keep(struct ash_api_call *call)
{
    struct response_call *response = call->state;
    struct ash_str *items = &response->input;

    if (items->size_bytes == 0) return;
    items->size_bytes--; /* the closing bracket */
    for (size_t i = 0; i < json_array_size(response->output); i++)
        ash_json_put_json(items, NULL, json_array_get(response->output, i));
    ash_json_put_end(items, ']');
    if (items->rc == 0)
        ash_responses_memory_add(call->api->responses, ash_key_id(ash_http_key(call->exchange)), call->id, items->data,
                                 items->size_bytes);
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    const char *status = final_status(call);

    keep(call);
    return write_event(call, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
                       json_pack("{s:o}", "response", response_json(call, status)), out);
}

/* The frames of a stream again, so that tokens belong to the same items. */
static int replay(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *events)
{
    const char *text = choice->text.data != NULL ? choice->text.data : "";
    const struct ash_token *tokens = ash_token_list_view(&choice->tokens);
    size_t from = 0, first = 0, count = choice->tokens.count;
    struct ash_delta delta;
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0 && call->frames_tokens; i++) {
        if (choice->ends[i] <= from) continue;
        delta = (struct ash_delta){text + from, choice->ends[i] - from, tokens + first, i + 1 - first, first};
        rc = write_delta(call, choice, &delta, events);
        from = choice->ends[i];
        first = i + 1;
    }
    delta = (struct ash_delta){text + from, choice->text.size_bytes - from, tokens + first, count - first, first};
    if (rc == 0) rc = write_delta(call, choice, &delta, events);
    return rc == 0 ? write_finish(call, choice, events) : rc;
}

/* The whole is what a stream's events leave behind. */
static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_str events = {0};
    json_t *json;
    int rc = replay(call, &call->choices[0], &events);

    ash_str_fini(&events);
    if (rc < 0) return rc;
    keep(call);
    json = response_json(call, final_status(call));
    rc = ash_json_put_json(out, NULL, json);
    json_decref(json);
    return rc;
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
                                     .free_state = free_state};

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* The text of what will be kept, unless the client asks for none. */
static void set_input(struct response_call *response, struct ash_api_request *request, const json_t *items)
{
    if (!ash_fields_bool(&request->fields, "store", true) || request->api->opts.responses_bytes == 0) return;
    if (request->err.status != 0) return;
    ash_json_put_json(&response->input, NULL, items);
    if (response->input.rc < 0) ash_str_clear(&response->input);
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    struct response_call *response = call->state;
    json_t *items = NULL;

    ash_chat_call_read_single(call, request, "stop", "max_output_tokens");
    chat->parts.has_reasoning = true;
    ash_responses_read(call, chat, request, &items);
    set_input(response, request, items);
    json_decref(items);
    if (chat->has_logprobs) {
        call->frames_tokens = true; /* a token belongs to the part that its text is in */
        response->logprobs = json_array();
        response->news = json_array();
    }
    if (request->err.status == 0) ash_chat_call_prepare(call, request, chat);
    ash_api_check_unknown(request);
}

void ash_api_responses(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct response_call *response;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    call = ash_chat_call_open(&request, &form, "resp_", sizeof(*response));
    if (call != NULL) {
        response = call->state;
        response->output = json_array();
        read_request(call, &request, &response->chat);
    }
    ash_chat_call_start(call, &request);
}
