/* responses_read - the input of OpenAI's responses as the conversation that a chat template renders. */
#ifndef ASH_SERVE_API_RESPONSES_READ_H
#define ASH_SERVE_API_RESPONSES_READ_H

#include "serve/api/chat_call.h"

/* Read "instructions", "input", "previous_response_id", "tools", "tool_choice", "text", "truncation", "include" and
 * "top_logprobs". *items_out is the whole input as a list of items, with what the client refers to in place; the caller
 * owns it, also on errors, which are in request->err. */
void ash_responses_read(struct ash_api_call *call, struct ash_chat_call *chat, struct ash_api_request *request,
                        json_t **items_out);
#endif
