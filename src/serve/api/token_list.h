/* token_list - tokens as they came, with the most likely ones at each place. */
#ifndef ASH_SERVE_API_TOKEN_LIST_H
#define ASH_SERVE_API_TOKEN_LIST_H

#include <stddef.h>
#include "serve/engine/core.h"

/* Zero-initialise; free with ash_token_list_fini. */
struct ash_token_list {
    struct ash_token *items; /* their top pointers are set by ash_token_list_view only */
    size_t *tops_first;      /* of each item in tops */
    size_t count, capacity;
    struct ash_top_logprob *tops;
    size_t top_count, top_capacity;
};

/* Append a copy of token. Returns 0 or -ENOMEM. */
int ash_token_list_add(struct ash_token_list *list, const struct ash_token *token);
/* Make list the tokens of `from` from `first` up to `end`. Returns 0 or -ENOMEM. */
int ash_token_list_copy(struct ash_token_list *list, const struct ash_token_list *from, size_t first, size_t end);
/* The items with their top pointers set. Borrowed until the list changes. */
const struct ash_token *ash_token_list_view(struct ash_token_list *list);
/* Free it and make it empty. */
void ash_token_list_fini(struct ash_token_list *list);

#endif
