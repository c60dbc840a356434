/* The model's tokens by content and by id, and its merges by pair: two open-addressing tables, built once and only read
 * after. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define VERSION_LINE "#version" /* old merge lists open with such a line */

/* The smallest power of two that leaves half of the slots empty. */
static size_t slot_count(size_t count)
{
    size_t slots = 16;

    while (slots < count * 2)
        slots *= 2;
    return slots;
}

/* How much of a token a message shows. */
static int shown(struct ash_tok_span text)
{
    return text.size_bytes < 64 ? (int)text.size_bytes : 64;
}

/* ---- vocab ------------------------------------------------------------------------------------------------------- */

/* Check every pair of "vocab" and find out how much room they need. */
static int vocab_measure(const json_t *object, size_t *bytes_out, int32_t *id_max_out, struct ash_err *err)
{
    const char *content;
    json_t *value;
    size_t bytes = 0;
    int32_t id_max = -1;

    json_object_foreach((json_t *)object, content, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > ASH_TOK_ID_MAX)
            return ash_err_set(err, -EINVAL, "the id of token '%.64s' must be an integer from 0 to %d", content,
                               ASH_TOK_ID_MAX);
        bytes += strlen(content);
        if ((int32_t)id > id_max) id_max = (int32_t)id;
    }
    *bytes_out = bytes;
    *id_max_out = id_max;
    return 0;
}

static int32_t *vocab_slot(const struct ash_tok_vocab *vocab, const char *content, size_t size_bytes)
{
    size_t at = ash_hash_bytes(content, size_bytes, 0) & vocab->slot_mask;

    for (;; at = (at + 1) & vocab->slot_mask) {
        int32_t id = vocab->slots[at];
        if (id < 0) return &vocab->slots[at];
        if (vocab->entries[id].size_bytes == size_bytes && memcmp(vocab->entries[id].content, content, size_bytes) == 0)
            return &vocab->slots[at];
    }
}

