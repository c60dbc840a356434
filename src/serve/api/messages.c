/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's form. */
#include "serve/api/messages_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_put.h"
#include "serve/api/grammars.h"
#include "serve/api/handlers.h"

/* A stream is a list of blocks, one after the other. */
struct message_call {
    struct ash_chat_call chat; /* first: call->state */
    size_t blocks;             /* begun so far */
    bool is_open;              /* the last one continues */
    enum ash_part_kind kind;   /* of it */
};

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static const char *stop_reason(const struct ash_api_choice *choice, size_t call_count)
{
    if (choice->has_stopped) return "stop_sequence";
    if (strcmp(ash_api_choice_reason(choice), "length") == 0) return "max_tokens";
    return call_count > 0 ? "tool_use" : "end_turn";
}

static void write_stop(const struct ash_api_call *call, const struct ash_api_choice *choice, size_t call_count,
                       struct ash_str *out)
{
    ash_json_put_text(out, "stop_reason", stop_reason(choice, call_count));
    ash_json_put_text(out, "stop_sequence",
                      choice->has_stopped ? call->sampling.stops.items[choice->stop_index] : NULL);
}

/* "usage":{"input_tokens":…}: without those from the cache, which stand apart. */
static void write_usage(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_usage usage = ash_call_usage(call);

    ash_str_addf(out,
                 ",\"usage\":{\"input_tokens\":%zu,\"output_tokens\":%zu,\"cache_read_input_tokens\":%zu,"
                 "\"cache_creation_input_tokens\":0}",
                 usage.prompt_tokens - usage.cached_tokens, usage.answer_tokens, usage.cached_tokens);
}

static void write_head(const struct ash_api_call *call, const char *key, struct ash_str *out)
{
    ash_json_put_begin(out, key, '{');
    ash_json_put_text(out, "id", call->id);
    ash_json_put_text(out, "type", "message");
    ash_json_put_text(out, "role", "assistant");
    ash_json_put_text(out, "model", call->model);
    ash_json_put_begin(out, "content", '[');
}

