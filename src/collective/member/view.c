/* Views: counted references, and a sorted index to find a process in. */
#include "collective/member/view.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

struct ash_view *ash_view_new(size_t size, size_t card_bytes)
{
    struct ash_view *view = calloc(1, sizeof(*view));

    ash_assert(size > 0 && size <= ASH_VIEW_SIZE_MAX);
    if (view == NULL) return NULL;
    view->refs = 1;
    view->size = size;
    view->card_bytes = card_bytes;
    view->members = calloc(size, sizeof(*view->members));
    view->order = calloc(size, sizeof(*view->order));
    if (card_bytes > 0) view->cards = calloc(size, card_bytes);
    if (view->members == NULL || view->order == NULL || (card_bytes > 0 && view->cards == NULL)) {
        ash_view_put(view);
        return NULL;
    }
    return view;
}

static int compare_ids(const void *a, const void *b, void *ctx)
{
    const struct ash_view_member *members = ctx;
    uint64_t left = members[*(const uint32_t *)a].id, right = members[*(const uint32_t *)b].id;

    return left < right ? -1 : left > right;
}

int ash_view_seal(struct ash_view *view)
{
    for (size_t r = 0; r < view->size; r++)
        view->order[r] = (uint32_t)r;
    qsort_r(view->order, view->size, sizeof(*view->order), compare_ids, view->members);
    for (size_t i = 1; i < view->size; i++)
        if (view->members[view->order[i]].id == view->members[view->order[i - 1]].id) return -EEXIST;
    return 0;
}

struct ash_view *ash_view_get(struct ash_view *view)
{
    if (view != NULL) view->refs++;
    return view;
}

void ash_view_put(struct ash_view *view)
{
    if (view == NULL || --view->refs > 0) return;
    free(view->members);
    free(view->order);
    free(view->cards);
    free(view);
}

size_t ash_view_find(const struct ash_view *view, uint64_t id)
{
    size_t low = 0, high = view->size;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (view->members[view->order[middle]].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < view->size && view->members[view->order[low]].id == id ? view->order[low] : SIZE_MAX;
}

void *ash_view_card(const struct ash_view *view, size_t rank)
{
    ash_assert(rank < view->size && view->cards != NULL);
    return view->cards + rank * view->card_bytes;
}
