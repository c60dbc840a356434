/* prompt - what a router reads of a request: its model, whether it streams, and its prompt as hashes of blocks. */
#ifndef ASH_SERVE_ROUTE_PROMPT_H
#define ASH_SERVE_ROUTE_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "serve/engine/prompt_blocks.h"

#define ASH_ROUTE_MODEL_BYTES 128

struct ash_route_prompt {
    char model[ASH_ROUTE_MODEL_BYTES]; /* empty: the request names none, or one too long to compare */
    bool is_stream;
    bool is_empty;       /* it has neither prompt nor messages */
    double keep_seconds; /* keep_alive of Ollama's clients; negative: for good, NaN: they do not say */
    struct ash_prompt_blocks blocks;
};

/* Read the body of a request in any of the forms. salt: prompts of different ones share nothing. A body that is no JSON
 * object has no model and no blocks. Returns 0 or -ENOMEM; then too *prompt_out can be finished. */
int ash_route_prompt_read(const char *body, size_t size_bytes, uint64_t salt, struct ash_route_prompt *prompt_out);
/* Free it; a zeroed one is fine. */
void ash_route_prompt_fini(struct ash_route_prompt *prompt);

#endif
