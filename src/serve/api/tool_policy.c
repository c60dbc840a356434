/* tool_choice: "none", "auto", "required", or {"type": "function", "function": {"name": …}}. */
#include "serve/api/tool_policy.h"

#include <string.h>

void ash_tool_policy_check(const struct ash_tool_policy *policy, const struct ash_conversation *conversation,
                           struct ash_api_request *request)
{
    if (policy->mode == ASH_TOOL_MODE_REQUIRED && conversation->tools == NULL)
        ash_fields_wrong(&request->fields, "tool_choice", "asks for a call, but there are no tools");
    if (policy->mode != ASH_TOOL_MODE_NAMED) return;
    for (size_t i = 0; i < json_array_size(conversation->tools); i++) {
        const json_t *function = json_object_get(json_array_get(conversation->tools, i), "function");

        if (strcmp(json_string_value(json_object_get(function, "name")), policy->name) == 0) return;
    }
    ash_fields_wrong(&request->fields, "tool_choice", "names %.60s, which is not among the tools", policy->name);
}

static void read_word(struct ash_tool_policy *policy, struct ash_api_request *request, const char *word)
{
    if (strcmp(word, "none") == 0)
        policy->mode = ASH_TOOL_MODE_NONE;
    else if (strcmp(word, "auto") == 0)
        policy->mode = policy->mode == ASH_TOOL_MODE_NONE ? ASH_TOOL_MODE_NONE : ASH_TOOL_MODE_AUTO;
    else if (strcmp(word, "required") == 0)
        policy->mode = ASH_TOOL_MODE_REQUIRED;
    else
        ash_fields_wrong(&request->fields, "tool_choice", "must be none, auto, required or a function");
}

void ash_tool_policy_read(struct ash_tool_policy *policy, const struct ash_conversation *conversation,
                          struct ash_api_request *request)
{
    const json_t *value = ash_fields_any(&request->fields, "tool_choice");
    const json_t *function = json_object_get(value, "function");
    const json_t *name = json_object_get(function != NULL ? function : value, "name");

    policy->mode = conversation->tools != NULL ? ASH_TOOL_MODE_AUTO : ASH_TOOL_MODE_NONE;
    policy->is_parallel = ash_fields_bool(&request->fields, "parallel_tool_calls", true);
    if (json_is_string(value)) {
        read_word(policy, request, json_string_value(value));
    } else if (json_is_string(name)) {
        policy->mode = ASH_TOOL_MODE_NAMED;
        policy->name = json_string_value(name);
    } else if (value != NULL) {
        ash_fields_wrong(&request->fields, "tool_choice", "must be none, auto, required or a function");
    }
    ash_tool_policy_check(policy, conversation, request);
}
