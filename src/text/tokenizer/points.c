/* Characters as keys: which token is one character, and between which two characters a merge can ever happen. A text
 * may be cut between two characters that no merge joins without changing its ids, which turns one long text into words
 * that a cache knows. */
#include "text/tokenizer/tokenizer_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define DIRECT 0x3000u /* characters below this are looked up in a plain array */
#define EMPTY UINT64_MAX

struct table {
    uint64_t *keys;
    int32_t *values; /* NULL for a set */
    size_t mask;
};

static bool table_init(struct table *table, size_t count, bool with_values)
{
    size_t slots = 16;

    while (slots < count * 2)
        slots *= 2;
    table->keys = malloc(slots * sizeof(*table->keys));
    if (table->keys == NULL) return false;
    memset(table->keys, 0xff, slots * sizeof(*table->keys));
    table->mask = slots - 1;
    if (!with_values) return true;
    table->values = malloc(slots * sizeof(*table->values));
    return table->values != NULL;
}

static void table_fini(struct table *table)
{
    free(table->keys);
    free(table->values);
}

static size_t table_slot(const struct table *table, uint64_t key)
{
    size_t at = ((key * 0x9e3779b97f4a7c15u) >> 32) & table->mask;

    while (table->keys[at] != key && table->keys[at] != EMPTY)
        at = (at + 1) & table->mask;
    return at;
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

struct ash_tok_points {
    int32_t direct[DIRECT];
    struct table rest;
};

/* The character that content consists of, or false. */
static bool single_point(const struct ash_tok_entry *entry, uint32_t *point_out)
{
    return entry->content != NULL && entry->size_bytes > 0 && entry->size_bytes <= 4 &&
           ash_utf8_decode(entry->content, entry->size_bytes, point_out) == (int)entry->size_bytes;
}

struct ash_tok_points *ash_tok_points_open(const struct ash_tok_vocab *vocab)
{
    struct ash_tok_points *points = calloc(1, sizeof(*points));
    uint32_t point;
    size_t count = 0;

    if (points == NULL) return NULL;
    for (size_t id = 0; id < vocab->entry_count; id++)
        count += single_point(&vocab->entries[id], &point);
    if (!table_init(&points->rest, count, true)) {
        ash_tok_points_close(points);
        return NULL;
    }
    memset(points->direct, 0xff, sizeof(points->direct));
    for (size_t id = 0; id < vocab->entry_count; id++) {
        if (!single_point(&vocab->entries[id], &point)) continue;
        if (point < DIRECT) {
            points->direct[point] = (int32_t)id;
        } else {
            size_t at = table_slot(&points->rest, point);
            points->rest.keys[at] = point;
            points->rest.values[at] = (int32_t)id;
        }
    }
    return points;
}

void ash_tok_points_close(struct ash_tok_points *points)
{
    if (points == NULL) return;
    table_fini(&points->rest);
    free(points);
}

int32_t ash_tok_points_find(const struct ash_tok_points *points, uint32_t point)
{
    size_t at;

    if (point < DIRECT) return points->direct[point];
    at = table_slot(&points->rest, point);
    return points->rest.keys[at] == point ? points->rest.values[at] : -1;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

struct ash_tok_pairs {
    struct table set;
};

static uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* The last character of content (valid UTF-8, not empty). */
static uint32_t last_point(const struct ash_tok_entry *entry)
{
    uint32_t point = 0;
    size_t at = entry->size_bytes - 1;

    while (at > 0 && ((uint8_t)entry->content[at] & 0xc0) == 0x80)
        at--;
    ash_utf8_decode(entry->content + at, entry->size_bytes - at, &point);
    return point;
}

struct ash_tok_pairs *ash_tok_pairs_open(const struct ash_tok_model *model)
{
    const struct ash_tok_merges *merges = &model->merges;
    struct ash_tok_pairs *pairs = calloc(1, sizeof(*pairs));

    if (pairs == NULL || !table_init(&pairs->set, merges->count, false)) {
        ash_tok_pairs_close(pairs);
        return NULL;
    }
    for (size_t i = 0; i <= merges->mask; i++) {
        const struct ash_tok_merge *merge = &merges->slots[i];
        const struct ash_tok_entry *left, *right;
        uint32_t first = 0;
        uint64_t key;
        if (merge->rank == ASH_TOK_NO_RANK) continue;
        left = &model->vocab.entries[merge->left];
        right = &model->vocab.entries[merge->right];
        if (left->size_bytes == 0 || right->size_bytes == 0) continue; /* an empty token is never a symbol */
        ash_utf8_decode(right->content, right->size_bytes, &first);
        key = pair_key(last_point(left), first);
        pairs->set.keys[table_slot(&pairs->set, key)] = key;
    }
    return pairs;
}

void ash_tok_pairs_close(struct ash_tok_pairs *pairs)
{
    if (pairs == NULL) return;
    table_fini(&pairs->set);
    free(pairs);
}

bool ash_tok_pairs_has(const struct ash_tok_pairs *pairs, uint32_t left, uint32_t right)
{
    uint64_t key = pair_key(left, right);

    return pairs->set.keys[table_slot(&pairs->set, key)] == key;
}
