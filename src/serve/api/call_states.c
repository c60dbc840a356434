/* Calls whose answers are states of their prompts: embeddings and scores. */
#include <stdlib.h>

#include "serve/api/call.h"

void ash_call_take_states(struct ash_api_call *call, struct ash_api_request *request)
{
    size_t hidden = request->api->engine.hidden;

    call->choices = calloc(call->prompts.count, sizeof(*call->choices));
    for (size_t i = 0; i < call->prompts.count && call->choices != NULL; i++) {
        call->choices[i].hidden = calloc(hidden, sizeof(float));
        call->choice_count = i + 1;
        if (call->choices[i].hidden == NULL) break;
    }
    if (call->choices == NULL || call->choices[call->choice_count - 1].hidden == NULL)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the embeddings");
}

void ash_call_set_states(struct ash_api_choice *choice)
{
    const struct ash_sampling *sampling = &choice->call->sampling;
    struct ash_request *request = &choice->request;

    request->pooling = sampling->pooling;
    request->hidden = choice->hidden;
    request->wants_score = sampling->wants_score;
    request->second = choice->second;
}
