/* One word to ids: its characters (or bytes) become symbols, and the pair of neighbours with the lowest rank merges
 * until none can. Short words look for the lowest rank by scanning, long ones keep a heap, so that a megabyte without a
 * space takes n log n steps. A small cache remembers short words. All three give the same ids. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "text/tokenizer/unigram_priv.h"

#define SHORT_SYMBOLS 64 /* up to here scanning beats a heap */
#define NONE UINT32_MAX

/* ---- merging a short word ---------------------------------------------------------------------------------------- */

/* Merge ids[0..count) in place and return how many are left. */
static size_t merge_short(const struct ash_tok_merges *merges, int32_t *ids, size_t count)
{
    const struct ash_tok_merge *pair[SHORT_SYMBOLS]; /* pair[i]: of ids[i] and ids[i + 1] */

    for (size_t i = 0; i + 1 < count; i++)
        pair[i] = ash_tok_merges_find(merges, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (pair[i]->rank < pair[best]->rank) best = i;
        if (pair[best]->rank == ASH_TOK_NO_RANK) break;
        ids[best] = (int32_t)pair[best]->result;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof(*ids));
        memmove(pair + best, pair + best + 1, (count - best - 2) * sizeof(*pair));
        count--;
        if (best > 0) pair[best - 1] = ash_tok_merges_find(merges, (uint32_t)ids[best - 1], (uint32_t)ids[best]);
        if (best + 1 < count) pair[best] = ash_tok_merges_find(merges, (uint32_t)ids[best], (uint32_t)ids[best + 1]);
    }
    return count;
}

/* ---- merging a long word ----------------------------------------------------------------------------------------- */

