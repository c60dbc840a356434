/* responses_read - the input of OpenAI's responses as the conversation that a chat template renders. */
#ifndef ASH_SERVE_API_RESPONSES_READ_H
#define ASH_SERVE_API_RESPONSES_READ_H

#include "serve/api/chat_call.h"

/* Read "instructions", "input", "tools", "tool_choice", "text" and what needs a server that remembers, which is
 * refused. Errors are in request->err. */
void ash_responses_read(struct ash_api_call *call, struct ash_chat_call *chat, struct ash_api_request *request);

#endif
