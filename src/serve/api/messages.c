/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's form. */
#include "serve/api/messages_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/handlers.h"
#include "serve/api/write.h"

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

static int write_stop(const struct ash_api_call *call, const struct ash_api_choice *choice, size_t call_count,
                      struct ash_str *out)
{
    int rc = ash_str_addf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(choice, call_count));

    if (rc < 0) return rc;
    if (!choice->has_stopped) return ash_str_adds(out, "null");
    return ash_write_text(out, call->sampling.stops.items[choice->stop_index]);
}

/* {"input_tokens":…}: without those from the cache, which stand apart. */
static int write_usage(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_usage usage = ash_call_usage(call);

    return ash_str_addf(out,
                        "{\"input_tokens\":%zu,\"output_tokens\":%zu,\"cache_read_input_tokens\":%zu,"
                        "\"cache_creation_input_tokens\":0}",
                        usage.prompt_tokens - usage.cached_tokens, usage.answer_tokens, usage.cached_tokens);
}

static int write_head(const struct ash_api_call *call, struct ash_str *out)
{
    int rc = ash_str_addf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", call->id);

    if (rc == 0) rc = ash_write_text(out, call->model);
    return rc == 0 ? ash_str_adds(out, ",\"content\":[") : rc;
}

static const char *begin_event(const char *name, struct ash_str *out, int *rc)
{
    *rc = ash_str_addf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
    return name;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int write_texts(const struct ash_message_parts *message, struct ash_str *out)
{
    int rc = 0;

    if (message->reasoning.size_bytes > 0) {
        rc = ash_str_adds(out, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
        if (rc == 0) rc = ash_write_string(out, message->reasoning.data, message->reasoning.size_bytes);
        if (rc == 0) rc = ash_str_adds(out, "}");
    }
    if (rc == 0 && (message->content.size_bytes > 0 || message->call_count == 0)) {
        if (message->reasoning.size_bytes > 0) rc = ash_str_adds(out, ",");
        if (rc == 0) rc = ash_str_adds(out, "{\"type\":\"text\",\"text\":");
        if (rc == 0)
            rc = ash_write_string(out, message->content.data != NULL ? message->content.data : "",
                                  message->content.size_bytes);
        if (rc == 0) rc = ash_str_adds(out, "}");
    }
    return rc;
}

/* The arguments as an object; what the model wrote without finishing it, as a text in one. */
static int write_input(const struct ash_str *arguments, struct ash_str *out)
{
    const char *text = arguments->data != NULL ? arguments->data : "{}";
    json_error_t where;
    json_t *json = json_loads(text, 0, &where);
    int rc;

    if (!json_is_object(json)) {
        json_decref(json);
        json = json_pack("{s:s}", "arguments", text);
    }
    rc = json != NULL ? ash_write_json(out, json) : -ENOMEM;
    json_decref(json);
    return rc;
}

static int write_calls(const struct ash_message_parts *message, struct ash_str *out)
{
    bool has_texts = message->reasoning.size_bytes > 0 || message->content.size_bytes > 0;
    int rc = 0;

    for (size_t i = 0; i < message->call_count && rc == 0; i++) {
        rc = ash_str_addf(out, "%s{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", has_texts || i > 0 ? "," : "",
                          message->calls[i].id);
        if (rc == 0) rc = ash_write_text(out, message->calls[i].name);
        if (rc == 0) rc = ash_str_adds(out, ",\"input\":");
        if (rc == 0) rc = write_input(&message->calls[i].arguments, out);
        if (rc == 0) rc = ash_str_adds(out, "}");
    }
    return rc;
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_api_choice *choice = &call->choices[0];
    struct ash_message_parts message = {0};
    int rc = ash_chat_call_read(call, choice, &message);

    if (rc == 0) rc = write_head(call, out);
    if (rc == 0) rc = write_texts(&message, out);
    if (rc == 0) rc = write_calls(&message, out);
    if (rc == 0) rc = ash_str_adds(out, "],");
    if (rc == 0) rc = write_stop(call, choice, message.call_count, out);
    if (rc == 0) rc = ash_str_adds(out, ",\"usage\":");
    if (rc == 0) rc = write_usage(call, out);
    ash_message_fini(&message);
    return rc == 0 ? ash_str_adds(out, "}") : rc;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    int rc;

    begin_event("message_start", out, &rc);
    if (rc == 0) rc = ash_str_adds(out, ",\"message\":");
    if (rc == 0) rc = write_head(call, out);
    if (rc == 0) rc = ash_str_adds(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    if (rc == 0) rc = write_usage(call, out);
    return rc == 0 ? ash_str_adds(out, "}}\n\n") : rc;
}

static int close_block(struct message_call *message, struct ash_str *out)
{
    int rc = 0;

    if (!message->is_open) return 0;
    message->is_open = false;
    begin_event("content_block_stop", out, &rc);
    return rc == 0 ? ash_str_addf(out, ",\"index\":%zu}\n\n", message->blocks - 1) : rc;
}

static int open_block(struct ash_api_call *call, const struct ash_part *part, struct ash_str *out)
{
    struct message_call *message = call->state;
    int rc;

    begin_event("content_block_start", out, &rc);
    if (rc == 0) rc = ash_str_addf(out, ",\"index\":%zu,\"content_block\":", message->blocks);
    message->blocks++;
    message->is_open = true;
    message->kind = part->kind;
    if (rc == 0 && part->kind == ASH_PART_REASONING)
        rc = ash_str_adds(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    if (rc == 0 && part->kind == ASH_PART_CONTENT) rc = ash_str_adds(out, "{\"type\":\"text\",\"text\":\"\"}");
    if (rc == 0 && part->kind == ASH_PART_CALL) {
        rc = ash_str_addf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"input\":{},\"name\":", part->id);
        if (rc == 0) rc = ash_write_string(out, part->text, part->size_bytes);
        if (rc == 0) rc = ash_str_adds(out, "}");
    }
    return rc == 0 ? ash_str_adds(out, "}\n\n") : rc;
}

static int write_block_delta(struct message_call *message, const struct ash_part *part, struct ash_str *out)
{
    static const char *const heads[] = {[ASH_PART_REASONING] = "\"thinking_delta\",\"thinking\":",
                                        [ASH_PART_CONTENT] = "\"text_delta\",\"text\":",
                                        [ASH_PART_ARGUMENTS] = "\"input_json_delta\",\"partial_json\":"};
    int rc;

    begin_event("content_block_delta", out, &rc);
    if (rc == 0)
        rc = ash_str_addf(out, ",\"index\":%zu,\"delta\":{\"type\":%s", message->blocks - 1, heads[part->kind]);
    if (rc == 0) rc = ash_write_string(out, part->text, part->size_bytes);
    return rc == 0 ? ash_str_adds(out, "}}\n\n") : rc;
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
    int rc = 0;

    if (is_new) rc = close_block(message, sink->out);
    if (rc == 0 && is_new) rc = open_block(sink->call, part, sink->out);
    return rc == 0 && part->kind != ASH_PART_CALL ? write_block_delta(message, part, sink->out) : rc;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    return ash_chat_call_push(choice, delta, see_part, &(struct sink){call, out});
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    size_t call_count = 0;
    int rc = ash_chat_call_finish(choice, see_part, &(struct sink){call, out}, &call_count);

    if (rc == 0) rc = close_block(call->state, out);
    if (rc == 0) begin_event("message_delta", out, &rc);
    if (rc == 0) rc = ash_str_adds(out, ",\"delta\":{");
    if (rc == 0) rc = write_stop(call, choice, call_count, out);
    if (rc == 0) rc = ash_str_adds(out, "},\"usage\":");
    if (rc == 0) rc = write_usage(call, out);
    return rc == 0 ? ash_str_adds(out, "}\n\n") : rc;
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    int rc;

    (void)call;
    begin_event("message_stop", out, &rc);
    return rc == 0 ? ash_str_adds(out, "}\n\n") : rc;
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
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

static void read_request(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    ash_chat_call_read_single(call, request, "stop_sequences", "max_tokens");
    if (!ash_fields_has(&request->fields, "max_tokens") && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "missing_required_parameter", "max_tokens", "'max_tokens' is missing");
    ash_messages_read(chat, request);
    read_thinking(chat, request, &call->sampling);
    ash_fields_ignore(&request->fields, "container context_management mcp_servers inference_geo speed output_config "
                                        "cache_control betas");
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
