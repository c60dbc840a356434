/* conversation - messages of a request as the prompt that the model's chat template makes of them. */
#ifndef ASH_SERVE_API_CONVERSATION_H
#define ASH_SERVE_API_CONVERSATION_H

#include "serve/api/prompt.h"

/* What a conversation is rendered from; OpenAI's shapes. Zero-initialise; free with ash_conversation_fini. */
struct ash_conversation {
    json_t *messages; /* as templates want them: contents are texts or null, arguments objects */
    json_t *tools;    /* NULL: none */
    json_t *kwargs;   /* more variables of the template; NULL: none */
    bool has_no_generation_prompt, continues_final;
};

/* Read "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message". Errors are in
 * request->err. */
void ash_conversation_read(struct ash_conversation *conversation, struct ash_api_request *request);
/* Add one message of OpenAI's form, checked. param names it ("messages[3]"). */
void ash_conversation_add(struct ash_conversation *conversation, struct ash_api_request *request, const json_t *message,
                          const char *param);
/* Append the prompt's text. */
void ash_conversation_render(const struct ash_conversation *conversation, struct ash_api_request *request,
                             struct ash_str *text);
/* Free it. */
void ash_conversation_fini(struct ash_conversation *conversation);

#endif
