/* messages_read - Anthropic's messages as the conversation that a chat template renders. */
#ifndef ASH_SERVE_API_MESSAGES_READ_H
#define ASH_SERVE_API_MESSAGES_READ_H

#include "serve/api/chat_call.h"

/* Read "system", "messages", "tools" and "tool_choice". Errors are in request->err. */
void ash_messages_read(struct ash_chat_call *chat, struct ash_api_request *request);

#endif
