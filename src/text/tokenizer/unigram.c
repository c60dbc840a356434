/* Unigram: each token has a score, and a word is the tokens that spell it with the largest sum (Viterbi). A character
 * that no token spells costs more than any token; neighbours of that kind are unknown together. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"
#include "text/tokenizer/unigram_priv.h"

#define UNKNOWN_PENALTY 10.0 /* below the worst token */

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* ["piece", score], the token id. */
static int load_piece(struct ash_tok_model *model, const json_t *item, size_t id, struct ash_err *err)
{
    const json_t *piece = json_array_get(item, 0), *score = json_array_get(item, 1);
    size_t size_bytes = json_string_length(piece);
    double value = json_number_value(score);

    if (!json_is_string(piece) || !json_is_number(score) || !isfinite(value))
        return ash_err_set(err, -EINVAL, "model: token %zu of the vocabulary is not [\"text\", score]", id);
    model->scores[id] = value;
    model->unknown_score = id == 0 ? value : fmin(model->unknown_score, value);
    model->longest_bytes = ash_max(model->longest_bytes, size_bytes);
    return ash_tok_vocab_put(&model->vocab, (int32_t)id, json_string_value(piece), size_bytes, err);
}

static int load_pieces(struct ash_tok_model *model, const json_t *vocab, struct ash_err *err)
{
    size_t count = json_array_size(vocab), bytes = 0;
    int rc;

    if (count == 0 || count > ASH_TOK_ID_MAX)
        return ash_err_set(err, -EINVAL, "model: 'vocab' has %zu tokens, not 1 to %d", count, ASH_TOK_ID_MAX);
    for (size_t i = 0; i < count; i++)
        bytes += json_string_length(json_array_get(json_array_get(vocab, i), 0));
    model->scores = calloc(count, sizeof(*model->scores));
    if (model->scores == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the vocabulary");
    rc = ash_tok_vocab_reserve(&model->vocab, count, bytes, (int32_t)count - 1, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = load_piece(model, json_array_get(vocab, i), i, err);
    model->unknown_score -= UNKNOWN_PENALTY;
    return rc;
}

int ash_tok_unigram_load(struct ash_tok_model *model, const json_t *object, int32_t *unknown_out, struct ash_err *err)
{
    const json_t *vocab = NULL;
    int64_t unknown = -1;
    int rc = ash_json_array(object, "vocab", &vocab, err);

    if (rc >= 0 && vocab == NULL) return ash_err_set(err, -EINVAL, "model: 'vocab' is missing");
    if (rc >= 0) rc = ash_json_bool(object, "byte_fallback", &model->byte_fallback, err);
    if (rc >= 0 && !json_is_null(json_object_get(object, "unk_id")))
        rc = ash_json_int(object, "unk_id", 0, ASH_TOK_ID_MAX, &unknown, err);
    if (rc >= 0) rc = load_pieces(model, vocab, err);
    if (rc >= 0) rc = ash_tok_merges_reserve(&model->merges, 0, err);
    if (rc < 0) return rc;
    if (unknown >= (int64_t)json_array_size(vocab))
        return ash_err_set(err, -EINVAL, "model: unk_id %lld is not in the vocabulary", (long long)unknown);
    *unknown_out = (int32_t)unknown;
    return 0;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* How many bytes the character at text has. */
static size_t char_bytes(struct ash_tok_span text, size_t at)
{
    size_t end = at + 1;

    while (end < text.size_bytes && ((unsigned char)text.data[end] & 0xc0) == 0x80)
        end++;
    return end - at;
}

/* A way to position `to`: where its last token begins, and which that is. */
static void offer(const struct ash_tok_model *model, struct ash_tok_path *path, size_t to, struct ash_tok_path way)
{
    if (path[to].from != UINT32_MAX && way.score <= path[to].score) return;
    if (model->keeps_floats) way.score = (double)(float)way.score;
    path[to] = way;
}

/* All tokens that begin at position `at`. */
static void extend(const struct ash_tok_model *model, struct ash_tok_span word, size_t at, struct ash_tok_path *path)
{
    size_t single = char_bytes(word, at), most = ash_min(word.size_bytes - at, model->longest_bytes);
    bool has_single = false;

    for (size_t size = single; size <= most; size += at + size < word.size_bytes ? char_bytes(word, at + size) : 1) {
        int32_t id = ash_tok_vocab_find(&model->vocab, word.data + at, size);

        if (id < 0) continue;
        offer(model, path, at + size, (struct ash_tok_path){model->scores[id] + path[at].score, (uint32_t)at, id});
        has_single = has_single || size == single;
    }
    if (!has_single)
        offer(model, path, at + single, (struct ash_tok_path){model->unknown_score + path[at].score, (uint32_t)at, -1});
}

/* A run of unknown characters: a token by chance, bytes, or the unknown token. */
static int add_unknown(const struct ash_tok_model *model, struct ash_tok_span run, struct ash_ids *ids,
                       struct ash_err *err)
{
    int32_t id = ash_tok_vocab_find(&model->vocab, run.data, run.size_bytes);
    int rc = 0;

    if (id >= 0) return ash_ids_add(ids, id);
    if (model->all_bytes) {
        for (size_t i = 0; rc == 0 && i < run.size_bytes; i++)
            rc = ash_ids_add(ids, model->bytes[(uint8_t)run.data[i]]);
        return rc;
    }
    if (model->unknown_id < 0)
        return ash_err_set(err, -EINVAL, "the vocabulary has no token for '%.*s', and no unknown token",
                           (int)ash_min(run.size_bytes, 32), run.data);
    return ash_ids_add(ids, model->unknown_id);
}

static bool is_unknown(const struct ash_tok_model *model, const struct ash_tok_path *step)
{
    return step->id < 0 || step->id == model->unknown_id;
}

/* The best path forwards: each of its positions gets where the token that begins there ends. */
static void turn_around(struct ash_tok_path *path, size_t end)
{
    uint32_t next = UINT32_MAX;

    for (size_t at = end; at > 0;) {
        size_t from = path[at].from;

        path[at].from = next;
        next = (uint32_t)at;
        at = from;
    }
    path[0].from = next;
}

int ash_tok_unigram_encode(const struct ash_tok_model *model, struct ash_tok_scratch *scratch, struct ash_tok_span word,
                           struct ash_ids *ids, struct ash_err *err)
{
    struct ash_tok_path *path;
    size_t before = ids->count;
    int rc = ash_array_reserve(&scratch->path, &scratch->path_capacity, word.size_bytes + 1, sizeof(*scratch->path));

    if (rc < 0) return -ENOMEM;
    path = scratch->path;
    for (size_t i = 0; i <= word.size_bytes; i++)
        path[i] = (struct ash_tok_path){.from = UINT32_MAX};
    path[0].from = 0;
    for (size_t at = 0; at < word.size_bytes; at += char_bytes(word, at))
        extend(model, word, at, path);
    turn_around(path, word.size_bytes);
    for (size_t at = 0; rc == 0 && at < word.size_bytes;) {
        size_t start = at;

        at = path[at].from;
        while (at < word.size_bytes && is_unknown(model, &path[at]) && is_unknown(model, &path[path[at].from]))
            at = path[at].from;
        if (is_unknown(model, &path[at]))
            rc = add_unknown(model, (struct ash_tok_span){word.data + start, at - start}, ids, err);
        else
            rc = ash_ids_add(ids, path[at].id);
    }
    if (rc < 0) ids->count = before;
    return rc;
}
