/* tool_choice - which tools an answer may or must call. */
#ifndef ASH_SERVE_API_TOOL_CHOICE_H
#define ASH_SERVE_API_TOOL_CHOICE_H

#include "serve/api/conversation.h"

enum ash_tool_mode {
    ASH_TOOLS_NONE,     /* no calls: text that looks like one stays text */
    ASH_TOOLS_AUTO,     /* the model decides */
    ASH_TOOLS_REQUIRED, /* at least one call */
    ASH_TOOLS_NAMED,    /* a call of this one */
};

struct ash_tool_choice {
    enum ash_tool_mode mode;
    const char *name; /* NAMED; borrowed from the request */
    bool is_parallel; /* more than one call in an answer */
};

/* Read "tool_choice" and "parallel_tool_calls" of OpenAI's forms. What is wrong is in request->err. */
void ash_tool_choice_read(struct ash_tool_choice *choice, const struct ash_conversation *conversation,
                          struct ash_api_request *request);
/* Check that a named tool is among those of the request. */
void ash_tool_choice_check(const struct ash_tool_choice *choice, const struct ash_conversation *conversation,
                           struct ash_api_request *request);

#endif
