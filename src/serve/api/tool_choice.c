/* tool_choice: "none", "auto", "required", or {"type": "function", "function": {"name": …}}. */
#include "serve/api/tool_choice.h"

#include <string.h>

void ash_tool_choice_check(const struct ash_tool_choice *choice, const struct ash_conversation *conversation,
                           struct ash_api_request *request)
{
    if (choice->mode == ASH_TOOLS_REQUIRED && conversation->tools == NULL)
        ash_fields_wrong(&request->fields, "tool_choice", "asks for a call, but there are no tools");
    if (choice->mode != ASH_TOOLS_NAMED) return;
    for (size_t i = 0; i < json_array_size(conversation->tools); i++) {
        const json_t *function = json_object_get(json_array_get(conversation->tools, i), "function");

        if (strcmp(json_string_value(json_object_get(function, "name")), choice->name) == 0) return;
    }
    ash_fields_wrong(&request->fields, "tool_choice", "names %.60s, which is not among the tools", choice->name);
}

static void read_word(struct ash_tool_choice *choice, struct ash_api_request *request, const char *word)
{
    if (strcmp(word, "none") == 0)
        choice->mode = ASH_TOOLS_NONE;
    else if (strcmp(word, "auto") == 0)
        choice->mode = choice->mode == ASH_TOOLS_NONE ? ASH_TOOLS_NONE : ASH_TOOLS_AUTO;
    else if (strcmp(word, "required") == 0)
        choice->mode = ASH_TOOLS_REQUIRED;
    else
        ash_fields_wrong(&request->fields, "tool_choice", "must be none, auto, required or a function");
}

void ash_tool_choice_read(struct ash_tool_choice *choice, const struct ash_conversation *conversation,
                          struct ash_api_request *request)
{
    const json_t *value = ash_fields_any(&request->fields, "tool_choice");
    const json_t *function = json_object_get(value, "function");
    const json_t *name = json_object_get(function != NULL ? function : value, "name");

    choice->mode = conversation->tools != NULL ? ASH_TOOLS_AUTO : ASH_TOOLS_NONE;
    choice->is_parallel = ash_fields_bool(&request->fields, "parallel_tool_calls", true);
    if (json_is_string(value)) {
        read_word(choice, request, json_string_value(value));
    } else if (json_is_string(name)) {
        choice->mode = ASH_TOOLS_NAMED;
        choice->name = json_string_value(name);
    } else if (value != NULL) {
        ash_fields_wrong(&request->fields, "tool_choice", "must be none, auto, required or a function");
    }
    ash_tool_choice_check(choice, conversation, request);
}
