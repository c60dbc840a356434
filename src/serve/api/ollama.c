/* Ollama's API: /api/chat and /api/generate, whose streams are lines of JSON, and what its clients ask about models. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ashlar/ashlar.h"
#include "base/json_put.h"
#include "serve/api/chat_call.h"
#include "serve/api/grammars.h"
#include "serve/api/handlers.h"
#include "serve/api/ollama_list.h"
#include "serve/api/ollama_read.h"

#define LEVEL "0.12.0" /* of Ollama's API: clients ask for one that has tools, thoughts and schemas */
#define NDJSON "application/x-ndjson"

/* A call of a tool goes out whole. */
struct ollama_call {
    struct ash_chat_call chat; /* first: call->state */
    bool is_generate;
    bool has_tool; /* name and arguments are those of a call that is being written */
    char name[128];
    struct ash_str arguments;
};

static void free_state(struct ash_api_call *call)
{
    struct ollama_call *ollama = call->state;

    if (ollama != NULL) ash_str_fini(&ollama->arguments);
    ash_chat_call_free(call);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void begin_answer(const char *model, struct ash_str *out)
{
    char buf[ASH_OLLAMA_TIME_BYTES];

    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "model", model);
    ash_json_put_text(out, "created_at", ash_ollama_time(time(NULL), buf));
}

static void put_text(const char *key, const struct ash_str *text, struct ash_str *out)
{
    ash_json_put_string(out, key, text->data != NULL ? text->data : "", text->size_bytes);
}

static void put_tool(const char *name, const struct ash_str *arguments, struct ash_str *out)
{
    json_t *json = json_loads(arguments->data != NULL ? arguments->data : "{}", 0, NULL);

    ash_json_put_begin(out, NULL, '{');
    ash_json_put_begin(out, "function", '{');
    ash_json_put_text(out, "name", name);
    if (json_is_object(json))
        ash_json_put_json(out, "arguments", json);
    else
        put_text("arguments", arguments, out); /* cut by the limit */
    ash_json_put_end(out, '}');
    ash_json_put_end(out, '}');
    json_decref(json);
}

/* What ends an answer: why, and how long it took, in nanoseconds. */
static void put_end(struct ash_api_call *call, struct ash_str *out)
{
    const struct ash_api_choice *choice = &call->choices[0];
    const struct ash_request_end *end = &choice->end;
    struct ash_usage usage = ash_call_usage(call);
    double seconds = end->queued_s + end->prefill_s + end->decode_s;

    ash_json_put_text(out, "done_reason", ash_api_choice_reason(choice));
    ash_json_put_bool(out, "done", true);
    ash_json_put_int(out, "total_duration", (int64_t)(seconds * 1e9));
    ash_json_put_int(out, "load_duration", (int64_t)(end->queued_s * 1e9));
    ash_json_put_int(out, "prompt_eval_count", (int64_t)usage.prompt_tokens);
    ash_json_put_int(out, "prompt_eval_duration", (int64_t)(end->prefill_s * 1e9));
    ash_json_put_int(out, "eval_count", (int64_t)usage.answer_tokens);
    ash_json_put_int(out, "eval_duration", (int64_t)(end->decode_s * 1e9));
    ash_json_put_end(out, '}');
}

static void put_message(const struct ash_message_parts *message, struct ash_str *out)
{
    ash_json_put_begin(out, "message", '{');
    ash_json_put_text(out, "role", "assistant");
    put_text("content", &message->content, out);
    if (message->reasoning.size_bytes > 0) put_text("thinking", &message->reasoning, out);
    if (message->call_count > 0) {
        ash_json_put_begin(out, "tool_calls", '[');
        for (size_t i = 0; i < message->call_count; i++)
            put_tool(message->calls[i].name, &message->calls[i].arguments, out);
        ash_json_put_end(out, ']');
    }
    ash_json_put_end(out, '}');
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    const struct ollama_call *ollama = call->state;
    struct ash_message_parts message = {0};

    ash_str_fail(out, ash_chat_call_read(call, &call->choices[0], &message));
    begin_answer(call->model, out);
    if (ollama->is_generate) {
        put_text("response", &message.content, out);
        if (message.reasoning.size_bytes > 0) put_text("thinking", &message.reasoning, out);
    } else {
        put_message(&message, out);
    }
    put_end(call, out);
    ash_message_fini(&message);
    return out->rc;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    (void)call, (void)out;
    return 0;
}

