/* take - what the engine's thread does with a token: text, stop strings, records. */
#ifndef ASH_SERVE_API_TAKE_H
#define ASH_SERVE_API_TAKE_H

#include "serve/api/call.h"

/* As ash_request's take; ctx is the choice. */
int ash_api_choice_take(void *ctx, const struct ash_token *token);
/* As ash_request's take_prompt. */
void ash_api_choice_take_prompt(void *ctx, size_t index, const struct ash_token *token);
/* The answer is over: flush the text held back. The call's lock is held. */
void ash_api_choice_end(struct ash_api_choice *choice);

#endif
