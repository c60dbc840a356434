/* chat_call - what the chat forms (OpenAI's two and Anthropic's) share: a conversation that becomes a prompt, and
 * answers that are read as parts. */
#ifndef ASH_SERVE_API_CHAT_CALL_H
#define ASH_SERVE_API_CHAT_CALL_H

#include "serve/api/call.h"
#include "serve/api/conversation.h"
#include "serve/api/parts.h"
#include "serve/api/tool_policy.h"

/* In call->state, first in every form's own state. */
struct ash_chat_call {
    struct ash_conversation conversation;
    struct ash_tool_policy policy;
    struct ash_parts_opts parts;
    json_t *json;           /* of the request, kept for what borrows from it */
    struct ash_tool *tools; /* all that there are */
    bool has_logprobs;
    bool drops_oldest; /* messages that leave no room are left out */
};

/* A call of the form, with zeroed state of state_bytes that begins with a struct ash_chat_call. NULL on an error, in
 * request->err. */
struct ash_api_call *ash_chat_call_open(struct ash_api_request *request, const struct ash_form *form,
                                        const char *prefix, size_t state_bytes);
/* Read what Anthropic's form and OpenAI's newer one have in common: one answer, its sampling, its ends. */
void ash_chat_call_read_single(struct ash_api_call *call, struct ash_api_request *request, const char *stop_key,
                               const char *max_key);
/* Render the conversation into the call's only prompt, see to tools and constrained output, and check that it fits.
 * chat is call->state. */
void ash_chat_call_prepare(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat);
/* More text of a choice, whose parser is made if there is none. Returns 0, -ENOMEM or what see returned. */
int ash_chat_call_push(struct ash_api_choice *choice, const struct ash_delta *delta, ash_part_fn see, void *ctx);
/* The text of the choice is over: *call_count_out is how many tools it calls. Returns as push. */
int ash_chat_call_finish(struct ash_api_choice *choice, ash_part_fn see, void *ctx, size_t *call_count_out);
/* Read the whole text of a choice. */
int ash_chat_call_read(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_message_parts *message);
/* "tool_calls", "stop" or "length". */
const char *ash_chat_call_reason(const struct ash_api_choice *choice, size_t call_count);
/* For ash_form.free_state: frees parsers, what chat holds, and chat itself. */
void ash_chat_call_free(struct ash_api_call *call);
/* Start the call, or answer that it failed. */
void ash_chat_call_start(struct ash_api_call *call, struct ash_api_request *request);

#endif
