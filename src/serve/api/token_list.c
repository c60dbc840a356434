/* Lists of tokens with their most likely alternatives, in two arrays that grow. */
#include "serve/api/token_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

static int grow_items(struct ash_token_list *list)
{
    size_t capacity = ash_max(32, 2 * list->capacity);
    struct ash_token *items = realloc(list->items, capacity * sizeof(*items));
    size_t *firsts;

    if (items == NULL) return -ENOMEM;
    list->items = items;
    firsts = realloc(list->tops_first, capacity * sizeof(*firsts));
    if (firsts == NULL) return -ENOMEM;
    list->tops_first = firsts;
    list->capacity = capacity;
    return 0;
}

static int grow_tops(struct ash_token_list *list, size_t more)
{
    size_t capacity = ash_max(list->top_count + more, 2 * list->top_capacity);
    struct ash_top_logprob *tops = realloc(list->tops, capacity * sizeof(*tops));

    if (tops == NULL) return -ENOMEM;
    list->tops = tops;
    list->top_capacity = capacity;
    return 0;
}

int ash_token_list_add(struct ash_token_list *list, const struct ash_token *token)
{
    if (list->count == list->capacity && grow_items(list) < 0) return -ENOMEM;
    if (list->top_count + token->top_count > list->top_capacity && grow_tops(list, token->top_count) < 0)
        return -ENOMEM;
    if (token->top_count > 0) memcpy(list->tops + list->top_count, token->top, token->top_count * sizeof(*token->top));
    list->items[list->count] = *token;
    list->items[list->count].top = NULL;
    list->tops_first[list->count] = list->top_count;
    list->top_count += token->top_count;
    list->count++;
    return 0;
}

int ash_token_list_copy(struct ash_token_list *list, const struct ash_token_list *from, size_t first)
{
    int rc = 0;

    list->count = list->top_count = 0;
    for (size_t i = first; rc == 0 && i < from->count; i++) {
        struct ash_token token = from->items[i];

        token.top = from->tops != NULL ? from->tops + from->tops_first[i] : NULL;
        rc = ash_token_list_add(list, &token);
    }
    return rc;
}

const struct ash_token *ash_token_list_view(struct ash_token_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        list->items[i].top = list->tops != NULL ? list->tops + list->tops_first[i] : NULL;
    return list->items;
}

void ash_token_list_fini(struct ash_token_list *list)
{
    free(list->items);
    free(list->tops_first);
    free(list->tops);
    *list = (struct ash_token_list){0};
}
