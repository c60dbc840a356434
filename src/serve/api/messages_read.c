/* Anthropic's messages: blocks become contents, tool_use becomes tool_calls, tool_result its own message. */
#include "serve/api/messages_read.h"

#include <stdio.h>
#include <string.h>

static void wrong(struct ash_api_request *request, const char *param, const char *text)
{
    ash_api_err_set(&request->err, 400, "invalid_value", param, "'%s' %s", param, text);
}

static const char *type_of(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));

    return type != NULL ? type : "";
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* What the blocks of one message become. */
struct turn {
    struct ash_conversation *conversation;
    struct ash_api_request *request;
    const char *param;
    json_t *texts, *calls; /* parts of the message; its tool calls */
    json_t *thoughts;      /* a string, or NULL */
};

static void add_tool_use(struct turn *turn, const json_t *block)
{
    json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input"),
           *id = json_object_get(block, "id");

    if (!json_is_string(name) || !json_is_object(input)) {
        wrong(turn->request, turn->param, "has a tool_use without a name and an input");
        return;
    }
    json_array_append_new(turn->calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_is_string(id) ? id : name,
                                                 "type", "function", "function", "name", name, "arguments", input));
}

static void add_tool_result(struct turn *turn, const json_t *block)
{
    json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    json_t *message;

    if (!json_is_string(id)) {
        wrong(turn->request, turn->param, "has a tool_result without a tool_use_id");
        return;
    }
    message = json_pack("{s:s, s:O, s:O*}", "role", "tool", "tool_call_id", id, "content", content);
    ash_conversation_add(turn->conversation, turn->request, message, turn->param);
    json_decref(message);
}

static void add_block(struct turn *turn, const json_t *block)
{
    const char *type = type_of(block);

    if (strcmp(type, "tool_use") == 0)
        add_tool_use(turn, block);
    else if (strcmp(type, "tool_result") == 0)
        add_tool_result(turn, block);
    else if (strcmp(type, "thinking") == 0)
        turn->thoughts = json_object_get(block, "thinking");
    else if (strcmp(type, "redacted_thinking") != 0)
        json_array_append(turn->texts, (json_t *)(uintptr_t)block); /* texts, or what will be refused */
}

static void add_message(struct ash_conversation *conversation, struct ash_api_request *request, const json_t *message,
                        const char *param)
{
    const json_t *content = json_object_get(message, "content");
    struct turn turn = {.conversation = conversation, .request = request, .param = param};
    json_t *plain;

    if (!json_is_array(content)) {
        ash_conversation_add(conversation, request, message, param);
        return;
    }
    turn.texts = json_array();
    turn.calls = json_array();
    for (size_t i = 0; i < json_array_size(content) && request->err.status == 0; i++)
        add_block(&turn, json_array_get(content, i));
    plain = json_pack("{s:O*, s:O}", "role", json_object_get(message, "role"), "content", turn.texts);
    if (json_array_size(turn.calls) > 0) json_object_set(plain, "tool_calls", turn.calls);
    if (json_is_string(turn.thoughts)) json_object_set(plain, "reasoning_content", turn.thoughts);
    if (request->err.status == 0 && (json_array_size(turn.texts) > 0 || json_array_size(turn.calls) > 0))
        ash_conversation_add(conversation, request, plain, param);
    json_decref(plain);
    json_decref(turn.texts);
    json_decref(turn.calls);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void read_system(struct ash_conversation *conversation, struct ash_api_request *request)
{
    const json_t *system = ash_fields_any(&request->fields, "system");
    json_t *message;

    if (system == NULL) return;
    message = json_pack("{s:s, s:O}", "role", "system", "content", system);
    ash_conversation_add(conversation, request, message, "system");
    json_decref(message);
}

/* Tools in OpenAI's form. */
static void read_tools(struct ash_conversation *conversation, struct ash_api_request *request)
{
    const json_t *tools = ash_fields_array(&request->fields, "tools");
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(tools) && request->err.status == 0; i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *name = json_object_get(tool, "name"), *schema = json_object_get(tool, "input_schema"),
               *text = json_object_get(tool, "description");
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "tools[%zu]", i);
        if (type_of(tool)[0] != '\0' && strcmp(type_of(tool), "custom") != 0)
            wrong(request, param, "is a tool that only Anthropic's servers have");
        else if (!json_is_string(name) || !json_is_object(schema))
            wrong(request, param, "must have a name and an input_schema");
        else
            json_array_append_new(list, json_pack("{s:s, s:{s:O, s:O*, s:O}}", "type", "function", "function", "name",
                                                  name, "description", text, "parameters", schema));
    }
    if (json_array_size(list) > 0)
        conversation->tools = list;
    else
        json_decref(list);
}

/* {"type": "auto" | "any" | "tool" | "none", "name": …, "disable_parallel_tool_use": …} */
static void read_choice(struct ash_chat_call *chat, struct ash_api_request *request)
{
    const json_t *choice = ash_fields_object(&request->fields, "tool_choice");
    const char *type = type_of(choice);

    chat->policy.mode = chat->conversation.tools != NULL ? ASH_TOOL_MODE_AUTO : ASH_TOOL_MODE_NONE;
    chat->policy.is_parallel = !json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    chat->policy.name = json_string_value(json_object_get(choice, "name"));
    if (choice == NULL || strcmp(type, "auto") == 0) return;
    if (strcmp(type, "none") == 0)
        chat->policy.mode = ASH_TOOL_MODE_NONE;
    else if (strcmp(type, "any") == 0)
        chat->policy.mode = ASH_TOOL_MODE_REQUIRED;
    else if (strcmp(type, "tool") == 0 && chat->policy.name != NULL)
        chat->policy.mode = ASH_TOOL_MODE_NAMED;
    else
        wrong(request, "tool_choice", "must be of type auto, any, none, or tool with a name");
    ash_tool_policy_check(&chat->policy, &chat->conversation, request);
}

/* Is the last message the beginning of the answer? */
static bool is_begun_answer(const struct ash_conversation *conversation)
{
    const json_t *last = json_array_get(conversation->messages, json_array_size(conversation->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *content = json_string_value(json_object_get(last, "content"));

    return role != NULL && strcmp(role, "assistant") == 0 && json_object_get(last, "tool_calls") == NULL &&
           content != NULL && strspn(content, " \t\r\n") < strlen(content);
}

void ash_messages_read(struct ash_chat_call *chat, struct ash_api_request *request)
{
    const json_t *messages = ash_fields_array(&request->fields, "messages");
    const json_t *kwargs = ash_fields_object(&request->fields, "chat_template_kwargs");

    read_system(&chat->conversation, request);
    if (kwargs != NULL) chat->conversation.kwargs = json_incref((json_t *)(uintptr_t)kwargs);
    if (json_array_size(messages) == 0 && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "missing_required_parameter", "messages",
                        "'messages' must hold at least one message");
    for (size_t i = 0; i < json_array_size(messages) && request->err.status == 0; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "messages[%zu]", i);
        if (role == NULL || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
            wrong(request, param, "must have the role user or assistant");
        else
            add_message(&chat->conversation, request, message, param);
    }
    chat->conversation.continues_final = is_begun_answer(&chat->conversation);
    read_tools(&chat->conversation, request);
    read_choice(chat, request);
}
