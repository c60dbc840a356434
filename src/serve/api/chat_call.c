/* What the chat forms share. */
#include "serve/api/chat_call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "serve/api/grammars.h"

static void list_tools(struct ash_chat_call *chat, struct ash_api_request *request)
{
    size_t count = json_array_size(chat->conversation.tools);

    chat->tools = calloc(count + 1, sizeof(*chat->tools));
    if (chat->tools == NULL) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the tools");
    for (size_t i = 0; i < count && chat->tools != NULL; i++) {
        const json_t *function = json_object_get(json_array_get(chat->conversation.tools, i), "function");

        chat->tools[i].name = json_string_value(json_object_get(function, "name"));
        chat->tools[i].parameters = json_object_get(function, "parameters");
    }
    chat->parts.tools = chat->tools;
    chat->parts.tool_count = count;
}

struct ash_api_call *ash_chat_call_open(struct ash_api_request *request, const struct ash_form *form,
                                        const char *prefix, size_t state_bytes)
{
    struct ash_api_call *call = ash_call_open(request, form, prefix);

    if (call == NULL) return NULL;
    call->state = calloc(1, state_bytes);
    if (call->state != NULL) return call;
    ash_call_close(call);
    ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    return NULL;
}

void ash_chat_call_read_single(struct ash_api_call *call, struct ash_api_request *request, const char *stop_key,
                               const char *max_key)
{
    const char *const max_keys[] = {max_key, NULL};

    ash_api_check_model(request);
    call->is_stream = ash_fields_bool(&request->fields, "stream", false);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_OPENAI);
    call->sampling.n = call->sampling.best_of = 1;
    ash_sampling_read_stops(&call->sampling, request, stop_key);
    ash_sampling_read_max(&call->sampling, request, max_keys, ASH_SAMPLING_UNLIMITED);
}

/* Has the template closed the answer's thoughts already? */
static bool are_thoughts_over(const struct ash_api *api, const struct ash_str *prompt)
{
    const char *close = api->thought_tags.close != NULL ? api->thought_tags.close : "</think>";
    size_t size = prompt->size_bytes, length = strlen(close);

    while (size > 0 && strchr(" \n\r\t", prompt->data[size - 1]) != NULL)
        size--;
    return size >= length && memcmp(prompt->data + size - length, close, length) == 0;
}

/* The server's own budget is for answers that begin with thoughts, and that no grammar rules from the first token. */
static void choose_budget(struct ash_api_call *call, const struct ash_api *api, bool are_over)
{
    struct ash_sampling *sampling = &call->sampling;

    if (!sampling->has_think && api->thought_tags.close != NULL && (call->grammar == NULL || call->is_thinking)) {
        sampling->think_min = api->opts.think_min;
        sampling->think_max = api->opts.think_max;
    }
    if (are_over) sampling->think_min = sampling->think_max = 0;
}

/* Leave out the oldest message that is not the system's, with the outputs of its calls. The last one stays. */
static bool drop_oldest(struct ash_conversation *conversation)
{
    json_t *messages = conversation->messages;
    size_t at = 0;

    while (at < json_array_size(messages) &&
           strcmp(json_string_value(json_object_get(json_array_get(messages, at), "role")), "system") == 0)
        at++;
    if (at + 1 >= json_array_size(messages)) return false;
    json_array_remove(messages, at);
    while (at + 1 < json_array_size(messages) &&
           strcmp(json_string_value(json_object_get(json_array_get(messages, at), "role")), "tool") == 0)
        json_array_remove(messages, at);
    return true;
}

/* How many tokens of the prompt have no place in the context. */
static size_t excess_of(const struct ash_api_call *call, const struct ash_api *api)
{
    size_t needed = call->prompts.items[0].count + ash_sampling_least(&call->sampling);

    return needed > api->engine.context_tokens ? needed - api->engine.context_tokens : 0;
}

/* Render and tokenise, with as many messages left out as must be. A long conversation loses several at a time: half of
 * their share of the excess. */
static void render_prompt(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat,
                          struct ash_str *text)
{
    bool adds_special = ash_fields_bool(&request->fields, "add_special_tokens", false);

