/* POST /v1/chat/completions. */
#include "serve/api/chat_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_put.h"
#include "serve/api/grammars.h"
#include "serve/api/handlers.h"
#include "serve/api/openai.h"
#include "serve/api/strategy.h"

#define CHUNK "chat.completion.chunk"

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* {"id":…,"type":"function","function":{"name":…,"arguments":…}} */
static void write_call(const struct ash_tool_call *tool, struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "id", tool->id);
    ash_json_put_text(out, "type", "function");
    ash_json_put_begin(out, "function", '{');
    ash_json_put_text(out, "name", tool->name);
    ash_json_put_string(out, "arguments", tool->arguments.data, tool->arguments.size_bytes);
    ash_str_adds(out, "}}");
}

static void write_message(const struct ash_message_parts *message, struct ash_str *out)
{
    const struct ash_str *content = &message->content, *reasoning = &message->reasoning;

    ash_json_put_begin(out, "message", '{');
    ash_json_put_text(out, "role", "assistant");
    if (content->size_bytes == 0 && (message->call_count > 0 || reasoning->size_bytes > 0))
        ash_json_put_null(out, "content");
    else
        ash_json_put_string(out, "content", content->data, content->size_bytes);
    ash_json_put_null(out, "refusal");
    if (reasoning->size_bytes > 0)
        ash_json_put_string(out, "reasoning_content", reasoning->data, reasoning->size_bytes);
    if (message->call_count > 0) {
        ash_json_put_begin(out, "tool_calls", '[');
        for (size_t i = 0; i < message->call_count; i++)
            write_call(&message->calls[i], out);
        ash_json_put_end(out, ']');
    }
    ash_json_put_end(out, '}');
}

/* "logprobs":…,"token_ids":…: of these tokens. */
static void write_tokens(struct ash_api_call *call, const struct ash_token *tokens, size_t count, struct ash_str *out)
{
    const struct ash_chat_call *chat = call->state;

    if (chat->has_logprobs && count > 0)
        ash_openai_write_logprobs(call->api, tokens, count, (size_t)call->sampling.top_logprobs, out);
    else
        ash_json_put_null(out, "logprobs");
    if (call->sampling.returns_ids) ash_openai_write_token_ids("token_ids", tokens, count, out);
}

/* index: in the response. */
static void write_choice(struct ash_api_call *call, struct ash_api_choice *choice, size_t index, struct ash_str *out)
{
    struct ash_message_parts message = {0};

    ash_str_fail(out, ash_chat_call_read(call, choice, &message));
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_int(out, "index", (int64_t)index);
    write_message(&message, out);
    write_tokens(call, ash_token_list_view(&choice->tokens), choice->tokens.count, out);
    ash_json_put_text(out, "finish_reason", ash_chat_call_reason(choice, message.call_count));
    ash_openai_write_stop_reason(call, choice, out);
    ash_json_put_end(out, '}');
    ash_message_fini(&message);
}

static void write_prompt_fields(struct ash_api_call *call, struct ash_str *out)
{
    const struct ash_ids *prompt = &call->prompts.items[0];

    if (call->sampling.prompt_logprobs >= 0) ash_openai_write_prompt_logprobs(call->api, &call->choices[0], out);
    if (call->sampling.returns_ids) ash_openai_write_ids("prompt_token_ids", prompt->data, prompt->count, out);
}

/* What the answers say, without thoughts; one that only calls tools votes with its whole text. */
static int read_contents(struct ash_api_call *call, struct ash_message_parts *messages, const char **texts)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < call->choice_count; i++) {
        const struct ash_str *all = &call->choices[i].text;

        rc = ash_chat_call_read(call, &call->choices[i], &messages[i]);
        texts[i] = messages[i].content.size_bytes > 0 ? messages[i].content.data : all->data != NULL ? all->data : "";
    }
    return rc;
}