/* A line up to its news. */
static void begin_line(const struct ash_api_call *call, struct ash_str *out)
{
    const struct ollama_call *ollama = call->state;

    begin_answer(call->model, out);
    if (ollama->is_generate) return;
    ash_json_put_begin(out, "message", '{');
    ash_json_put_text(out, "role", "assistant");
}

static void end_line(const struct ash_api_call *call, struct ash_str *out)
{
    const struct ollama_call *ollama = call->state;

    if (!ollama->is_generate) ash_json_put_end(out, '}');
    ash_json_put_bool(out, "done", false);
    ash_str_adds(out, "}\n");
}

static void flush_tool(struct ash_api_call *call, struct ash_str *out)
{
    struct ollama_call *ollama = call->state;

    if (!ollama->has_tool) return;
    ollama->has_tool = false;
    begin_line(call, out);
    ash_json_put_text(out, ollama->is_generate ? "response" : "content", "");
    ash_json_put_begin(out, "tool_calls", '[');
    put_tool(ollama->name, &ollama->arguments, out);
    ash_json_put_end(out, ']');
    end_line(call, out);
}

/* Where parts go. */
struct sink {
    struct ash_api_call *call;
    struct ash_str *out;
};

static int see_part(void *ctx, const struct ash_part *part)
{
    struct sink *sink = ctx;
    struct ollama_call *ollama = sink->call->state;
    const char *key = ollama->is_generate ? "response" : "content";

    if (part->kind == ASH_PART_ARGUMENTS) return ash_str_add(&ollama->arguments, part->text, part->size_bytes);
    flush_tool(sink->call, sink->out);
    if (part->kind == ASH_PART_CALL) {
        snprintf(ollama->name, sizeof(ollama->name), "%.*s", (int)part->size_bytes, part->text);
        ash_str_clear(&ollama->arguments);
        ollama->has_tool = true;
        return 0;
    }
    begin_line(sink->call, sink->out);
    if (part->kind == ASH_PART_REASONING) ash_json_put_text(sink->out, key, "");
    ash_json_put_string(sink->out, part->kind == ASH_PART_REASONING ? "thinking" : key, part->text, part->size_bytes);
    end_line(sink->call, sink->out);
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
    flush_tool(call, out);
    return out->rc;
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    const struct ollama_call *ollama = call->state;

    begin_line(call, out);
    ash_json_put_text(out, ollama->is_generate ? "response" : "content", "");
    if (!ollama->is_generate) ash_json_put_end(out, '}');
    put_end(call, out);
    return ash_str_adds(out, "\n");
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
                                     .stream_type = NDJSON,
                                     .free_state = free_state};

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* A prompt as it is, without the template. */
static void read_raw(struct ash_api_call *call, struct ash_api_request *request)
{
    const char *prompt = ash_fields_string(&request->fields, "prompt");
    struct ash_str text = {0};

    ash_fields_ignore(&request->fields, "messages");
    if (ash_str_adds(&text, prompt != NULL ? prompt : "") < 0)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the prompt");
    if (request->err.status == 0) ash_prompts_add_text(&call->prompts, request, &text, true);
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, "prompt");
    ash_str_fini(&text);
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request)
{
    struct ollama_call *ollama = call->state;
    struct ash_chat_call *chat = &ollama->chat;
    bool is_raw = ollama->is_generate && ash_fields_bool(&request->fields, "raw", false);

    ash_chat_call_read_single(call, request, "stop", "max_tokens");
    call->is_stream = ash_fields_bool(&request->fields, "stream", true);
    call->sampling.clamps_max = true;
    chat->parts.has_reasoning = !is_raw;
    ash_api_grammars_read(call, request);
    if (ash_fields_has(&request->fields, "template") || ash_fields_has(&request->fields, "suffix"))
        ash_fields_wrong(&request->fields, ash_fields_has(&request->fields, "suffix") ? "suffix" : "template",
                         "is not supported: the template is the server's (--chat-template), /infill fills gaps");
    if (is_raw) {
        read_raw(call, request);
    } else {
        ash_fields_ignore(&request->fields, "prompt");
        ash_conversation_read(&chat->conversation, request);
        ash_tool_policy_read(&chat->policy, &chat->conversation, request);
        if (request->err.status == 0) ash_chat_call_prepare(call, request, chat);
    }
    ash_api_check_unknown(request);
}

