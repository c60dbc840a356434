/* A tokenizer from SentencePiece's own file, a protocol buffer: pieces with scores, how it was trained, and the rules
 * of characters. The pieces are taken as they are; the other parts become those of a tokenizer.json, which are read
 * like any other. */
#include "text/tokenizer/sentencepiece.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"
#include "base/utf8.h"
#include "text/tokenizer/gguf_priv.h"
#include "text/tokenizer/protobuf.h"
#include "text/tokenizer/scored.h"

#define UNKNOWN_PENALTY 10.0 /* below the worst piece */
#define NEVER -1e9           /* the score of a piece that no text is cut into */

/* Numbers of fields. */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_TYPE = 3, TRAINER_SUFFIX = 24, TRAINER_BYTES = 35 };
enum { NORMALIZER_MAP = 2, NORMALIZER_PREFIX = 3, NORMALIZER_TRIM = 4, NORMALIZER_ESCAPE = 5 };

enum model_type { TYPE_UNIGRAM = 1, TYPE_BPE = 2 };
/* Of a piece; as in GGUF files, but for the last three. */
enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER_DEFINED, PIECE_UNUSED, PIECE_BYTE };

struct piece {
    struct ash_tok_span text;
    float score;
    enum piece_type type;
};

struct import {
    struct piece *pieces;
    size_t count, capacity, text_bytes;
    uint64_t type;
    bool has_suffix, has_bytes, adds_prefix, trims, escapes;
    struct ash_tok_message map;
    int32_t unknown;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_text(struct ash_tok_span span)
{
    if (span.size_bytes == 0 || span.size_bytes > UINT32_MAX / 2) return false;
    if (memchr(span.data, '\0', span.size_bytes) != NULL) return false;
    return ash_utf8_valid_prefix(span.data, span.size_bytes) == span.size_bytes;
}

static int read_piece(struct import *import, struct ash_tok_message message, struct ash_err *err)
{
    struct piece piece = {.type = PIECE_NORMAL};
    struct ash_tok_field field;
    int rc;

    while ((rc = ash_tok_next_field(&message, &field)) > 0) {
        if (field.number == PIECE_TEXT && field.is_bytes)
            piece.text = (struct ash_tok_span){(const char *)field.message.data, field.message.size_bytes};
        else if (field.number == PIECE_SCORE)
            piece.score = ash_tok_field_float(&field);
        else if (field.number == PIECE_TYPE)
            piece.type = field.whole <= PIECE_BYTE ? (enum piece_type)field.whole : PIECE_UNUSED;
    }
    if (rc < 0) return ash_err_set(err, rc, "piece %zu is damaged", import->count);
    if (!is_text(piece.text)) return ash_err_set(err, -EINVAL, "piece %zu is not text", import->count);
    if (!isfinite(piece.score)) return ash_err_set(err, -EINVAL, "the score of piece %zu is no number", import->count);
    if (import->count >= ASH_TOK_ID_MAX) return ash_err_set(err, -E2BIG, "more than %d pieces", ASH_TOK_ID_MAX);
    if (ash_array_reserve(&import->pieces, &import->capacity, import->count + 1, sizeof(piece)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the pieces");
    if (piece.type == PIECE_UNKNOWN) import->unknown = (int32_t)import->count;
    import->text_bytes += piece.text.size_bytes;
    import->pieces[import->count++] = piece;
    return 0;
}

static int read_trainer(struct import *import, struct ash_tok_message message)
{
    struct ash_tok_field field;
    int rc;

    while ((rc = ash_tok_next_field(&message, &field)) > 0) {
        if (field.number == TRAINER_TYPE) import->type = field.whole;
        if (field.number == TRAINER_SUFFIX) import->has_suffix = field.whole != 0;
        if (field.number == TRAINER_BYTES) import->has_bytes = field.whole != 0;
    }
    return rc;
}

static int read_normalizer(struct import *import, struct ash_tok_message message)
{
    struct ash_tok_field field;
    int rc;

    while ((rc = ash_tok_next_field(&message, &field)) > 0) {
        if (field.number == NORMALIZER_MAP && field.is_bytes) import->map = field.message;
        if (field.number == NORMALIZER_PREFIX) import->adds_prefix = field.whole != 0;
        if (field.number == NORMALIZER_TRIM) import->trims = field.whole != 0;
        if (field.number == NORMALIZER_ESCAPE) import->escapes = field.whole != 0;
    }
    return rc;
}

static int read_model(struct import *import, struct ash_tok_message message, struct ash_err *err)
{
    struct ash_tok_field field;
    int rc;

    while ((rc = ash_tok_next_field(&message, &field)) > 0) {
        if (!field.is_bytes) continue;
        if (field.number == MODEL_PIECE) {
            rc = read_piece(import, field.message, err);
            if (rc < 0) return rc;
        }
        if (field.number == MODEL_TRAINER) rc = read_trainer(import, field.message);
        if (field.number == MODEL_NORMALIZER) rc = read_normalizer(import, field.message);
        if (rc < 0) break;
    }
    if (rc < 0) return ash_err_set(err, rc, "this is no SentencePiece file, or it is damaged");
    if (import->count == 0) return ash_err_set(err, -EINVAL, "it has no pieces: this is no SentencePiece file");
    if (import->type != TYPE_UNIGRAM && import->type != TYPE_BPE)
        return ash_err_set(err, -ENOTSUP, "SentencePiece models of words or characters are not supported");
    if (import->has_suffix || !import->escapes)
        return ash_err_set(err, -ENOTSUP, "SentencePiece models whose spaces end words, or stay, are not supported");
    return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Is text cut into such pieces? The others are cut out before, or stand for bytes. */
static bool is_spelled(enum piece_type type)
{
    return type == PIECE_NORMAL || type == PIECE_USER_DEFINED;
}

static int fill_unigram(const struct import *import, struct ash_tok_model *model, struct ash_err *err)
{
    double worst = 0;

    model->scores = calloc(import->count, sizeof(*model->scores));
    if (model->scores == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the scores");
    for (size_t i = 0; i < import->count; i++) {
        const struct piece *piece = &import->pieces[i];

        model->scores[i] = is_spelled(piece->type) ? (double)piece->score : NEVER;
        if (piece->type == PIECE_NORMAL) worst = fmin(worst, (double)piece->score);
        model->longest_bytes = ash_max(model->longest_bytes, piece->text.size_bytes);
    }
    model->unknown_score = (double)(float)(worst - UNKNOWN_PENALTY);
    model->keeps_floats = true;
    return ash_tok_merges_reserve(&model->merges, 0, err);
}

static int fill_merges(const struct import *import, struct ash_tok_model *model, struct ash_err *err)
{
    float *scores = malloc(import->count * sizeof(*scores));
    bool *is_made = malloc(import->count * sizeof(*is_made));
    int rc = scores != NULL && is_made != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for the scores");

    for (size_t i = 0; rc == 0 && i < import->count; i++) {
        scores[i] = import->pieces[i].score;
        is_made[i] = is_spelled(import->pieces[i].type);
    }
    if (rc == 0) rc = ash_tok_merge_scored(model, scores, is_made, err);
    free(scores);
    free(is_made);
    return rc;
}

static int load_model(void *ctx, struct ash_tok_model *model, bool byte_level, struct ash_err *err)
{
    const struct import *import = ctx;
    int rc = ash_tok_vocab_reserve(&model->vocab, import->count, import->text_bytes, (int32_t)import->count - 1, err);

    for (size_t i = 0; rc == 0 && i < import->count; i++)
        rc = ash_tok_vocab_put(&model->vocab, (int32_t)i, import->pieces[i].text.data,
                               import->pieces[i].text.size_bytes, err);
    if (rc == 0) rc = import->type == TYPE_BPE ? fill_merges(import, model, err) : fill_unigram(import, model, err);
    if (rc < 0) return rc;
    model->byte_fallback = import->has_bytes;
    model->fuse_unknown = true;
    rc = ash_tok_model_finish(model, NULL, byte_level, err);
    model->has_unknown = import->unknown >= 0;
    model->unknown_id = import->unknown;
    return rc;
}

/* ---- the other parts, as a tokenizer.json has them --------------------------------------------------------------- */

/* The rules of characters, in base64. */
static json_t *map_json(struct ash_tok_message map)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((map.size_bytes + 2) / 3 * 4 + 1);
    size_t used = 0;
    json_t *json;

    if (text == NULL) return NULL;
    for (size_t i = 0; i < map.size_bytes; i += 3) {
        size_t part = ash_min(map.size_bytes - i, 3);
        uint32_t bits = 0;

        for (size_t b = 0; b < 3; b++)
            bits = bits << 8 | (b < part ? map.data[i + b] : 0);
        for (size_t d = 0; d < 4; d++)
            text[used++] = d <= part ? digits[bits >> (18 - 6 * d) & 63] : '=';
    }
    json = json_pack("{s:s, s:s%, s:b}", "type", "Precompiled", "precompiled_charsmap", text, used, "longest", 1);
    free(text);
    return json;
}

static json_t *normalizer_json(const struct import *import)
{
    json_t *steps = json_array();

    if (import->map.size_bytes > 0) json_array_append_new(steps, map_json(import->map));
    if (import->trims) {
        json_array_append_new(steps, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "Regex",
                                               "\\A +| +\\z", "content", ""));
        json_array_append_new(
            steps, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "Regex", " {2,}", "content", " "));
    }
    if (import->adds_prefix)
        json_array_append_new(steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", ASH_TOK_SPACE_MARK));
    json_array_append_new(steps, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                                           "content", ASH_TOK_SPACE_MARK));
    return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", steps);
}

static json_t *decoder_json(const struct import *import)
{
    json_t *steps = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String",
                              ASH_TOK_SPACE_MARK, "content", " ", "type", "ByteFallback", "type", "Fuse");

    if (import->adds_prefix)
        json_array_append_new(
            steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps);
}

/* Tokens that are cut out of a text before anything else: control pieces as the transformers library has them. */
static json_t *added_json(const struct import *import)
{
    json_t *list = json_array();

    for (size_t i = 0; i < import->count; i++) {
        const struct piece *piece = &import->pieces[i];

        if (piece->type != PIECE_UNKNOWN && piece->type != PIECE_CONTROL && piece->type != PIECE_USER_DEFINED) continue;
        json_array_append_new(list, json_pack("{s:I, s:s%, s:b, s:b}", "id", (json_int_t)i, "content", piece->text.data,
                                              piece->text.size_bytes, "normalized", 0, "special",
                                              (int)(piece->type != PIECE_USER_DEFINED)));
    }
    return list;
}

int ash_tokenizer_from_sentencepiece(const void *data, size_t size_bytes, const json_t *more, const char *name,
                                     struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    struct import import = {.type = TYPE_UNIGRAM, .adds_prefix = true, .trims = true, .escapes = true, .unknown = -1};
    json_t *root, *added;
    int rc = read_model(&import, (struct ash_tok_message){data, size_bytes}, err);

    if (rc < 0) {
        free(import.pieces);
        return ash_err_prefix(err, rc, "%s", name);
    }
    added = added_json(&import);
    for (size_t i = 0; i < json_array_size(more); i++)
        if (json_integer_value(json_object_get(json_array_get(more, i), "id")) >= (json_int_t)import.count)
            json_array_append(added, json_array_get(more, i));
    root = json_pack("{s:o, s:o, s:n, s:n, s:o}", "added_tokens", added, "normalizer", normalizer_json(&import),
                     "pre_tokenizer", "post_processor", "decoder", decoder_json(&import));
    if (root == NULL)
        rc = ash_err_set(err, -ENOMEM, "%s: out of memory for its tokenizer", name);
    else
        rc = ash_tok_assemble(root, false, load_model, &import, name, tokenizer_out, err);
    json_decref(root);
    free(import.pieces);
    return rc;
}
