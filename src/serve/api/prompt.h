/* prompt - the prompts of a request as token ids. */
#ifndef ASH_SERVE_API_PROMPT_H
#define ASH_SERVE_API_PROMPT_H

#include "serve/api/sampling.h"

/* Zero-initialise; free with ash_prompts_fini. */
struct ash_prompts {
    struct ash_ids *items;
    size_t count, capacity;
};

/* Read a field that holds a text, ids, a mix of both, or a list of such. add_special puts the model's beginning-of-text
 * token before texts. Errors are in request->err. */
void ash_prompts_read(struct ash_prompts *prompts, struct ash_api_request *request, const char *key, bool add_special);
/* Add the ids of a text. */
void ash_prompts_add_text(struct ash_prompts *prompts, struct ash_api_request *request, const struct ash_str *text,
                          bool add_special);
/* Add a prompt of these ids, which are taken: ids is empty then. Returns 0 or -ENOMEM. */
int ash_prompts_add_ids(struct ash_prompts *prompts, struct ash_ids *ids);
/* Shorten as the request asks, and check that each fits the context together with its answer. prompt_key
 * names the prompt's field for the message. */
void ash_prompts_fit(struct ash_prompts *prompts, struct ash_api_request *request, const struct ash_sampling *sampling,
                     const char *prompt_key);
/* Free the ids. */
void ash_prompts_fini(struct ash_prompts *prompts);

#endif
