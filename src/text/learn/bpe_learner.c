/* bpe_learner: a heap of pairs, and for each pair the words that it is (or was) in, so that a merge touches those
 * alone. An entry of the heap may be older than its pair's count: counts of known pairs only fall, so an entry that
 * comes up and is too high goes back with the true one. */
#include "text/learn/bpe_learner.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/str.h"
#include "text/learn/pair_heap.h"
#include "text/tokenizer/tokenizer_priv.h"

#define SLOTS_MIN ((size_t)1 << 12)

struct place {
    size_t first; /* of its symbols */
    uint32_t length;
    uint64_t count;
};

struct pair {
    uint64_t key; /* left id, right id */
    int64_t count;
    uint32_t *places; /* of words; some twice, some without the pair by now */
    size_t place_count, place_capacity;
    bool is_dirty; /* its count grew in this merge: it is in `grown` */
};

struct ash_bpe_learner {
    struct ash_bpe_learner_opts opts;
    struct ash_words tokens;
    struct ash_bpe_merge *merges;
    size_t merge_count, merge_capacity;
    uint32_t *symbols;
    struct place *places;
    size_t place_count;
    struct pair *pairs;
    size_t pair_count, pair_capacity;
    uint32_t *slots; /* pairs by key: number + 1, 0 for none */
    size_t slot_mask;
    struct ash_pair_heap heap;
    uint32_t *grown;
    size_t grown_count, grown_capacity;
    struct ash_str joined;
};

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static uint64_t key_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static int grow_slots(struct ash_bpe_learner *learner)
{
    size_t size = learner->slots == NULL ? SLOTS_MIN : 2 * (learner->slot_mask + 1);
    uint32_t *slots;

    if (learner->slots != NULL && 2 * (learner->pair_count + 1) <= learner->slot_mask) return 0;
    if (learner->pair_count >= UINT32_MAX - 1) return -ENOMEM;
    slots = calloc(size, sizeof(*slots));
    if (slots == NULL) return -ENOMEM;
    for (size_t i = 0; i < learner->pair_count; i++) {
        size_t at = ash_hash_mix(learner->pairs[i].key) & (size - 1);

        while (slots[at] != 0)
            at = (at + 1) & (size - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(learner->slots);
    learner->slots = slots;
    learner->slot_mask = size - 1;
    return 0;
}

/* The number of a pair, which is made if it is new; or -ENOMEM. */
static int64_t find_pair(struct ash_bpe_learner *learner, uint64_t key)
{
    size_t at;

    if (grow_slots(learner) < 0) return -ENOMEM;
    for (at = ash_hash_mix(key) & learner->slot_mask; learner->slots[at] != 0; at = (at + 1) & learner->slot_mask)
        if (learner->pairs[learner->slots[at] - 1].key == key) return (int64_t)learner->slots[at] - 1;
    if (ash_array_reserve(&learner->pairs, &learner->pair_capacity, learner->pair_count + 1, sizeof(*learner->pairs)) <
        0)
        return -ENOMEM;
    learner->pairs[learner->pair_count++] = (struct pair){.key = key};
    learner->slots[at] = (uint32_t)learner->pair_count;
    return (int64_t)learner->pair_count - 1;
}

/* Word `place` has the pair `count` times more. */
static int add_pair(struct ash_bpe_learner *learner, uint64_t key, uint32_t place, uint64_t count)
{
    int64_t number = find_pair(learner, key);
    struct pair *pair;

    if (number < 0) return -ENOMEM;
    pair = &learner->pairs[number];
    pair->count += (int64_t)count;
    if (!pair->is_dirty) {
        if (ash_array_reserve(&learner->grown, &learner->grown_capacity, learner->grown_count + 1,
                              sizeof(*learner->grown)) < 0)
            return -ENOMEM;
        learner->grown[learner->grown_count++] = (uint32_t)number;
        pair->is_dirty = true;
    }
    if (pair->place_count > 0 && pair->places[pair->place_count - 1] == place) return 0;
    if (ash_array_reserve(&pair->places, &pair->place_capacity, pair->place_count + 1, sizeof(*pair->places)) < 0)
        return -ENOMEM;
    pair->places[pair->place_count++] = place;
    return 0;
}

static int drop_pair(struct ash_bpe_learner *learner, uint64_t key, uint64_t count)
{
    int64_t number = find_pair(learner, key);

    if (number < 0) return -ENOMEM;
    learner->pairs[number].count -= (int64_t)count;
    return 0;
}

/* Pairs whose counts grew go into the heap. */
static int push_grown(struct ash_bpe_learner *learner)
{
    for (size_t i = 0; i < learner->grown_count; i++) {
        struct pair *pair = &learner->pairs[learner->grown[i]];
        struct ash_pair_entry entry = {.count = pair->count, .key = pair->key, .pair = learner->grown[i]};

        pair->is_dirty = false;
        if (pair->count > 0 && ash_pair_heap_push(&learner->heap, entry) < 0) return -ENOMEM;
    }
    learner->grown_count = 0;
    return 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Bytes get their ids in the order of their characters; id_of_byte_out[256]. */
static int add_bytes(struct ash_bpe_learner *learner, uint32_t *id_of_byte_out)
{
    for (uint32_t point = 0; point < 2 * ASH_BPE_BYTES; point++) {
        int byte = ash_tok_byte_from_point(point);
        char text = (char)byte;

        if (byte < 0) continue;
        id_of_byte_out[byte] = (uint32_t)learner->tokens.count;
        if (ash_words_add(&learner->tokens, &text, 1, 0) < 0) return -ENOMEM;
    }
    ash_assert(learner->tokens.count == ASH_BPE_BYTES);
    return 0;
}

static int add_word(struct ash_bpe_learner *learner, uint32_t number)
{
    const struct place *place = &learner->places[number];
    const uint32_t *symbols = learner->symbols + place->first;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i + 1 < place->length; i++)
        rc = add_pair(learner, key_of(symbols[i], symbols[i + 1]), number, place->count);
    return rc;
}

static int add_words(struct ash_bpe_learner *learner, const struct ash_words *words)
{
    uint32_t id_of_byte[ASH_BPE_BYTES];
    size_t filled = 0;

    if (add_bytes(learner, id_of_byte) < 0) return -ENOMEM;
    learner->symbols = malloc((words->text_bytes + 1) * sizeof(*learner->symbols));
    learner->places = malloc((words->count + 1) * sizeof(*learner->places));
    if (learner->symbols == NULL || learner->places == NULL) return -ENOMEM;
    for (size_t i = 0; i < words->count; i++) {
        const struct ash_word *word = &words->items[i];
        const char *bytes = ash_words_bytes(words, i);

        learner->places[learner->place_count] =
            (struct place){.first = filled, .length = word->size_bytes, .count = word->count};
        for (size_t b = 0; b < word->size_bytes; b++)
            learner->symbols[filled++] = id_of_byte[(uint8_t)bytes[b]];
        if (add_word(learner, (uint32_t)learner->place_count++) < 0) return -ENOMEM;
    }
    return push_grown(learner);
}

int ash_bpe_learner_open(const struct ash_words *words, const struct ash_bpe_learner_opts *opts,
                         struct ash_bpe_learner **learner_out, struct ash_err *err)
{
    struct ash_bpe_learner *learner = calloc(1, sizeof(*learner));

    ash_assert(opts->tokens_max >= ASH_BPE_BYTES && opts->min_frequency >= 1);
    if (learner != NULL) learner->opts = *opts;
    if (learner == NULL || add_words(learner, words) < 0) {
        ash_bpe_learner_close(learner);
        return ash_err_set(err, -ENOMEM, "out of memory for the pairs of %zu words", words->count);
    }
    *learner_out = learner;
    return 0;
}

void ash_bpe_learner_close(struct ash_bpe_learner *learner)
{
    if (learner == NULL) return;
    for (size_t i = 0; i < learner->pair_count; i++)
        free(learner->pairs[i].places);
    ash_words_fini(&learner->tokens);
    free(learner->merges);
    free(learner->symbols);
    free(learner->places);
    free(learner->pairs);
    free(learner->slots);
    ash_pair_heap_fini(&learner->heap);
    free(learner->grown);
    ash_str_fini(&learner->joined);
    free(learner);
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* A merge at work on one word. */
struct rewrite {
    struct ash_bpe_learner *learner;
    struct ash_bpe_merge merge;
    uint32_t number;
    struct place *place;
    uint32_t *symbols;
    uint32_t out; /* symbols [0, out) are rewritten */
};

static bool is_pair_at(const struct rewrite *rewrite, uint32_t i)
{
    return i + 1 < rewrite->place->length && rewrite->symbols[i] == rewrite->merge.left &&
           rewrite->symbols[i + 1] == rewrite->merge.right;
}

/* Symbols i and i + 1 became one: each pair of neighbours that went is taken off once, and each new one counted once.
 * joins: the symbol before was made by the merge just before, which took off the pair between them. */
static int count_neighbours(const struct rewrite *rewrite, uint32_t i, bool joins)
{
    const uint32_t *symbols = rewrite->symbols;
    uint64_t count = rewrite->place->count;
    uint32_t result = rewrite->merge.result;
    int rc = 0;

    if (rewrite->out > 0) {
        uint32_t before = symbols[rewrite->out - 1];

        if (!joins) rc = drop_pair(rewrite->learner, key_of(before, rewrite->merge.left), count);
        if (rc == 0) rc = add_pair(rewrite->learner, key_of(before, result), rewrite->number, count);
    }
    if (rc < 0 || i + 2 >= rewrite->place->length) return rc;
    rc = drop_pair(rewrite->learner, key_of(rewrite->merge.right, symbols[i + 2]), count);
    if (rc < 0 || is_pair_at(rewrite, i + 2)) return rc;
    return add_pair(rewrite->learner, key_of(result, symbols[i + 2]), rewrite->number, count);
}

static int rewrite_word(struct ash_bpe_learner *learner, struct ash_bpe_merge merge, uint32_t number)
{
    struct place *place = &learner->places[number];
    struct rewrite rewrite = {learner, merge, number, place, learner->symbols + place->first, 0};
    bool joins = false;

    for (uint32_t i = 0; i < place->length;) {
        bool merges = is_pair_at(&rewrite, i);

        if (merges && count_neighbours(&rewrite, i, joins) < 0) return -ENOMEM;
        rewrite.symbols[rewrite.out++] = merges ? merge.result : rewrite.symbols[i];
        i += merges ? 2 : 1;
        joins = merges;
    }
    place->length = rewrite.out;
    return 0;
}

static int rewrite_words(struct ash_bpe_learner *learner, struct ash_bpe_merge merge, uint32_t number)
{
    struct pair pair = learner->pairs[number];
    int rc = 0;

    learner->pairs[number].places = NULL;
    learner->pairs[number].place_count = learner->pairs[number].place_capacity = 0;
    for (size_t i = 0; rc == 0 && i < pair.place_count; i++)
        rc = rewrite_word(learner, merge, pair.places[i]);
    free(pair.places);
    learner->pairs[number].count = 0;
    return rc < 0 ? rc : push_grown(learner);
}

/* The pair to merge: the first of the heap whose count is true. Returns 1, or 0 if there is none. */
static int take_best(struct ash_bpe_learner *learner, uint32_t *number_out)
{
    struct ash_pair_entry entry;

    while (ash_pair_heap_pop(&learner->heap, &entry)) {
        int64_t count = learner->pairs[entry.pair].count;

        if (count == entry.count) {
            *number_out = entry.pair;
            return count >= (int64_t)learner->opts.min_frequency;
        }
        entry.count = count;
        if (count > 0 && ash_pair_heap_push(&learner->heap, entry) < 0) return -ENOMEM;
    }
    return 0;
}

static int add_joined(struct ash_bpe_learner *learner, uint32_t id)
{
    return ash_str_add(&learner->joined, ash_words_bytes(&learner->tokens, id), learner->tokens.items[id].size_bytes);
}

/* Merge a pair, or leave it for good when its token is reserved. */
static int merge_pair(struct ash_bpe_learner *learner, uint32_t number)
{
    uint64_t key = learner->pairs[number].key;
    struct ash_bpe_merge merge = {.left = (uint32_t)(key >> 32), .right = (uint32_t)key};
    const struct ash_words *reserved = learner->opts.reserved;
    int64_t result;

    ash_str_clear(&learner->joined);
    if (add_joined(learner, merge.left) < 0 || add_joined(learner, merge.right) < 0) return -ENOMEM;
    if (reserved != NULL && ash_words_find(reserved, learner->joined.data, learner->joined.size_bytes) >= 0) return 0;
    result = ash_words_add(&learner->tokens, learner->joined.data, learner->joined.size_bytes, 0);
    if (result < 0) return -ENOMEM;
    merge.result = (uint32_t)result;
    if (ash_array_reserve(&learner->merges, &learner->merge_capacity, learner->merge_count + 1,
                          sizeof(*learner->merges)) < 0)
        return -ENOMEM;
    learner->merges[learner->merge_count++] = merge;
    return rewrite_words(learner, merge, number);
}

int ash_bpe_learner_step(struct ash_bpe_learner *learner, size_t count, struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t number = 0;
        int rc = learner->tokens.count < learner->opts.tokens_max ? take_best(learner, &number) : 0;

        if (rc == 0) return 0;
        if (rc > 0) rc = merge_pair(learner, number);
        if (rc < 0) return ash_err_set(err, rc, "out of memory after %zu merges", learner->merge_count);
    }
    return 1;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

const struct ash_words *ash_bpe_learner_tokens(const struct ash_bpe_learner *learner)
{
    return &learner->tokens;
}

const struct ash_bpe_merge *ash_bpe_learner_merges(const struct ash_bpe_learner *learner, size_t *count_out)
{
    *count_out = learner->merge_count;
    return learner->merges;
}

uint64_t ash_bpe_learner_text_tokens(const struct ash_bpe_learner *learner)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < learner->place_count; i++)
        sum += learner->places[i].length * learner->places[i].count;
    return sum;
}
