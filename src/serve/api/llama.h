/* llama - llama.cpp's own forms: /completion and /infill read the same settings and write the same answer. */
#ifndef ASH_SERVE_API_LLAMA_H
#define ASH_SERVE_API_LLAMA_H

#include "serve/api/call.h"

/* In call->state: what only these forms know. */
struct ash_llama_call {
    size_t probs; /* n_probs */
    bool returns_tokens, has_timings;
    int slot;                /* as the request has it */
    json_t *response_fields; /* paths of what the answer shall have; NULL: all */
};

extern const struct ash_form ash_llama_form;

/* A call with its state and settings, read from the request; NULL on an error, in request->err. The
 * caller fills its prompts. */
struct ash_api_call *ash_llama_call_open(struct ash_api_request *request);
/* Check that the prompts, which came in the field prompt_key, fit; start the call, or answer with the error. Takes the
 * call (NULL: it could not be opened) and the members of request. */
void ash_llama_call_start(struct ash_api_call *call, struct ash_api_request *request, const char *prompt_key);

/* llama_samplers.c: read samplers, the list of filters that apply: switch the others off. What cannot be done in the
 * order that is asked for is refused. */
void ash_llama_samplers_read(struct ash_sampler_opts *sampler, struct ash_api_request *request);

#endif
