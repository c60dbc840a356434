/* Ollama nests sampling in "options", has arguments of calls as objects, and names of models with a tag. */
#include "serve/api/ollama_read.h"

#include <string.h>

#define TAG ":latest"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A call in OpenAI's shape: it needs a type and an id. */
static json_t *translate_call(const json_t *call, size_t i)
{
    json_t *id = json_object_get(call, "id");

    return json_pack("{s:o, s:s, s:O*}", "id", json_is_string(id) ? json_incref(id) : json_sprintf("call_%zu", i),
                     "type", "function", "function", json_object_get(call, "function"));
}

static json_t *translate_message(struct ash_api_request *request, const json_t *message)
{
    json_t *copy = json_object(), *thinking = json_object_get(message, "thinking");
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *list = json_array();

    json_object_update(copy, (json_t *)(uintptr_t)message);
    if (json_array_size(json_object_get(message, "images")) > 0)
        ash_api_err_set(&request->err, 400, "unsupported_content", "images", "'images': this model reads text only");
    for (size_t i = 0; i < json_array_size(calls); i++)
        json_array_append_new(list, translate_call(json_array_get(calls, i), i));
    if (json_array_size(list) > 0) json_object_set(copy, "tool_calls", list);
    if (json_is_string(thinking)) json_object_set(copy, "reasoning_content", thinking);
    json_decref(list);
    return copy;
}

/* The messages of /api/chat, or system and prompt of /api/generate. */
static json_t *translate_messages(struct ash_api_request *request, const json_t *from, bool wants_prompt)
{
    const json_t *messages = json_object_get(from, "messages");
    json_t *list = json_array(), *system = json_object_get(from, "system");

    if (wants_prompt) {
        if (json_is_string(system) && json_string_length(system) > 0)
            json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content", system));
        json_array_append_new(list,
                              json_pack("{s:s, s:O}", "role", "user", "content", json_object_get(from, "prompt")));
    }
    for (size_t i = 0; i < json_array_size(messages) && !wants_prompt; i++) {
        const json_t *message = json_array_get(messages, i);

        if (json_is_object(message))
            json_array_append_new(list, translate_message(request, message));
        else
            json_array_append(list, (json_t *)(uintptr_t)message); /* it will be refused */
    }
    return list;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* "options": sampling, and choices of the server. */
static void translate_options(const json_t *options, json_t *to)
{
    static const char *const own[] = {"num_ctx",    "num_keep",   "num_batch",       "num_gpu",
                                      "main_gpu",   "low_vram",   "use_mmap",        "use_mlock",
                                      "num_thread", "vocab_only", "penalize_newline"};
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)options, key, value) {
        bool is_own = false;

        for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
            is_own |= strcmp(own[i], key) == 0;
        if (is_own) continue;
        if (strcmp(key, "num_predict") != 0)
            json_object_set(to, key, value);
        else if (!json_is_integer(value) || json_integer_value(value) > 0) /* negative: no limit */
            json_object_set(to, "max_tokens", value);
    }
}

/* "json", or a schema. */
static void translate_format(struct ash_api_request *request, json_t *format, json_t *to)
{
    if (json_is_object(format))
        json_object_set(to, "json_schema", format);
    else if (json_is_string(format) && strcmp(json_string_value(format), "json") == 0)
        json_object_set_new(to, "response_format", json_pack("{s:s}", "type", "json_object"));
    else if (format != NULL && !json_is_null(format) && !(json_is_string(format) && json_string_length(format) == 0))
        ash_api_err_set(&request->err, 400, "invalid_value", "format", "'format' must be \"json\" or a JSON schema");
}

/* A model's name may have a tag that this server does not know. */
static void translate_name(const struct ash_api_request *request, json_t *name, json_t *to)
{
    size_t size = json_string_length(name), tag = strlen(TAG);
    const char *text = json_string_value(name);

    if (text == NULL) return;
    for (size_t i = 0; i < request->api->opts.name_count; i++)
        if (strcmp(request->api->opts.names[i], text) == 0) tag = size;
    if (size > tag && strcmp(text + size - tag, TAG) == 0)
        json_object_set_new(to, "model", json_stringn(text, size - tag));
    else
        json_object_set(to, "model", name);
}

void ash_ollama_translate(struct ash_api_request *request, bool wants_prompt)
{
    static const char *const taken[] = {"model",  "name",  "messages",   "system", "options",
                                        "format", "think", "keep_alive", "images", "context"};
    json_t *from = request->json, *to = json_copy(from), *name = json_object_get(from, "model");
    json_t *think = json_object_get(from, "think");

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        json_object_del(to, taken[i]);
    translate_name(request, name != NULL ? name : json_object_get(from, "name"), to);
    if (!wants_prompt || json_is_string(json_object_get(from, "prompt")))
        json_object_set_new(to, "messages", translate_messages(request, from, wants_prompt));
    translate_options(json_object_get(from, "options"), to);
    translate_format(request, json_object_get(from, "format"), to);
    if (json_is_boolean(think) || json_is_string(think))
        json_object_set_new(to, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", !json_is_false(think)));
    if (json_array_size(json_object_get(from, "images")) > 0)
        ash_api_err_set(&request->err, 400, "unsupported_content", "images", "'images': this model reads text only");
    request->json = to;
    json_decref(from);
    ash_fields_init(&request->fields, to, "", &request->err);
}
