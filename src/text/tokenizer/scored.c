/* Merges of vocabularies that have scores in their place: two neighbours that make a token merge, the highest score
 * first, the leftmost of equal ones. */
#include "text/tokenizer/scored.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

#define SCORED_BYTES_MAX ((size_t)1024) /* of a token that merges make: all its splits are looked at */

struct scored {
    float score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The place of each token in the order of falling scores; equal scores share theirs. The caller frees it. */
static int rank_tokens(const float *scores, size_t count, uint32_t **ranks_out, struct ash_err *err)
{
    struct scored *order = malloc(count * sizeof(*order));
    uint32_t *ranks = malloc(count * sizeof(*ranks)), rank = 0;

    for (size_t i = 0; order != NULL && i < count; i++)
        order[i] = (struct scored){scores[i], (uint32_t)i};
    if (order == NULL || ranks == NULL) {
        free(order);
        free(ranks);
        return ash_err_set(err, -ENOMEM, "out of memory for %zu scores", count);
    }
    qsort(order, count, sizeof(*order), by_score);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) rank++;
        ranks[order[i].id] = rank;
    }
    free(order);
    *ranks_out = ranks;
    return 0;
}

struct merge_list {
    struct ash_tok_merge *data;
    size_t count, capacity;
};

static int list_add(struct merge_list *list, struct ash_tok_merge merge)
{
    if (ash_array_reserve(&list->data, &list->capacity, list->count + 1, sizeof(*list->data)) < 0) return -ENOMEM;
    list->data[list->count++] = merge;
    return 0;
}

/* Every pair of tokens that makes token id. */
static int list_splits(const struct ash_tok_vocab *vocab, uint32_t id, uint32_t rank, struct merge_list *list,
                       struct ash_err *err)
{
    const struct ash_tok_entry *entry = &vocab->entries[id];
    int rc = 0;

    if (entry->size_bytes > SCORED_BYTES_MAX)
        return ash_err_set(err, -E2BIG, "token %u has %u bytes; %zu are allowed", id, entry->size_bytes,
                           SCORED_BYTES_MAX);
    for (size_t at = 1; rc == 0 && at < entry->size_bytes; at++) {
        int32_t left, right;

        if (((uint8_t)entry->content[at] & 0xc0) == 0x80) continue; /* inside a character */
        left = ash_tok_vocab_find(vocab, entry->content, at);
        if (left < 0) continue;
        right = ash_tok_vocab_find(vocab, entry->content + at, entry->size_bytes - at);
        if (right >= 0) rc = list_add(list, (struct ash_tok_merge){(uint32_t)left, (uint32_t)right, rank, id});
    }
    return rc < 0 ? ash_err_set(err, rc, "out of memory for the merges") : 0;
}

int ash_tok_merge_scored(struct ash_tok_model *model, const float *scores, const bool *is_made, struct ash_err *err)
{
    size_t count = model->vocab.entry_count;
    struct merge_list list = {0};
    uint32_t *ranks = NULL;
    int rc = rank_tokens(scores, count, &ranks, err);

    for (size_t id = 0; rc == 0 && id < count; id++)
        if (is_made == NULL || is_made[id]) rc = list_splits(&model->vocab, (uint32_t)id, ranks[id], &list, err);
    if (rc == 0) rc = ash_tok_merges_reserve(&model->merges, list.count, err);
    for (size_t i = 0; rc == 0 && i < list.count; i++)
        ash_tok_merges_put(&model->merges, list.data[i]);
    free(list.data);
    free(ranks);
    return rc;
}
