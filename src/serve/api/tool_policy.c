/* tool_choice: "none", "auto", "required", or {"type": "function", "function": {"name": …}}. */
#include "serve/api/tool_policy.h"

#include <string.h>

/* The name in {"type": "function", "function": {"name": …}}, also without the inner object, or "". */
static const char *name_in(const json_t *value)
{
    const json_t *function = json_object_get(value, "function");
    const char *name = json_string_value(json_object_get(function != NULL ? function : value, "name"));

    return name != NULL ? name : "";
}

bool ash_tool_policy_allows(const struct ash_tool_policy *policy, const char *name)
{
    if (policy->mode == ASH_TOOL_MODE_NAMED) return strcmp(policy->name, name) == 0;
    for (size_t i = 0; i < json_array_size(policy->allowed); i++)
        if (strcmp(name_in(json_array_get(policy->allowed, i)), name) == 0) return true;
    return policy->allowed == NULL;
}

static void check_name(const struct ash_conversation *conversation, struct ash_api_request *request, const char *name)
{
    for (size_t i = 0; i < json_array_size(conversation->tools); i++)
        if (strcmp(name_in(json_array_get(conversation->tools, i)), name) == 0) return;
    ash_fields_wrong(&request->fields, "tool_choice", "names %.60s, which is not among the tools", name);
}

void ash_tool_policy_check(const struct ash_tool_policy *policy, const struct ash_conversation *conversation,
                           struct ash_api_request *request)
{
    if (policy->mode == ASH_TOOL_MODE_REQUIRED && conversation->tools == NULL)
        ash_fields_wrong(&request->fields, "tool_choice", "asks for a call, but there are no tools");
    if (policy->mode == ASH_TOOL_MODE_NAMED) check_name(conversation, request, policy->name);
    for (size_t i = 0; i < json_array_size(policy->allowed) && request->err.status == 0; i++)
        check_name(conversation, request, name_in(json_array_get(policy->allowed, i)));
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
        ash_fields_wrong(&request->fields, "tool_choice", "must be none, auto, required, a function or allowed_tools");
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": [{…}]}}, also without the inner object. */
static void read_allowed(struct ash_tool_policy *policy, struct ash_api_request *request, const json_t *value)
{
    const json_t *inner = json_object_get(value, "allowed_tools");
    const char *mode = json_string_value(json_object_get(inner != NULL ? inner : value, "mode"));

    policy->allowed = json_object_get(inner != NULL ? inner : value, "tools");
    if (json_array_size(policy->allowed) == 0)
        ash_fields_wrong(&request->fields, "tool_choice", "of type allowed_tools must list tools");
    else
        read_word(policy, request, mode != NULL ? mode : "auto");
}

void ash_tool_policy_read(struct ash_tool_policy *policy, const struct ash_conversation *conversation,
                          struct ash_api_request *request)
{
    const json_t *value = ash_fields_any(&request->fields, "tool_choice");
    const char *type = json_string_value(json_object_get(value, "type")), *name = name_in(value);

    policy->mode = conversation->tools != NULL ? ASH_TOOL_MODE_AUTO : ASH_TOOL_MODE_NONE;
    policy->is_parallel = ash_fields_bool(&request->fields, "parallel_tool_calls", true);
    if (json_is_string(value)) {
        read_word(policy, request, json_string_value(value));
    } else if (type != NULL && strcmp(type, "allowed_tools") == 0) {
        read_allowed(policy, request, value);
    } else if (name[0] != '\0') {
        policy->mode = ASH_TOOL_MODE_NAMED;
        policy->name = name;
    } else if (value != NULL) {
        ash_fields_wrong(&request->fields, "tool_choice", "must be none, auto, required, a function or allowed_tools");
    }
    ash_tool_policy_check(policy, conversation, request);
}