    for (;;) {
        size_t excess, drops;

        ash_conversation_render(&chat->conversation, request, text);
        if (request->err.status == 0) ash_prompts_add_text(&call->prompts, request, text, adds_special);
        if (request->err.status != 0 || !chat->drops_oldest || (excess = excess_of(call, request->api)) == 0) return;
        ash_prompt_blocks_fini(&call->blocks); /* they are of all messages */
        drops = 1 + json_array_size(chat->conversation.messages) * excess / call->prompts.items[0].count / 2;
        if (!drop_oldest(&chat->conversation)) return;
        while (--drops > 0 && drop_oldest(&chat->conversation))
            continue;
        ash_prompts_fini(&call->prompts);
        ash_str_clear(text);
    }
}

void ash_chat_call_prepare(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    struct ash_str text = {0};
    bool are_over = false;

    chat->parts.has_tools = chat->policy.mode != ASH_TOOL_MODE_NONE;
    chat->parts.calls_max = chat->policy.is_parallel ? 0 : 1;
    /* The marks of calls are special tokens in most families: the parser must see them. */
    if (ash_api_reads_marks(request->api, chat->parts.has_tools)) call->sampling.keep_special = true;
    list_tools(chat, request);
    render_prompt(call, request, chat, &text);
    if (request->err.status == 0) {
        chat->parts.is_thinking = ash_thought_is_open(request->api->thought_tags, text.data, text.size_bytes);
        call->is_thinking = chat->parts.is_thinking;
        are_over = are_thoughts_over(request->api, &text);
    }
    ash_str_fini(&text);
    if (request->err.status == 0) ash_api_grammars_read_tools(call, request, chat);
    choose_budget(call, request->api, are_over);
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, "messages");
}

/* Options for one choice: the ids of its calls are its own. */
static struct ash_parts_opts opts_of(const struct ash_api_call *call, const struct ash_api_choice *choice)
{
    const struct ash_chat_call *chat = call->state;
    struct ash_parts_opts opts = chat->parts;

    opts.seed = ash_hash_bytes(call->id, strlen(call->id), choice->index);
    return opts;
}

/* The parser of a choice, made if there is none. NULL: out of memory. */
static struct ash_parts *get_parser(struct ash_api_choice *choice)
{
    struct ash_parts_opts opts = opts_of(choice->call, choice);
    struct ash_parts *parts = choice->parser;
    struct ash_err err = {0};

    if (parts == NULL && ash_parts_open(choice->call->api, &opts, &parts, &err) == 0) choice->parser = parts;
    return choice->parser;
}

int ash_chat_call_push(struct ash_api_choice *choice, const struct ash_delta *delta, ash_part_fn see, void *ctx)
{
    struct ash_parts *parts = get_parser(choice);
    int rc = parts != NULL ? ash_parts_push(parts, delta->text, delta->size_bytes, see, ctx) : -ENOMEM;

    if (rc == 0) choice->thought_bytes = ash_parts_thought_bytes(parts);
    return rc;
}

int ash_chat_call_finish(struct ash_api_choice *choice, ash_part_fn see, void *ctx, size_t *call_count_out)
{
    struct ash_parts *parts = get_parser(choice);
    int rc = parts != NULL ? ash_parts_finish(parts, see, ctx) : -ENOMEM;

    if (rc == 0) *call_count_out = ash_parts_call_count(parts);
    return rc;
}

int ash_chat_call_read(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_message_parts *message)
{
    struct ash_parts_opts opts = opts_of(call, choice);
    struct ash_err err = {0};
    int rc = ash_message_read(call->api, &opts, &choice->text, message, &err);

    choice->thought_bytes = message->thought_bytes;
    return rc;
}

const char *ash_chat_call_reason(const struct ash_api_choice *choice, size_t call_count)
{
    const char *reason = ash_api_choice_reason(choice);

    return call_count > 0 && strcmp(reason, "stop") == 0 ? "tool_calls" : reason;
}

void ash_chat_call_free(struct ash_api_call *call)
{
    struct ash_chat_call *chat = call->state;

    for (size_t i = 0; i < call->choice_count; i++)
        ash_parts_close(call->choices[i].parser);
    if (chat == NULL) return;
    ash_conversation_fini(&chat->conversation);
    json_decref(chat->json);
    free(chat->tools);
    free(chat);
}

void ash_chat_call_start(struct ash_api_call *call, struct ash_api_request *request)
{
    struct ash_chat_call *chat = call != NULL ? call->state : NULL;

    if (ash_api_request_failed(request)) {
        ash_call_close(call);
    } else {
        chat->json = request->json; /* handed over: another thread drops it */
        request->json = NULL;
        ash_call_start(call);
    }
    ash_api_request_fini(request);
}
