/* POST /v1/chat/completions. */
#include "serve/api/chat_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/grammars.h"
#include "serve/api/handlers.h"
#include "serve/api/openai.h"
#include "serve/api/strategy.h"
#include "serve/api/write.h"

#define CHUNK "chat.completion.chunk"

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* {"id":…,"type":"function","function":{"name":…,"arguments":…}} */
static int write_call(const struct ash_tool_call *tool, size_t i, struct ash_str *out)
{
    int rc =
        ash_str_addf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", i > 0 ? "," : "", tool->id);

    if (rc == 0) rc = ash_write_text(out, tool->name);
    if (rc == 0) rc = ash_str_adds(out, ",\"arguments\":");
    if (rc == 0)
        rc =
            ash_write_string(out, tool->arguments.data != NULL ? tool->arguments.data : "", tool->arguments.size_bytes);
    return rc == 0 ? ash_str_adds(out, "}}") : rc;
}

static int write_content(const struct ash_message_parts *message, struct ash_str *out)
{
    const struct ash_str *content = &message->content;
    bool has_others = message->call_count > 0 || message->reasoning.size_bytes > 0;

    if (content->size_bytes == 0 && has_others) return ash_str_adds(out, "null");
    return ash_write_string(out, content->data != NULL ? content->data : "", content->size_bytes);
}

static int write_message(const struct ash_message_parts *message, struct ash_str *out)
{
    int rc = ash_str_adds(out, "{\"role\":\"assistant\",\"content\":");

    if (rc == 0) rc = write_content(message, out);
    if (rc == 0) rc = ash_str_adds(out, ",\"refusal\":null");
    if (rc == 0 && message->reasoning.size_bytes > 0) {
        rc = ash_str_adds(out, ",\"reasoning_content\":");
        if (rc == 0) rc = ash_write_string(out, message->reasoning.data, message->reasoning.size_bytes);
    }
    if (rc < 0 || message->call_count == 0) return rc == 0 ? ash_str_adds(out, "}") : rc;
    rc = ash_str_adds(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < message->call_count && rc == 0; i++)
        rc = write_call(&message->calls[i], i, out);
    return rc == 0 ? ash_str_adds(out, "]}") : rc;
}

/* ,"logprobs":…,"token_ids":…: of these tokens. */
static int write_tokens(struct ash_api_call *call, const struct ash_token *tokens, size_t count, struct ash_str *out)
{
    const struct ash_chat_call *chat = call->state;
    int rc = ash_str_adds(out, ",\"logprobs\":");

    if (rc == 0 && chat->has_logprobs && count > 0)
        rc = ash_openai_write_logprobs(call->api, tokens, count, (size_t)call->sampling.top_logprobs, out);
    else if (rc == 0)
        rc = ash_str_adds(out, "null");
    if (rc == 0 && call->sampling.returns_ids) {
        rc = ash_str_adds(out, ",\"token_ids\":");
        if (rc == 0) rc = ash_openai_write_token_ids(tokens, count, out);
    }
    return rc;
}

/* index: in the response. */
static int write_choice(struct ash_api_call *call, struct ash_api_choice *choice, size_t index, struct ash_str *out)
{
    struct ash_message_parts message = {0};
    int rc = ash_chat_call_read(call, choice, &message);

    if (rc == 0) rc = ash_str_addf(out, "%s{\"index\":%zu,\"message\":", index > 0 ? "," : "", index);
    if (rc == 0) rc = write_message(&message, out);
    if (rc == 0) rc = write_tokens(call, ash_token_list_view(&choice->tokens), choice->tokens.count, out);
    if (rc == 0) rc = ash_str_adds(out, ",\"finish_reason\":");
    if (rc == 0) rc = ash_write_text(out, ash_chat_call_reason(choice, message.call_count));
    if (rc == 0) rc = ash_openai_write_stop_reason(call, choice, out);
    if (rc == 0) rc = ash_str_adds(out, "}");
    ash_message_fini(&message);
    return rc;
}