int ash_tok_vocab_reserve(struct ash_tok_vocab *vocab, size_t count, size_t bytes, int32_t id_max, struct ash_err *err)
{
    size_t slots = slot_count(count);

    vocab->bytes = malloc(bytes + count + 1);
    vocab->slots = malloc(slots * sizeof(*vocab->slots));
    if (vocab->bytes == NULL || vocab->slots == NULL || ash_tok_vocab_reach(vocab, id_max) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a vocabulary of %zu tokens", count);
    memset(vocab->slots, 0xff, slots * sizeof(*vocab->slots));
    vocab->slot_mask = slots - 1;
    return 0;
}

int ash_tok_vocab_put(struct ash_tok_vocab *vocab, int32_t id, const char *content, size_t size_bytes,
                      struct ash_err *err)
{
    struct ash_tok_entry *entry = &vocab->entries[id];
    int32_t *slot = vocab_slot(vocab, content, size_bytes);
    char *to = vocab->bytes + vocab->used_bytes;

    ash_assert(id >= 0 && (size_t)id < vocab->entry_count && vocab->token_count <= vocab->slot_mask);
    if (entry->content != NULL)
        return ash_err_set(err, -EINVAL, "the tokens '%.64s' and '%.*s' share the id %d", entry->content,
                           shown((struct ash_tok_span){content, size_bytes}), content, id);
    if (*slot >= 0)
        return ash_err_set(err, -EINVAL, "the token '%.64s' has two ids, %d and %d", vocab->entries[*slot].content,
                           *slot, id);
    memcpy(to, content, size_bytes);
    to[size_bytes] = '\0';
    entry->content = to;
    entry->size_bytes = (uint32_t)size_bytes;
    vocab->used_bytes += size_bytes + 1;
    vocab->token_count++;
    *slot = id;
    return 0;
}

/* Put a token whose text is a key of JSON, where ASH_JSON_NUL stands for NUL. */
static int put_key(struct ash_tok_vocab *vocab, int32_t id, const char *key, struct ash_str *text, struct ash_err *err)
{
    const char *at = key, *nul = strstr(key, ASH_JSON_NUL);
    int rc = 0;

    if (nul == NULL) return ash_tok_vocab_put(vocab, id, key, strlen(key), err);
    ash_str_clear(text);
    for (; nul != NULL && rc == 0; nul = strstr(at, ASH_JSON_NUL)) {
        rc = ash_str_add(text, at, (size_t)(nul - at));
        if (rc == 0) rc = ash_str_add(text, "", 1);
        at = nul + strlen(ASH_JSON_NUL);
    }
    if (rc == 0) rc = ash_str_adds(text, at);
    if (rc < 0) return ash_err_set(err, rc, "out of memory for the vocabulary");
    return ash_tok_vocab_put(vocab, id, text->data, text->size_bytes, err);
}

int ash_tok_vocab_load(struct ash_tok_vocab *vocab, const json_t *object, struct ash_err *err)
{
    struct ash_str text = {0};
    const char *content;
    json_t *value;
    size_t bytes = 0;
    int32_t id_max = -1;
    int rc = vocab_measure(object, &bytes, &id_max, err);

    if (rc < 0) return rc;
    rc = ash_tok_vocab_reserve(vocab, json_object_size(object), bytes, id_max, err);
    if (rc < 0) return rc;
    json_object_foreach((json_t *)object, content, value) {
        rc = put_key(vocab, (int32_t)json_integer_value(value), content, &text, err);
        if (rc < 0) break;
    }
    ash_str_fini(&text);
    return rc;
}

void ash_tok_vocab_fini(struct ash_tok_vocab *vocab)
{
    free(vocab->bytes);
    free(vocab->entries);
    free(vocab->slots);
    *vocab = (struct ash_tok_vocab){0};
}

int32_t ash_tok_vocab_find(const struct ash_tok_vocab *vocab, const char *content, size_t size_bytes)
{
    ash_assert(vocab->slots != NULL);
    return *vocab_slot(vocab, content, size_bytes);
}

int ash_tok_vocab_reach(struct ash_tok_vocab *vocab, int32_t id)
{
    size_t count = (size_t)id + 1;
    struct ash_tok_entry *grown;

    ash_assert(id >= -1 && id <= ASH_TOK_ID_MAX);
    if (count <= vocab->entry_count) return 0;
    grown = realloc(vocab->entries, count * sizeof(*grown));
    if (grown == NULL) return -ENOMEM;
    for (size_t i = vocab->entry_count; i < count; i++)
        grown[i] = (struct ash_tok_entry){.added = -1};
    vocab->entries = grown;
    vocab->entry_count = count;
    return 0;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

const struct ash_tok_merge *ash_tok_merges_find(const struct ash_tok_merges *merges, uint32_t left, uint32_t right)
{
    size_t at = (((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u) >> merges->shift;

    for (;; at = (at + 1) & merges->mask) {
        const struct ash_tok_merge *slot = &merges->slots[at];
        if (slot->rank == ASH_TOK_NO_RANK || (slot->left == left && slot->right == right)) return slot;
    }
}

/* The two halves of a merge, written as "a b" or as ["a", "b"]. */
static int merge_halves(const json_t *item, struct ash_tok_span half[2])
{
    const char *text, *space;

    if (json_is_array(item)) {
        for (size_t i = 0; i < 2; i++) {
            half[i].data = json_string_value(json_array_get(item, i));
            if (half[i].data == NULL || json_array_size(item) != 2) return -EINVAL;
            half[i].size_bytes = strlen(half[i].data);
        }
        return 0;
    }
    text = json_string_value(item);
    space = text != NULL ? strchr(text, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL) return -EINVAL;
    half[0] = (struct ash_tok_span){text, (size_t)(space - text)};
    half[1] = (struct ash_tok_span){space + 1, strlen(space + 1)};
    return 0;
}

int ash_tok_merges_reserve(struct ash_tok_merges *merges, size_t count, struct ash_err *err)
{
    size_t slots = slot_count(count);

    merges->slots = malloc(slots * sizeof(*merges->slots));
    if (merges->slots == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu merges", count);
    memset(merges->slots, 0xff, slots * sizeof(*merges->slots)); /* every rank ASH_TOK_NO_RANK */
    merges->mask = slots - 1;
    merges->shift = 64 - __builtin_ctzll(slots);
    return 0;
}

void ash_tok_merges_put(struct ash_tok_merges *merges, struct ash_tok_merge merge)
{
    ash_assert(merges->slots != NULL && merges->count <= merges->mask && merge.rank != ASH_TOK_NO_RANK);
    *(struct ash_tok_merge *)ash_tok_merges_find(merges, merge.left, merge.right) = merge;
    merges->count++;
}

int ash_tok_merges_add(struct ash_tok_merges *merges, const struct ash_tok_vocab *vocab,
                       const struct ash_tok_span half[2], struct ash_str *joined, struct ash_err *err)
{
    uint32_t rank = (uint32_t)merges->count;
    int32_t left = ash_tok_vocab_find(vocab, half[0].data, half[0].size_bytes);
    int32_t right = ash_tok_vocab_find(vocab, half[1].data, half[1].size_bytes);
    int32_t result;

    ash_str_clear(joined);
    if (ash_str_add(joined, half[0].data, half[0].size_bytes) < 0 ||
        ash_str_add(joined, half[1].data, half[1].size_bytes) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the merges");
    result = ash_tok_vocab_find(vocab, joined->data, joined->size_bytes);
    if (left < 0 || right < 0 || result < 0)
        return ash_err_set(err, -EINVAL, "merge %u ('%.*s' and '%.*s') needs a token that is not in the vocabulary",
                           rank, shown(half[0]), half[0].data, shown(half[1]), half[1].data);
    /* a pair that is listed twice has its last rank, as in the library */
    ash_tok_merges_put(merges, (struct ash_tok_merge){(uint32_t)left, (uint32_t)right, rank, (uint32_t)result});
    return 0;
}

static bool is_version_line(const json_t *item)
{
    const char *text = json_string_value(item);

    return text != NULL && strncmp(text, VERSION_LINE, strlen(VERSION_LINE)) == 0;
}

int ash_tok_merges_load(struct ash_tok_merges *merges, const struct ash_tok_vocab *vocab, const json_t *array,
                        struct ash_err *err)
{
    struct ash_str joined = {0};
    size_t index;
    json_t *item;
    int rc = ash_tok_merges_reserve(merges, json_array_size(array), err);

    if (rc < 0) return rc;
    json_array_foreach(array, index, item) {
        struct ash_tok_span half[2];
        if (is_version_line(item)) continue;
        rc = merge_halves(item, half);
        if (rc < 0)
            ash_err_set(err, rc, "merge %zu is neither \"a b\" nor [\"a\", \"b\"]", index);
        else
            rc = ash_tok_merges_add(merges, vocab, half, &joined, err);
        if (rc < 0) break;
    }
    ash_str_fini(&joined);
    return rc;
}

void ash_tok_merges_fini(struct ash_tok_merges *merges)
{
    free(merges->slots);
    *merges = (struct ash_tok_merges){0};
}