static int heap_push(struct ash_tok_scratch *scratch, struct ash_tok_candidate candidate)
{
    size_t at;

    if (ash_array_reserve(&scratch->heap, &scratch->heap_capacity, scratch->heap_count + 1, sizeof(*scratch->heap)) < 0)
        return -ENOMEM;
    at = scratch->heap_count++;
    while (at > 0 && scratch->heap[(at - 1) / 2].key > candidate.key) {
        scratch->heap[at] = scratch->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    scratch->heap[at] = candidate;
    return 0;
}

static struct ash_tok_candidate heap_pop(struct ash_tok_scratch *scratch)
{
    struct ash_tok_candidate *heap = scratch->heap;
    struct ash_tok_candidate top = heap[0], last = heap[--scratch->heap_count];
    size_t count = scratch->heap_count, at = 0;

    for (size_t child = 1; child < count; child = at * 2 + 1) {
        if (child + 1 < count && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Remember that the symbol at left and the one after it can merge, if they can. */
static int heap_offer(struct ash_tok_scratch *scratch, const struct ash_tok_merges *merges, uint32_t left)
{
    const struct ash_tok_symbol *symbols = scratch->symbols;
    const struct ash_tok_merge *merge;

    merge = ash_tok_merges_find(merges, (uint32_t)symbols[left].id, (uint32_t)symbols[symbols[left].next].id);
    if (merge->rank == ASH_TOK_NO_RANK) return 0;
    return heap_push(scratch, (struct ash_tok_candidate){(uint64_t)merge->rank << 32 | left, merge->result});
}

static int symbols_set(struct ash_tok_scratch *scratch, const int32_t *ids, size_t count)
{
    if (ash_array_reserve(&scratch->symbols, &scratch->symbol_capacity, count, sizeof(*scratch->symbols)) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        scratch->symbols[i] = (struct ash_tok_symbol){ids[i], (uint32_t)i - 1, i + 1 < count ? (uint32_t)i + 1 : NONE};
    return 0;
}

/* Take the candidate if it is still true, and offer the pairs that it makes. */
static int merge_candidate(struct ash_tok_scratch *scratch, const struct ash_tok_merges *merges,
                           struct ash_tok_candidate candidate)
{
    struct ash_tok_symbol *symbols = scratch->symbols;
    uint32_t at = (uint32_t)candidate.key, right = symbols[at].next;
    const struct ash_tok_merge *merge;
    int rc = 0;

    if (symbols[at].id < 0 || right == NONE) return 0;
    merge = ash_tok_merges_find(merges, (uint32_t)symbols[at].id, (uint32_t)symbols[right].id);
    if (merge->rank == ASH_TOK_NO_RANK || merge->result != candidate.result) return 0;
    symbols[at].id = (int32_t)candidate.result;
    symbols[at].next = symbols[right].next;
    symbols[right].id = -1;
    if (symbols[at].next != NONE) symbols[symbols[at].next].prev = at;
    if (symbols[at].prev != NONE) rc = heap_offer(scratch, merges, symbols[at].prev);
    if (rc == 0 && symbols[at].next != NONE) rc = heap_offer(scratch, merges, at);
    return rc;
}

static int merge_long(struct ash_tok_scratch *scratch, const struct ash_tok_merges *merges, int32_t *ids, size_t *count)
{
    size_t kept = 0;
    int rc = symbols_set(scratch, ids, *count);

    scratch->heap_count = 0;
    for (size_t i = 0; rc == 0 && i + 1 < *count; i++)
        rc = heap_offer(scratch, merges, (uint32_t)i);
    while (rc == 0 && scratch->heap_count > 0)
        rc = merge_candidate(scratch, merges, heap_pop(scratch));
    if (rc < 0) return rc;
    for (uint32_t at = 0; at != NONE; at = scratch->symbols[at].next)
        ids[kept++] = scratch->symbols[at].id;
    *count = kept;
    return 0;
}

/* ---- a word's first symbols -------------------------------------------------------------------------------------- */

/* An unknown character waits here: it may fuse with the next one, and a byte-fallback character after it goes first. */
struct unknown {
    bool waiting;
};

static int unknown_flush(const struct ash_tok_model *model, struct unknown *unknown, struct ash_ids *ids)
{
    if (!unknown->waiting) return 0;
    unknown->waiting = false;
    return ash_ids_add(ids, model->unknown_id);
}

static int unknown_add(const struct ash_tok_model *model, struct unknown *unknown, struct ash_ids *ids,
                       struct ash_err *err)
{
    int rc = 0;

    if (!model->has_unknown) return 0; /* the library drops it */
    if (model->unknown_id < 0)
        return ash_err_set(err, -EINVAL,
                           "the text has a character that the vocabulary lacks, and the unk_token is not in "
                           "the vocabulary either");
    if (unknown->waiting && !model->fuse_unknown) rc = ash_ids_add(ids, model->unknown_id);
    unknown->waiting = true;
    return rc;
}

/* Every byte of text as its own token; 0 when one of them has none, 1 when done. */
static int fallback_add(const struct ash_tok_model *model, struct ash_tok_span text, struct ash_ids *ids)
{
    for (size_t i = 0; i < text.size_bytes; i++)
        if (model->bytes[(uint8_t)text.data[i]] < 0) return 0;
    for (size_t i = 0; i < text.size_bytes; i++)
        if (ash_ids_add(ids, model->bytes[(uint8_t)text.data[i]]) < 0) return -ENOMEM;
    return 1;
}

/* The symbol of the character or byte at text, or -1, and its length. */
static int32_t symbol_at(const struct ash_tok_model *model, struct ash_tok_span text, size_t *size_out)
{
    uint32_t point = 0;

    if (model->byte_level) {
        *size_out = 1;
        return model->bytes[(uint8_t)text.data[0]];
    }
    *size_out = (size_t)ash_utf8_decode(text.data, text.size_bytes, &point);
    return ash_tok_points_find(model->points, point);
}

static int symbols_of(const struct ash_tok_model *model, struct ash_tok_span word, struct ash_ids *ids,
                      struct ash_err *err)
{
    struct unknown unknown = {false};
    int rc = 0;

    ids->count = 0;
    for (size_t at = 0, size; rc >= 0 && at < word.size_bytes; at += size) {
        struct ash_tok_span rest = {word.data + at, word.size_bytes - at};
        int32_t id = symbol_at(model, rest, &size);
        if (id >= 0) {
            rc = unknown_flush(model, &unknown, ids);
            if (rc == 0) rc = ash_ids_add(ids, id);
            continue;
        }
        rest.size_bytes = size;
        rc = model->byte_fallback ? fallback_add(model, rest, ids) : 0;
        if (rc == 0) rc = unknown_add(model, &unknown, ids, err);
    }
    if (rc >= 0) rc = unknown_flush(model, &unknown, ids);
    return rc < 0 ? rc : 0;
}

/* ---- a word ------------------------------------------------------------------------------------------------------ */

static int ids_append(struct ash_ids *ids, const int32_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ash_ids_add(ids, from[i]) < 0) return -ENOMEM;
    return 0;
}

/* The word's own id, when the vocabulary has it whole. */
static int32_t whole_id(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word)
{
    if (!model->byte_level) return ash_tok_vocab_find(&model->vocab, word.data, word.size_bytes);
    ash_str_clear(&scratch->word);
    if (ash_tok_bytes_map(&scratch->word, word.data, word.size_bytes) < 0) return -ENOMEM;
    return ash_tok_vocab_find(&model->vocab, scratch->word.data, scratch->word.size_bytes);
}

static int encode_merging(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                          struct ash_ids *ids, struct ash_err *err)
{
    struct ash_ids *symbols = &scratch->symbols_ids;
    int rc = symbols_of(model, word, symbols, err);

    if (rc < 0) return rc;
    if (symbols->count <= SHORT_SYMBOLS)
        symbols->count = merge_short(&model->merges, symbols->data, symbols->count);
    else
        rc = merge_long(scratch, &model->merges, symbols->data, &symbols->count);
    return rc < 0 ? rc : ids_append(ids, symbols->data, symbols->count);
}

static int encode_uncached(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                           struct ash_ids *ids, struct ash_err *err)
{
    if (model->scores != NULL) return ash_tok_unigram_encode(model, scratch, word, ids, err);
    if (model->is_word_piece) return ash_tok_word_piece_encode(model, scratch, word, ids, err);
    if (model->ignore_merges) {
        int32_t id = whole_id(model, scratch, word);
        if (id == -ENOMEM) return -ENOMEM;
        if (id >= 0) return ash_ids_add(ids, id);
    }
    return encode_merging(model, scratch, word, ids, err);
}

/* Where the word would be in the cache. key gets the word in the form that a line holds. */
static struct ash_tok_line *cache_line(struct ash_tok_scratch *scratch, struct ash_tok_span word, uint64_t key[4])
{
    uint64_t hash;

    memset(key, 0, 32);
    memcpy(key, word.data, word.size_bytes);
    ((uint8_t *)key)[31] = (uint8_t)word.size_bytes;
    hash = (key[0] * 0x9e3779b97f4a7c15u) ^ (key[1] * 0xd6e8feb86659fd93u) ^ (key[2] * 0xc2b2ae3d27d4eb4fu) ^
           (key[3] * 0x165667b19e3779f9u);
    hash ^= hash >> 32;
    return &scratch->cache[(hash * 0x9e3779b97f4a7c15u) >> 32 & (ASH_TOK_CACHE_LINES - 1)];
}

static int encode_piece(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                        struct ash_ids *ids, struct ash_err *err)
{
    struct ash_tok_line *line;
    size_t before = ids->count;
    uint64_t key[4];
    int rc;

    if (word.size_bytes > ASH_TOK_CACHE_WORD_BYTES) return encode_uncached(model, scratch, word, ids, err);
    line = cache_line(scratch, word, key);
    if (memcmp(line->key, key, sizeof(key)) == 0) return ids_append(ids, line->ids, (size_t)line->count);
    rc = encode_uncached(model, scratch, word, ids, err);
    if (rc < 0 || ids->count - before > ASH_TOK_CACHE_IDS) return rc;
    memcpy(line->key, key, sizeof(key));
    line->count = (int32_t)(ids->count - before);
    for (int32_t i = 0; i < line->count; i++)
        line->ids[i] = ids->data[before + (size_t)i];
    return 0;
}

/* May the text be cut between these two? Not where a merge can join them, nor inside a run of unknown characters. */
static bool can_cut(const struct ash_tok_model *model, uint32_t left, uint32_t right)
{
    if (ash_tok_pairs_has(model->pairs, left, right)) return false;
    return model->all_bytes || ash_tok_points_find(model->points, left) >= 0 ||
           ash_tok_points_find(model->points, right) >= 0;
}

static int encode_in_pieces(const struct ash_tok_model *model, struct ash_tok_scratch *scratch,
                            struct ash_tok_span word, struct ash_ids *ids, struct ash_err *err)
{
    uint32_t point = 0, before = 0;
    size_t start = 0;
    int rc = 0;

    for (size_t at = 0, size; rc == 0 && at < word.size_bytes; at += size, before = point) {
        size = (size_t)ash_utf8_decode(word.data + at, word.size_bytes - at, &point);
        if (at == 0 || !can_cut(model, before, point)) continue;
        rc = encode_piece(model, scratch, (struct ash_tok_span){word.data + start, at - start}, ids, err);
        start = at;
    }
    if (rc < 0) return rc;
    return encode_piece(model, scratch, (struct ash_tok_span){word.data + start, word.size_bytes - start}, ids, err);
}

int ash_tok_model_encode(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                         struct ash_ids *ids, struct ash_err *err)
{
    if (word.size_bytes == 0) return 0;
    if (scratch->cache == NULL) {
        scratch->cache = calloc(ASH_TOK_CACHE_LINES, sizeof(*scratch->cache));
        if (scratch->cache == NULL) return -ENOMEM;
    }
    if (model->pairs == NULL || word.size_bytes <= ASH_TOK_CACHE_WORD_BYTES)
        return encode_piece(model, scratch, word, ids, err);
    return encode_in_pieces(model, scratch, word, ids, err);
}