/* The one that counts. */
static void write_chosen(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_message_parts *messages = calloc(call->choice_count, sizeof(*messages));
    const char **texts = calloc(call->choice_count, sizeof(*texts));
    size_t chosen = 0;
    int rc = messages != NULL && texts != NULL ? read_contents(call, messages, texts) : -ENOMEM;

    if (rc == 0) rc = ash_strategy_choose(call, 0, texts, &chosen);
    for (size_t i = 0; messages != NULL && i < call->choice_count; i++)
        ash_message_fini(&messages[i]);
    free(messages);
    free(texts);
    if (ash_str_fail(out, rc) == 0) write_choice(call, &call->choices[chosen], 0, out);
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    ash_openai_write_head(call, "chat.completion", out);
    ash_json_put_begin(out, "choices", '[');
    if (call->sampling.strategy != ASH_STRATEGY_GREEDY)
        write_chosen(call, out);
    else
        for (size_t i = 0; i < call->choice_count; i++)
            write_choice(call, &call->choices[i], i, out);
    ash_json_put_end(out, ']');
    write_prompt_fields(call, out);
    ash_openai_write_usage(call, out);
    ash_json_put_end(out, '}');
    return out->rc;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

/* The event up to its delta, and from there on. */
static void begin_event(struct ash_api_call *call, const struct ash_api_choice *choice, struct ash_str *out)
{
    ash_event_begin(out);
    ash_openai_write_head(call, CHUNK, out);
    ash_str_addf(out, ",\"choices\":[{\"index\":%zu,\"delta\":{", choice->index);
}

static int end_event(struct ash_api_call *call, struct ash_str *out)
{
    ash_str_adds(out, "}]");
    ash_openai_write_running_usage(call, out);
    ash_json_put_end(out, '}');
    return ash_event_end(out);
}

/* Where the parts of one delta go: tokens are told with the first event of it. */
struct sink {
    struct ash_api_call *call;
    struct ash_api_choice *choice;
    const struct ash_delta *delta; /* NULL: its tokens were told */
    struct ash_str *out;
};

static int end_sink_event(struct sink *sink)
{
    const struct ash_delta *delta = sink->delta;

    ash_json_put_end(sink->out, '}');
    write_tokens(sink->call, delta != NULL ? delta->tokens : NULL, delta != NULL ? delta->token_count : 0, sink->out);
    sink->delta = NULL;
    ash_json_put_null(sink->out, "finish_reason");
    return end_event(sink->call, sink->out);
}

static void write_call_part(struct sink *sink, const struct ash_part *part)
{
    struct ash_str *out = sink->out;

    ash_json_put_begin(out, "tool_calls", '[');
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_int(out, "index", (int64_t)part->call);
    if (part->kind == ASH_PART_CALL) {
        ash_json_put_text(out, "id", part->id);
        ash_json_put_text(out, "type", "function");
    }
    ash_json_put_begin(out, "function", '{');
    ash_json_put_string(out, part->kind == ASH_PART_CALL ? "name" : "arguments", part->text, part->size_bytes);
    if (part->kind == ASH_PART_CALL) ash_json_put_text(out, "arguments", "");
    ash_str_adds(out, "}}]");
}

static int see_part(void *ctx, const struct ash_part *part)
{
    struct sink *sink = ctx;

    begin_event(sink->call, sink->choice, sink->out);
    if (part->kind == ASH_PART_CALL || part->kind == ASH_PART_ARGUMENTS)
        write_call_part(sink, part);
    else
        ash_json_put_string(sink->out, part->kind == ASH_PART_REASONING ? "reasoning_content" : "content", part->text,
                            part->size_bytes);
    return end_sink_event(sink);
}

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    for (size_t i = 0; i < call->choice_count; i++) {
        begin_event(call, &call->choices[i], out);
        ash_str_adds(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null");
        end_event(call, out);
    }
    return out->rc;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    const struct ash_chat_call *chat = call->state;
    struct sink sink = {call, choice, delta, out};
    int rc = ash_chat_call_push(choice, delta, see_part, &sink);

    if (rc < 0 || sink.delta == NULL || !(chat->has_logprobs || call->sampling.returns_ids)) return rc;
    begin_event(call, choice, out); /* the parser holds the text back, but the tokens are known */
    return end_sink_event(&sink);
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    struct sink sink = {call, choice, NULL, out};
    size_t call_count = 0;

    ash_str_fail(out, ash_chat_call_finish(choice, see_part, &sink, &call_count));
    begin_event(call, choice, out);
    ash_str_adds(out, "},\"logprobs\":null");
    ash_json_put_text(out, "finish_reason", ash_chat_call_reason(choice, call_count));
    ash_openai_write_stop_reason(call, choice, out);
    return end_event(call, out);
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    ash_openai_write_end(call, CHUNK, out);
    return out->rc;
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
                                     .free_state = ash_chat_call_free};

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void read_logprobs(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    int64_t top = ash_fields_int(&request->fields, "top_logprobs", 0, ASH_SAMPLING_LOGPROBS_MAX, 0);

    chat->has_logprobs = ash_fields_bool(&request->fields, "logprobs", false);
    if (chat->has_logprobs)
        call->sampling.top_logprobs = (int)top;
    else if (top > 0)
        ash_fields_wrong(&request->fields, "top_logprobs", "needs logprobs=true");
}

/* What would give another answer than the client expects. */
static void refuse_others(struct ash_api_request *request)
{
    const json_t *modalities = ash_fields_array(&request->fields, "modalities");

    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *name = json_string_value(json_array_get(modalities, i));

        if (name == NULL || strcmp(name, "text") != 0)
            ash_fields_wrong(&request->fields, "modalities",
                             "can only be text: this server makes no sound or pictures");
    }
    if (ash_fields_has(&request->fields, "web_search_options"))
        ash_fields_wrong(&request->fields, "web_search_options", "needs a server that searches: this one does not");
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    static const char *const max_keys[] = {"max_completion_tokens", "max_tokens", "n_predict", NULL};

    ash_api_check_model(request);
    ash_openai_read_stream(call, request);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_OPENAI);
    ash_sampling_read_stops(&call->sampling, request, "stop");
    ash_sampling_read_max(&call->sampling, request, max_keys, ASH_SAMPLING_UNLIMITED);
    read_logprobs(call, request, chat);
    ash_sampling_read_strategy(&call->sampling, request, call->is_stream);
    ash_conversation_read(&chat->conversation, request);
    ash_tool_policy_read(&chat->policy, &chat->conversation, request);
    chat->parts.has_reasoning = ash_fields_bool(&request->fields, "include_reasoning", true) &&
                                ash_fields_bool(&request->fields, "separate_reasoning", true);
    ash_api_grammars_read(call, request);
    refuse_others(request);
    ash_fields_ignore(&request->fields, "reasoning_effort verbosity modalities prediction echo");
    if (request->err.status == 0) ash_chat_call_prepare(call, request, chat);
    ash_api_check_unknown(request);
}

void ash_api_chat(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    call = ash_chat_call_open(&request, &form, "chatcmpl-", sizeof(struct ash_chat_call));
    if (call != NULL) read_request(call, &request, call->state);
    ash_chat_call_start(call, &request);
}
