/* Conversations. Clients send contents as texts or as lists of parts, and arguments of calls as JSON in a string;
 * templates were written for texts and objects, as transformers and vLLM give them. */
#include "serve/api/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define MESSAGES_MAX 65536

static void wrong(struct ash_api_request *request, const char *param, const char *text)
{
    ash_api_err_set(&request->err, 400, "invalid_value", param, "'%s' %s", param, text);
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

/* The text of one part, or NULL with an error set. */
static const char *part_text(const json_t *part, struct ash_api_request *request, const char *param)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const char *text = json_string_value(json_object_get(part, "text"));

    if (json_is_string(part)) return json_string_value(part);
    if (type == NULL) type = text != NULL ? "text" : "";
    if (strcmp(type, "refusal") == 0) text = json_string_value(json_object_get(part, "refusal"));
    if (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 || strcmp(type, "output_text") == 0 ||
        strcmp(type, "refusal") == 0) {
        if (text == NULL) wrong(request, param, "has no text");
        return text;
    }
    if (strstr(type, "image") != NULL || strstr(type, "audio") != NULL || strstr(type, "video") != NULL ||
        strcmp(type, "file") == 0)
        ash_api_err_set(&request->err, 400, "unsupported_content", param,
                        "'%s' is of type %.40s, and this model reads text only", param, type);
    else
        wrong(request, param, "must be a part of type text");
    return NULL;
}

/* Texts of parts, a line each. */
static json_t *join_parts(const json_t *parts, struct ash_api_request *request, const char *param)
{
    struct ash_str text = {0};
    json_t *joined = NULL;
    int rc = ash_str_adds(&text, "");

    for (size_t i = 0; i < json_array_size(parts) && rc == 0 && request->err.status == 0; i++) {
        char name[ASH_API_PARAM_BYTES];
        const char *part;

        ash_api_param_set(name, "%s[%zu]", param, i);
        part = part_text(json_array_get(parts, i), request, name);
        if (part != NULL && i > 0) rc = ash_str_adds(&text, "\n");
        if (part != NULL && rc == 0) rc = ash_str_adds(&text, part);
    }
    if (rc == 0) joined = json_stringn(text.data, text.size_bytes);
    ash_str_fini(&text);
    return joined;
}

/* The content of a message as a text, or null if there is none; a new reference. */
static json_t *read_content(const json_t *message, struct ash_api_request *request, const char *param)
{
    const json_t *content = json_object_get(message, "content");
    char name[ASH_API_PARAM_BYTES];

    ash_api_param_set(name, "%s.content", param);
    if (json_array_size(content) > 0) return join_parts(content, request, name);
    if (json_is_string(content) && strlen(json_string_value(content)) == json_string_length(content))
        return json_copy((json_t *)(uintptr_t)content);
    if (content != NULL && !json_is_null(content) && !json_is_array(content))
        wrong(request, name, "must be a text without NUL, or a list of parts");
    return json_null();
}

/* ---- tool calls -------------------------------------------------------------------------------------------------- */

/* Arguments in a string become the object that they spell. */
static void unpack_arguments(json_t *call, struct ash_api_request *request, const char *param)
{
    json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    json_error_t where;
    json_t *object;

    if (!json_is_object(function) || !json_is_string(json_object_get(function, "name"))) {
        wrong(request, param, "must hold calls with a function and its name");
        return;
    }
    if (!json_is_string(arguments)) return;
    if (json_string_length(arguments) == 0)
        object = json_object();
    else
        object = json_loadb(json_string_value(arguments), json_string_length(arguments), 0, &where);
    if (json_is_object(object)) json_object_set(function, "arguments", object);
    json_decref(object);
}

static void read_calls(const json_t *message, json_t *copy, struct ash_api_request *request, const char *param)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    char name[ASH_API_PARAM_BYTES];
    json_t *list;

    if (calls == NULL || json_is_null(calls)) return;
    ash_api_param_set(name, "%s.tool_calls", param);
    if (!json_is_array(calls)) {
        wrong(request, name, "must be a list");
        return;
    }
    list = json_deep_copy(calls);
    for (size_t i = 0; i < json_array_size(list); i++)
        unpack_arguments(json_array_get(list, i), request, name);
    if (json_array_size(list) > 0)
        json_object_set_new(copy, "tool_calls", list);
    else
        json_decref(list);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The role as templates know it, or NULL with an error set. */
