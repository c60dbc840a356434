/* words: a hash table over one growing text. */
#include "text/learn/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"

#define SLOTS_MIN ((size_t)1024)

const char *ash_words_bytes(const struct ash_words *words, size_t index)
{
    ash_assert(index < words->count);
    return words->text + words->items[index].at;
}

/* The slot of a word, or the empty one where it belongs. */
static uint32_t *find_slot(const struct ash_words *words, const char *bytes, size_t size_bytes, uint64_t hash)
{
    for (size_t at = hash & words->slot_mask;; at = (at + 1) & words->slot_mask) {
        uint32_t *slot = &words->slots[at];
        const struct ash_word *word;

        if (*slot == 0) return slot;
        word = &words->items[*slot - 1];
        if (word->hash == hash && word->size_bytes == size_bytes &&
            memcmp(words->text + word->at, bytes, size_bytes) == 0)
            return slot;
    }
}

/* Slots stay half empty. */
static int grow_slots(struct ash_words *words)
{
    size_t size = words->slots == NULL ? SLOTS_MIN : 2 * (words->slot_mask + 1);
    uint32_t *slots;

    if (words->slots != NULL && 2 * (words->count + 1) <= words->slot_mask) return 0;
    slots = calloc(size, sizeof(*slots));
    if (slots == NULL) return -ENOMEM;
    for (size_t i = 0; i < words->count; i++) {
        size_t at = words->items[i].hash & (size - 1);

        while (slots[at] != 0)
            at = (at + 1) & (size - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(words->slots);
    words->slots = slots;
    words->slot_mask = size - 1;
    return 0;
}

static int append(struct ash_words *words, const char *bytes, size_t size_bytes, uint64_t hash, uint64_t times)
{
    if (words->count >= UINT32_MAX - 1 || size_bytes > UINT32_MAX) return -ENOMEM;
    if (ash_array_reserve(&words->items, &words->capacity, words->count + 1, sizeof(*words->items)) < 0) return -ENOMEM;
    if (ash_array_reserve(&words->text, &words->text_capacity, words->text_bytes + size_bytes + 1, 1) < 0)
        return -ENOMEM;
    if (size_bytes > 0) memcpy(words->text + words->text_bytes, bytes, size_bytes);
    words->items[words->count++] =
        (struct ash_word){.hash = hash, .count = times, .at = words->text_bytes, .size_bytes = (uint32_t)size_bytes};
    words->text_bytes += size_bytes;
    return 0;
}

static int64_t add_hashed(struct ash_words *words, const char *bytes, size_t size_bytes, uint64_t hash, uint64_t times)
{
    uint32_t *slot;

    if (grow_slots(words) < 0) return -ENOMEM;
    slot = find_slot(words, bytes, size_bytes, hash);
    if (*slot != 0) {
        words->items[*slot - 1].count += times;
        return (int64_t)*slot - 1;
    }
    if (append(words, bytes, size_bytes, hash, times) < 0) return -ENOMEM;
    *slot = (uint32_t)words->count;
    return (int64_t)words->count - 1;
}

int64_t ash_words_add(struct ash_words *words, const char *bytes, size_t size_bytes, uint64_t times)
{
    return add_hashed(words, bytes, size_bytes, ash_hash_bytes(bytes, size_bytes, 0), times);
}

int64_t ash_words_find(const struct ash_words *words, const char *bytes, size_t size_bytes)
{
    if (words->slots == NULL) return -1;
    return (int64_t)*find_slot(words, bytes, size_bytes, ash_hash_bytes(bytes, size_bytes, 0)) - 1;
}

int ash_words_merge(struct ash_words *words, const struct ash_words *other)
{
    for (size_t i = 0; i < other->count; i++) {
        const struct ash_word *word = &other->items[i];

        if (add_hashed(words, other->text + word->at, word->size_bytes, word->hash, word->count) < 0) return -ENOMEM;
    }
    return 0;
}

void ash_words_fini(struct ash_words *words)
{
    free(words->items);
    free(words->text);
    free(words->slots);
    *words = (struct ash_words){0};
}
