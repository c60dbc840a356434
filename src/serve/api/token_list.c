/* Lists of tokens with their most likely alternatives, in two arrays that grow. */
#include "serve/api/token_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int reserve(struct ash_token_list *list, size_t tops)
{
    size_t capacity = list->capacity; /* of both arrays */

    if (ash_array_reserve(&list->tops_first, &capacity, list->count + 1, sizeof(*list->tops_first)) < 0 ||
        ash_array_reserve(&list->items, &list->capacity, list->count + 1, sizeof(*list->items)) < 0)
        return -ENOMEM;
    return ash_array_reserve(&list->tops, &list->top_capacity, list->top_count + tops, sizeof(*list->tops));
}

int ash_token_list_add(struct ash_token_list *list, const struct ash_token *token)
{
    if (reserve(list, token->top_count) < 0) return -ENOMEM;
    if (token->top_count > 0) memcpy(list->tops + list->top_count, token->top, token->top_count * sizeof(*token->top));
    list->items[list->count] = *token;
    list->items[list->count].top = NULL;
    list->tops_first[list->count] = list->top_count;
    list->top_count += token->top_count;
    list->count++;
    return 0;
}

int ash_token_list_copy(struct ash_token_list *list, const struct ash_token_list *from, size_t first, size_t end)
{
    int rc = 0;

    list->count = list->top_count = 0;
    for (size_t i = first; rc == 0 && i < end; i++) {
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