static const char *read_role(const json_t *message, struct ash_api_request *request, const char *param)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "function"};
    const char *role = json_string_value(json_object_get(message, "role"));
    char name[ASH_API_PARAM_BYTES];

    ash_api_param_set(name, "%s.role", param);
    if (role != NULL && strcmp(role, "developer") == 0) return "system";
    for (size_t i = 0; role != NULL && i < ASH_COUNT(roles); i++)
        if (strcmp(role, roles[i]) == 0) return roles[i];
    wrong(request, name, "must be system, developer, user, assistant or tool");
    return NULL;
}

static void copy_string(json_t *copy, const json_t *message, const char *key, const char *as)
{
    json_t *value = json_object_get(message, key);

    if (json_is_string(value)) json_object_set(copy, as, value);
}

void ash_conversation_add(struct ash_conversation *conversation, struct ash_api_request *request, const json_t *message,
                          const char *param)
{
    const char *role;
    json_t *copy;

    if (conversation->messages == NULL) conversation->messages = json_array();
    if (!json_is_object(message)) {
        wrong(request, param, "must be an object with a role and a content");
        return;
    }
    role = read_role(message, request, param);
    if (role == NULL) return;
    copy = json_object();
    json_object_set_new(copy, "role", json_string(role));
    json_object_set_new(copy, "content", read_content(message, request, param));
    copy_string(copy, message, "name", "name");
    copy_string(copy, message, "tool_call_id", "tool_call_id");
    copy_string(copy, message, "reasoning_content", "reasoning_content");
    copy_string(copy, message, "reasoning", "reasoning_content");
    if (request->api->tool_format == ASH_TOOLS_HARMONY) copy_string(copy, copy, "reasoning_content", "thinking");
    read_calls(message, copy, request, param);
    if (json_array_append_new(conversation->messages, copy) < 0)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the messages");
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

static void read_tools(struct ash_conversation *conversation, struct ash_api_request *request)
{
    const json_t *tools = ash_fields_array(&request->fields, "tools");

    for (size_t i = 0; i < json_array_size(tools) && request->err.status == 0; i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        const char *type = json_string_value(json_object_get(tool, "type"));
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "tools[%zu]", i);
        if (type == NULL || strcmp(type, "function") != 0)
            wrong(request, param, "must be of type function");
        else if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
            wrong(request, param, "must have a function with a name");
        else if (json_object_get(function, "parameters") != NULL &&
                 !json_is_object(json_object_get(function, "parameters")))
            wrong(request, param, "must have parameters that are a JSON schema");
    }
    if (json_array_size(tools) > 0 && request->err.status == 0)
        conversation->tools = json_incref((json_t *)(uintptr_t)tools);
}

