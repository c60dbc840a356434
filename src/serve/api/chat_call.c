/* What the chat forms share. */
#include "serve/api/chat_call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "serve/api/grammars.h"

/* The end of the prompt's text: a template may have opened the thoughts there. */
static void keep_end(struct ash_chat_call *chat, const struct ash_str *text)
{
    size_t bytes = ash_min(text->size_bytes, sizeof(chat->prompt_end) - 1);

    if (bytes > 0) memcpy(chat->prompt_end, text->data + text->size_bytes - bytes, bytes);
    chat->prompt_end[bytes] = '\0';
    chat->parts.prompt_end = chat->prompt_end;
}

void ash_chat_call_prepare(struct ash_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    struct ash_str text = {0};

    chat->json = json_incref(request->json);
    chat->parts.has_tools = chat->policy.mode != ASH_TOOL_MODE_NONE;
    chat->parts.tools = chat->conversation.tools;
    chat->parts.calls_max = chat->policy.is_parallel ? 0 : 1;
    ash_conversation_render(&chat->conversation, request, &text);
    if (request->err.status == 0) {
        keep_end(chat, &text);
        ash_prompts_add_text(&call->prompts, request, &text,
                             ash_fields_bool(&request->fields, "add_special_tokens", false));
    }
    ash_str_fini(&text);
    if (request->err.status == 0) ash_api_grammars_read_tools(call, request, chat);
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, "messages");
}

struct ash_parts *ash_chat_call_parser(struct ash_call *call, struct ash_api_choice *choice)
{
    struct ash_chat_call *chat = call->state;
    struct ash_parts *parts = choice->parser;
    struct ash_err err = {0};

    if (parts == NULL && ash_parts_open(call->api, &chat->parts, &parts, &err) == 0) choice->parser = parts;
    return choice->parser;
}

int ash_chat_call_read(struct ash_call *call, struct ash_api_choice *choice, struct ash_message_parts *message)
{
    struct ash_chat_call *chat = call->state;
    struct ash_err err = {0};

    return ash_message_read(call->api, &chat->parts, &choice->text, message, &err);
}

const char *ash_chat_call_reason(const struct ash_api_choice *choice, size_t call_count)
{
    const char *reason = ash_api_choice_reason(choice);

    return call_count > 0 && strcmp(reason, "stop") == 0 ? "tool_calls" : reason;
}

void ash_chat_call_free(struct ash_call *call)
{
    struct ash_chat_call *chat = call->state;

    for (size_t i = 0; i < call->choice_count; i++)
        ash_parts_close(call->choices[i].parser);
    if (chat == NULL) return;
    ash_conversation_fini(&chat->conversation);
    json_decref(chat->json);
    free(chat);
}

void ash_chat_call_start(struct ash_call *call, struct ash_api_request *request)
{
    if (ash_api_request_failed(request))
        ash_call_close(call);
    else
        ash_call_start(call);
    ash_api_request_fini(request);
}
