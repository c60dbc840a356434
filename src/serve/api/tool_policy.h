/* tool_policy - which tools an answer may or must call. */
#ifndef ASH_SERVE_API_TOOL_POLICY_H
#define ASH_SERVE_API_TOOL_POLICY_H

#include "serve/api/conversation.h"

enum ash_tool_mode {
    ASH_TOOL_MODE_NONE,     /* no calls: text that looks like one stays text */
    ASH_TOOL_MODE_AUTO,     /* the model decides */
    ASH_TOOL_MODE_REQUIRED, /* at least one call */
    ASH_TOOL_MODE_NAMED,    /* a call of this one */
};

struct ash_tool_policy {
    enum ash_tool_mode mode;
    const char *name;      /* NAMED; borrowed from the request */
    const json_t *allowed; /* of the tools, those that may be called; borrowed too; NULL: all */
    bool is_parallel;      /* more than one call in an answer */
};

/* Read "tool_choice" and "parallel_tool_calls" of OpenAI's forms. Errors are in request->err. */
void ash_tool_policy_read(struct ash_tool_policy *policy, const struct ash_conversation *conversation,
                          struct ash_api_request *request);
/* May this tool be called? */
bool ash_tool_policy_allows(const struct ash_tool_policy *policy, const char *name);
/* Check that a named tool is among those of the request. */
void ash_tool_policy_check(const struct ash_tool_policy *policy, const struct ash_conversation *conversation,
                           struct ash_api_request *request);

#endif
