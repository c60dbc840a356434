/* take - what the engine's thread does with a token: text, stop strings, records. */
#ifndef ASH_SERVE_API_TAKE_H
#define ASH_SERVE_API_TAKE_H

#include "serve/api/call.h"

/* As ash_request's take; ctx is the choice. */
int ash_api_choice_take(void *ctx, const struct ash_token *token);
/* As ash_request's take_prompt. */
void ash_api_choice_take_prompt(void *ctx, size_t index, const struct ash_token *token);
/* Where the next event of a stream ends, in text and tokens. */
struct ash_frame {
    size_t text_end, token_end;
    bool is_last; /* nothing follows */
};

/* Find it. The call's lock is held. */
struct ash_frame ash_api_choice_frame(const struct ash_api_choice *choice);
/* The answer is over: flush the text held back. The call's lock is held. */
void ash_api_choice_end(struct ash_api_choice *choice);

#endif