static void begin_event(const char *name, struct ash_str *out)
{
    ash_str_addf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The signature of thoughts is the message's id: clients send it back with them, and it need not be checked. */
static void write_texts(const struct ash_api_call *call, const struct ash_message_parts *message, struct ash_str *out)
{
    if (message->reasoning.size_bytes > 0) {
        ash_json_put_begin(out, NULL, '{');
        ash_json_put_text(out, "type", "thinking");
        ash_json_put_text(out, "signature", call->id);
        ash_json_put_string(out, "thinking", message->reasoning.data, message->reasoning.size_bytes);
        ash_json_put_end(out, '}');
    }
    if (message->content.size_bytes > 0) {
        ash_json_put_begin(out, NULL, '{');
        ash_json_put_text(out, "type", "text");
        ash_json_put_string(out, "text", message->content.data, message->content.size_bytes);
        ash_json_put_end(out, '}');
    }
}

/* The arguments as an object; what the model wrote without finishing it, as a text in one. */
static void write_input(const struct ash_str *arguments, struct ash_str *out)
{
    const char *text = arguments->data != NULL ? arguments->data : "{}";
    json_error_t where;
    json_t *json = json_loads(text, 0, &where);

    if (!json_is_object(json)) {
        json_decref(json);
        json = json_pack("{s:s}", "arguments", text);
    }
    ash_json_put_json(out, "input", json);
    json_decref(json);
}

static void write_calls(const struct ash_message_parts *message, struct ash_str *out)
{
    for (size_t i = 0; i < message->call_count; i++) {
        ash_json_put_begin(out, NULL, '{');
        ash_json_put_text(out, "type", "tool_use");
        ash_json_put_text(out, "id", message->calls[i].id);
        ash_json_put_text(out, "name", message->calls[i].name);
        write_input(&message->calls[i].arguments, out);
        ash_json_put_end(out, '}');
    }
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_api_choice *choice = &call->choices[0];
    struct ash_message_parts message = {0};

    ash_str_fail(out, ash_chat_call_read(call, choice, &message));
    write_head(call, NULL, out);
    write_texts(call, &message, out);
    write_calls(&message, out);
    ash_json_put_end(out, ']');
    write_stop(call, choice, message.call_count, out);
    write_usage(call, out);
    ash_message_fini(&message);
    return ash_str_adds(out, "}");
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    begin_event("message_start", out);
    write_head(call, "message", out);
    ash_str_adds(out, "],\"stop_reason\":null,\"stop_sequence\":null");
    write_usage(call, out);
    return ash_str_adds(out, "}}\n\n");
}

static void close_block(const struct ash_api_call *call, struct ash_str *out)
{
    struct message_call *message = call->state;

    if (!message->is_open) return;
    message->is_open = false;
    if (message->kind == ASH_PART_REASONING) {
        begin_event("content_block_delta", out);
        ash_str_addf(out, ",\"index\":%zu,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"%s\"}}\n\n",
                     message->blocks - 1, call->id);
    }
    begin_event("content_block_stop", out);
    ash_str_addf(out, ",\"index\":%zu}\n\n", message->blocks - 1);
}

static void open_block(struct ash_api_call *call, const struct ash_part *part, struct ash_str *out)
{
    struct message_call *message = call->state;

    begin_event("content_block_start", out);
    ash_str_addf(out, ",\"index\":%zu,\"content_block\":", message->blocks);
    message->blocks++;
    message->is_open = true;
    message->kind = part->kind;
    if (part->kind == ASH_PART_REASONING)
        ash_str_adds(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    if (part->kind == ASH_PART_CONTENT) ash_str_adds(out, "{\"type\":\"text\",\"text\":\"\"}");
    if (part->kind == ASH_PART_CALL) {
        ash_str_addf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"input\":{}", part->id);
        ash_json_put_string(out, "name", part->text, part->size_bytes);
        ash_json_put_end(out, '}');
    }
    ash_str_adds(out, "}\n\n");
}

static void write_block_delta(struct message_call *message, const struct ash_part *part, struct ash_str *out)
{
    static const char *const types[] = {[ASH_PART_REASONING] = "thinking_delta",
                                        [ASH_PART_CONTENT] = "text_delta",
                                        [ASH_PART_ARGUMENTS] = "input_json_delta"};
    static const char *const keys[] = {
        [ASH_PART_REASONING] = "thinking", [ASH_PART_CONTENT] = "text", [ASH_PART_ARGUMENTS] = "partial_json"};

    begin_event("content_block_delta", out);
    ash_json_put_int(out, "index", (int64_t)message->blocks - 1);
    ash_json_put_begin(out, "delta", '{');
    ash_json_put_text(out, "type", types[part->kind]);
    ash_json_put_string(out, keys[part->kind], part->text, part->size_bytes);
    ash_str_adds(out, "}}\n\n");
}

/* Where parts go. */
struct sink {
    struct ash_api_call *call;
    struct ash_str *out;
};

static int see_part(void *ctx, const struct ash_part *part)
{
    struct sink *sink = ctx;
    struct message_call *message = sink->call->state;
    bool is_new = part->kind == ASH_PART_CALL ||
                  (part->kind != ASH_PART_ARGUMENTS && (!message->is_open || message->kind != part->kind));

    if (is_new) close_block(sink->call, sink->out);
    if (is_new) open_block(sink->call, part, sink->out);
    if (part->kind != ASH_PART_CALL) write_block_delta(message, part, sink->out);
    return sink->out->rc;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    return ash_chat_call_push(choice, delta, see_part, &(struct sink){call, out});
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    size_t call_count = 0;

    ash_str_fail(out, ash_chat_call_finish(choice, see_part, &(struct sink){call, out}, &call_count));
    close_block(call, out);
    begin_event("message_delta", out);
    ash_json_put_begin(out, "delta", '{');
    write_stop(call, choice, call_count, out);
    ash_json_put_end(out, '}');
    write_usage(call, out);
    return ash_str_adds(out, "}\n\n");
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    (void)call;
    begin_event("message_stop", out);
    return ash_str_adds(out, "}\n\n");
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
                                     .waits_for_prompt = true,
                                     .free_state = ash_chat_call_free};

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* {"type": "enabled" | "disabled"}: templates with a switch hear of it. budget_tokens bounds thoughts, where the model
 * has a token that ends them; sampling NULL: nothing is answered. */
static void read_thinking(struct ash_chat_call *chat, struct ash_api_request *request, struct ash_sampling *sampling)
{
    const json_t *thinking = ash_fields_object(&request->fields, "thinking");
    const char *type = json_string_value(json_object_get(thinking, "type"));
    json_int_t budget = json_integer_value(json_object_get(thinking, "budget_tokens"));
    json_t *kwargs;

    if (sampling != NULL && !sampling->has_think && budget > 0 && request->api->think_words.more.count > 0) {
        sampling->has_think = true;
        sampling->think_max = (size_t)budget;
    }

    chat->parts.has_reasoning = true;
    if (type == NULL) return;
    kwargs = json_pack("{s:b}", "enable_thinking", strcmp(type, "disabled") != 0);
    if (chat->conversation.kwargs != NULL) json_object_update(kwargs, chat->conversation.kwargs);
    json_decref(chat->conversation.kwargs);
    chat->conversation.kwargs = kwargs;
}

/* {"format": {"type": "json_schema", "schema": …}}, which had a name of its own before. */
static void read_format(struct ash_api_call *call, struct ash_api_request *request)
{
    const json_t *config = ash_fields_object(&request->fields, "output_config");
    const json_t *older = ash_fields_object(&request->fields, "output_format");
    const json_t *format = json_object_get(config, "format") != NULL ? json_object_get(config, "format") : older;
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *schema = json_object_get(format, "schema");

    if (format == NULL || json_is_null(format)) return;
    if (type == NULL || strcmp(type, "json_schema") != 0)
        ash_api_err_set(&request->err, 400, "invalid_value", "output_config.format",
                        "'output_config.format' must be of type json_schema");
    else
        ash_api_grammars_set_schema(call, request, schema != NULL ? schema : json_null(), "output_config.format.schema",
                                    false);
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    ash_chat_call_read_single(call, request, "stop_sequences", "max_tokens");
    if (!ash_fields_has(&request->fields, "max_tokens") && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "missing_required_parameter", "max_tokens", "'max_tokens' is missing");
    ash_messages_read(chat, request);
    read_thinking(chat, request, &call->sampling);
    read_format(call, request);
    if (json_array_size(ash_fields_array(&request->fields, "mcp_servers")) > 0)
        ash_fields_wrong(&request->fields, "mcp_servers", "needs a server that calls others: this one does not");
    ash_fields_ignore(&request->fields, "container context_management inference_geo speed cache_control betas");
    if (request->err.status == 0) ash_chat_call_prepare(call, request, chat);
    ash_api_check_unknown(request);
}

void ash_api_messages(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    call = ash_chat_call_open(&request, &form, "msg_", sizeof(struct message_call));
    if (call != NULL) read_request(call, &request, call->state);
    ash_chat_call_start(call, &request);
}

void ash_api_count_tokens(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_chat_call chat = {0};
    struct ash_prompts prompts = {0};
    struct ash_str text = {0};

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    ash_api_check_model(&request);
    ash_messages_read(&chat, &request);
    read_thinking(&chat, &request, NULL);
    ash_conversation_render(&chat.conversation, &request, &text);
    if (request.err.status == 0) ash_prompts_add_text(&prompts, &request, &text, false);
    if (!ash_api_request_failed(&request))
        ash_api_respond_json(exchange, 200, json_pack("{s:I}", "input_tokens", (json_int_t)prompts.items[0].count));
    ash_str_fini(&text);
    ash_prompts_fini(&prompts);
    ash_conversation_fini(&chat.conversation);
    ash_api_request_fini(&request);
}