/* Nothing is asked: clients load a model so, and this one is there. */
static void respond_loaded(struct ash_api_request *request, bool is_generate)
{
    struct ash_str body = {0};

    begin_answer(ash_api_model_name(request), &body);
    if (is_generate) {
        ash_json_put_text(&body, "response", "");
    } else {
        ash_json_put_begin(&body, "message", '{');
        ash_json_put_text(&body, "role", "assistant");
        ash_json_put_text(&body, "content", "");
        ash_json_put_end(&body, '}');
    }
    ash_json_put_text(&body, "done_reason", "load");
    ash_json_put_bool(&body, "done", true);
    ash_json_put_end(&body, '}');
    ash_api_respond_text(request->exchange, body.rc, &body);
    ash_str_fini(&body);
}

static void handle(struct ash_api *api, struct ash_http_exchange *exchange, bool is_generate)
{
    struct ash_api_request request;
    struct ash_api_call *call;
    const json_t *asked;

    if (!ash_api_request_init(&request, api, exchange)) return;
    ash_ollama_translate(&request, is_generate);
    asked = json_object_get(request.json, is_generate ? "prompt" : "messages");
    if (request.err.status == 0 && (is_generate ? json_string_length(asked) : json_array_size(asked)) == 0) {
        ash_api_check_model(&request);
        if (!ash_api_request_failed(&request)) respond_loaded(&request, is_generate);
        ash_api_request_fini(&request);
        return;
    }
    call = ash_chat_call_open(&request, &form, "ollama-", sizeof(struct ollama_call));
    if (call != NULL) {
        ((struct ollama_call *)call->state)->is_generate = is_generate;
        read_request(call, &request);
    }
    ash_chat_call_start(call, &request);
}

void ash_api_ollama_chat(void *ctx, struct ash_http_exchange *exchange)
{
    handle(ctx, exchange, false);
}

void ash_api_ollama_generate(void *ctx, struct ash_http_exchange *exchange)
{
    handle(ctx, exchange, true);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void put_model(struct ash_api *api, const char *name, struct ash_str *out)
{
    struct ash_ollama_model model = {.name = name, .modified_s = (int64_t)api->created_s};

    if (atomic_load(&api->has_fingerprint)) model.digest = api->fingerprint;
    ash_ollama_put_model(&model, out);
}

struct model_list {
    struct ash_api *api;
    struct ash_str *out;
};

static void add_adapter(void *ctx, const struct ash_served_adapter *adapter)
{
    struct model_list *list = ctx;

    put_model(list->api, adapter->name, list->out);
}

void ash_api_ollama_tags(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_str body = {0};

    ash_json_put_begin(&body, NULL, '{');
    ash_json_put_begin(&body, "models", '[');
    if (atomic_load(&api->is_ready)) {
        for (size_t i = 0; i < api->opts.name_count; i++)
            put_model(api, api->opts.names[i], &body);
        ash_adapters_visit(api->engine.adapters, add_adapter, &(struct model_list){api, &body});
    }
    ash_json_put_end(&body, ']');
    ash_json_put_end(&body, '}');
    ash_api_respond_text(exchange, body.rc, &body);
    ash_str_fini(&body);
}

void ash_api_ollama_show(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    struct ash_api_request request;
    struct ash_str body = {0};

    if (!ash_api_request_init(&request, api, exchange)) return;
    ash_ollama_translate(&request, true);
    ash_api_check_model(&request);
    ash_json_put_begin(&body, NULL, '{');
    ash_json_put_text(&body, "modelfile", "");
    ash_json_put_text(&body, "parameters", "");
    ash_json_put_text(&body, "template", api->engine.chat_source != NULL ? api->engine.chat_source : "");
    ash_ollama_put_details(&body);
    ash_json_put_begin(&body, "model_info", '{');
    ash_json_put_text(&body, "general.architecture", "model");
    ash_json_put_int(&body, "model.context_length", (int64_t)api->engine.context_tokens);
    ash_json_put_int(&body, "model.embedding_length", (int64_t)api->engine.hidden);
    ash_json_put_end(&body, '}');
    ash_json_put_begin(&body, "capabilities", '[');
    ash_json_put_text(&body, NULL, "completion");
    if (api->tool_format != ASH_TOOLS_NONE) ash_json_put_text(&body, NULL, "tools");
    if (api->thought_tags.open != NULL) ash_json_put_text(&body, NULL, "thinking");
    ash_json_put_end(&body, ']');
    ash_json_put_end(&body, '}');
    if (!ash_api_request_failed(&request)) ash_api_respond_text(exchange, body.rc, &body);
    ash_str_fini(&body);
    ash_api_request_fini(&request);
}

void ash_api_ollama_version(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    ash_api_respond_json(exchange, 200, json_pack("{s:s, s:s}", "version", LEVEL, "ashlar", ash_version()));
}