static int write_prompt_fields(struct ash_api_call *call, struct ash_str *out)
{
    const struct ash_ids *prompt = &call->prompts.items[0];
    int rc = 0;

    if (call->sampling.prompt_logprobs >= 0) {
        rc = ash_str_adds(out, ",\"prompt_logprobs\":");
        if (rc == 0) rc = ash_openai_write_prompt_logprobs(call->api, &call->choices[0], out);
    }
    if (rc == 0 && call->sampling.returns_ids) {
        rc = ash_str_adds(out, ",\"prompt_token_ids\":");
        if (rc == 0) rc = ash_openai_write_ids(prompt->data, prompt->count, out);
    }
    return rc;
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
static int write_chosen(struct ash_api_call *call, struct ash_str *out)
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
    return rc == 0 ? write_choice(call, &call->choices[chosen], 0, out) : rc;
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    int rc = ash_openai_write_head(call, "chat.completion", out);

    if (rc == 0) rc = ash_str_adds(out, ",\"choices\":[");
    if (rc == 0 && call->sampling.strategy != ASH_STRATEGY_GREEDY) {
        rc = write_chosen(call, out);
    } else {
        for (size_t i = 0; i < call->choice_count && rc == 0; i++)
            rc = write_choice(call, &call->choices[i], i, out);
    }
    if (rc == 0) rc = ash_str_adds(out, "]");
    if (rc == 0) rc = write_prompt_fields(call, out);
    if (rc == 0) rc = ash_openai_write_usage(call, out);
    return rc == 0 ? ash_str_adds(out, "}") : rc;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

/* The event up to its delta, and from there on. */
static int begin_event(struct ash_api_call *call, const struct ash_api_choice *choice, struct ash_str *out)
{
    int rc = ash_event_begin(out);

    if (rc == 0) rc = ash_openai_write_head(call, CHUNK, out);
    return rc == 0 ? ash_str_addf(out, ",\"choices\":[{\"index\":%zu,\"delta\":", choice->index) : rc;
}

static int end_event(struct ash_api_call *call, struct ash_str *out)
{
    int rc = ash_str_adds(out, "}]");

    if (rc == 0) rc = ash_openai_write_running_usage(call, out);
    return rc == 0 ? ash_str_adds(out, "}\n\n") : rc;
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
    int rc = write_tokens(sink->call, sink->delta != NULL ? sink->delta->tokens : NULL,
                          sink->delta != NULL ? sink->delta->token_count : 0, sink->out);

    sink->delta = NULL;
    if (rc == 0) rc = ash_str_adds(sink->out, ",\"finish_reason\":null");
    return rc == 0 ? end_event(sink->call, sink->out) : rc;
}

static int write_call_part(struct sink *sink, const struct ash_part *part)
{
    struct ash_str *out = sink->out;
    int rc = ash_str_addf(out, "{\"tool_calls\":[{\"index\":%zu,", part->call);

    if (rc == 0 && part->kind == ASH_PART_CALL) {
        rc = ash_str_addf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", part->id);
        if (rc == 0) rc = ash_write_string(out, part->text, part->size_bytes);
        if (rc == 0) rc = ash_str_adds(out, ",\"arguments\":\"\"}}]}");
    } else if (rc == 0) {
        rc = ash_str_adds(out, "\"function\":{\"arguments\":");
        if (rc == 0) rc = ash_write_string(out, part->text, part->size_bytes);
        if (rc == 0) rc = ash_str_adds(out, "}}]}");
    }
    return rc;
}

static int see_part(void *ctx, const struct ash_part *part)
{
    struct sink *sink = ctx;
    int rc = begin_event(sink->call, sink->choice, sink->out);

    if (rc == 0 && (part->kind == ASH_PART_CALL || part->kind == ASH_PART_ARGUMENTS)) {
        rc = write_call_part(sink, part);
    } else if (rc == 0) {
        rc = ash_str_adds(sink->out, part->kind == ASH_PART_REASONING ? "{\"reasoning_content\":" : "{\"content\":");
        if (rc == 0) rc = ash_write_string(sink->out, part->text, part->size_bytes);
        if (rc == 0) rc = ash_str_adds(sink->out, "}");
    }
    return rc == 0 ? end_sink_event(sink) : rc;
}

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    int rc = 0;

    for (size_t i = 0; i < call->choice_count && rc == 0; i++) {
        rc = begin_event(call, &call->choices[i], out);
        if (rc == 0)
            rc =
                ash_str_adds(out, "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null");
        if (rc == 0) rc = end_event(call, out);
    }
    return rc;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    const struct ash_chat_call *chat = call->state;
    struct sink sink = {call, choice, delta, out};
    int rc = ash_chat_call_push(choice, delta, see_part, &sink);

    if (rc < 0 || sink.delta == NULL || !(chat->has_logprobs || call->sampling.returns_ids)) return rc;
    rc = begin_event(call, choice, out); /* the parser holds the text back, but the tokens are known */
    if (rc == 0) rc = ash_str_adds(out, "{}");
    return rc == 0 ? end_sink_event(&sink) : rc;
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    struct sink sink = {call, choice, NULL, out};
    size_t call_count = 0;
    int rc = ash_chat_call_finish(choice, see_part, &sink, &call_count);

    if (rc == 0) rc = begin_event(call, choice, out);
    if (rc == 0) rc = ash_str_adds(out, "{},\"logprobs\":null,\"finish_reason\":");
    if (rc == 0) rc = ash_write_text(out, ash_chat_call_reason(choice, call_count));
    if (rc == 0) rc = ash_openai_write_stop_reason(call, choice, out);
    return rc == 0 ? end_event(call, out) : rc;
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    return ash_openai_write_end(call, CHUNK, out);
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
    ash_fields_ignore(&request->fields, "reasoning_effort verbosity modalities prediction web_search_options echo");
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