void ash_conversation_read(struct ash_conversation *conversation, struct ash_api_request *request)
{
    struct ash_fields *fields = &request->fields;
    const json_t *messages = ash_fields_array(fields, "messages");
    const json_t *kwargs = ash_fields_object(fields, "chat_template_kwargs");

    conversation->has_no_generation_prompt = !ash_fields_bool(fields, "add_generation_prompt", true);
    conversation->continues_final = ash_fields_bool(fields, "continue_final_message", false);
    if (conversation->continues_final && ash_fields_has(fields, "add_generation_prompt") &&
        !conversation->has_no_generation_prompt)
        ash_fields_wrong(fields, "continue_final_message", "and add_generation_prompt exclude each other");
    if (kwargs != NULL) conversation->kwargs = json_incref((json_t *)(uintptr_t)kwargs);
    if (ash_fields_has(fields, "chat_template"))
        ash_fields_wrong(fields, "chat_template", "is the server's to choose (--chat-template)");
    if (messages == NULL && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "missing_required_parameter", "messages", "'messages' is missing");
    if (messages != NULL && (json_array_size(messages) == 0 || json_array_size(messages) > MESSAGES_MAX))
        ash_fields_wrong(fields, "messages", "must hold 1 to %d messages", MESSAGES_MAX);
    for (size_t i = 0; i < json_array_size(messages) && request->err.status == 0; i++) {
        char param[ASH_API_PARAM_BYTES];

        ash_api_param_set(param, "messages[%zu]", i);
        ash_conversation_add(conversation, request, json_array_get(messages, i), param);
    }
    read_tools(conversation, request);
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static json_t *variables_of(const struct ash_conversation *conversation)
{
    bool generates = !conversation->has_no_generation_prompt && !conversation->continues_final;
    json_t *variables = json_pack("{s:O, s:b}", "messages", conversation->messages, "add_generation_prompt", generates);

    if (variables == NULL) return NULL;
    json_object_set_new(variables, "tools",
                        conversation->tools != NULL ? json_incref(conversation->tools) : json_null());
    if (conversation->kwargs != NULL) json_object_update(variables, conversation->kwargs);
    return variables;
}

/* Cut the text after the last message's content, so that the answer continues it. */
static void cut_after_final(const struct ash_conversation *conversation, struct ash_api_request *request,
                            struct ash_str *text)
{
    const json_t *last = json_array_get(conversation->messages, json_array_size(conversation->messages) - 1);
    const char *content = json_string_value(json_object_get(last, "content")), *found = NULL;
    size_t bytes;

    if (content == NULL) content = "";
    content += strspn(content, " \t\r\n"); /* templates trim */
    bytes = strlen(content);
    while (bytes > 0 && strchr(" \t\r\n", content[bytes - 1]) != NULL)
        bytes--;
    for (size_t i = text->size_bytes; bytes > 0 && i >= bytes && found == NULL; i--)
        if (memcmp(text->data + i - bytes, content, bytes) == 0) found = text->data + i - bytes;
    if (found == NULL) {
        ash_fields_wrong(&request->fields, "continue_final_message",
                         "needs a last message whose content appears in the prompt");
        return;
    }
    text->size_bytes = (size_t)(found - text->data) + bytes;
    text->data[text->size_bytes] = '\0';
}

/* The messages with "" for null, or NULL if no content is null. A new reference. */
static json_t *fill_contents(const json_t *messages)
{
    json_t *filled = NULL;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);

        if (!json_is_null(json_object_get(message, "content"))) continue;
        if (filled == NULL) filled = json_copy((json_t *)(uintptr_t)messages);
        message = json_copy(message);
        json_object_set_new(message, "content", json_string(""));
        json_array_set_new(filled, i, message);
    }
    return filled;
}

/* How often a text has Python's word for null. */
static size_t count_none(const struct ash_str *text)
{
    size_t count = 0;

    for (const char *at = text->data; at != NULL && (at = strstr(at, "None")) != NULL; at++)
        count++;
    return count;
}

/* Contents that are null stay null: templates of DeepSeek write tool calls only then. If the template fails or writes
 * "None" for it, the text is the one that "" gives. */
static int render(const struct ash_conversation *conversation, const struct ash_chat_template *template,
                  json_t *variables, struct ash_str *text, struct ash_err *err)
{
    json_t *filled = fill_contents(conversation->messages);
    struct ash_str plain = {0};
    struct ash_err plain_err = {0};
    int rc = ash_chat_template_render_json(template, variables, text, err), plain_rc;

    if (filled == NULL) return rc;
    json_object_set_new(variables, "messages", filled);
    plain_rc = ash_chat_template_render_json(template, variables, &plain, &plain_err);
    if (rc < 0 || (plain_rc == 0 && count_none(text) > count_none(&plain))) {
        rc = plain_rc;
        *err = plain_err;
        ash_str_clear(text);
        if (rc == 0) rc = ash_str_add(text, plain.data, plain.size_bytes);
    }
    ash_str_fini(&plain);
    return rc;
}

void ash_conversation_render(const struct ash_conversation *conversation, struct ash_api_request *request,
                             struct ash_str *text)
{
    const struct ash_api_engine *engine = &request->api->engine;
    struct ash_err err = {0};
    json_t *variables;

    if (request->err.status != 0) return;
    if (engine->chat == NULL) {
        ash_api_err_set(&request->err, 400, "no_chat_template", "messages",
                        "%s: give the server one with --chat-template, or use /v1/completions",
                        engine->chat_text != NULL ? engine->chat_text : "this model has no chat template");
        return;
    }
    variables = variables_of(conversation);
    if (variables == NULL)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the prompt");
    else if (render(conversation, engine->chat, variables, text, &err) < 0)
        ash_api_err_take(&request->err, "messages", &err);
    else if (conversation->continues_final)
        cut_after_final(conversation, request, text);
    json_decref(variables);
}

void ash_conversation_fini(struct ash_conversation *conversation)
{
    json_decref(conversation->messages);
    json_decref(conversation->tools);
    json_decref(conversation->kwargs);
    *conversation = (struct ash_conversation){0};
}
