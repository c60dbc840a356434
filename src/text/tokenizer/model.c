/* Reading "model": byte-pair encoding and word pieces as the Hugging Face library configures them. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/unigram_priv.h"

/* Options that change the ids and that no byte-level or byte-fallback model uses: empty or absent, or refused. */
static int refuse_affix(const json_t *object, const char *key, struct ash_err *err)
{
    const char *affix = "";
    int rc = ash_json_string(object, key, &affix, err);

    if (rc < 0) return rc;
    if (affix[0] != '\0') return ash_err_set(err, -ENOTSUP, "model: %s '%.64s' is not supported", key, affix);
    return 0;
}

static int load_word_piece(struct ash_tok_model *model, const json_t *object, struct ash_err *err)
{
    const char *prefix = "##", *unknown = "[UNK]";
    const json_t *vocab = NULL;
    int64_t chars = 100;
    int rc = ash_json_string(object, "continuing_subword_prefix", &prefix, err);

    model->is_word_piece = true;
    if (rc >= 0) rc = ash_json_string(object, "unk_token", &unknown, err);
    if (rc >= 0) rc = ash_json_int(object, "max_input_chars_per_word", 1, INT32_MAX, &chars, err);
    if (rc >= 0) rc = ash_json_object(object, "vocab", &vocab, err);
    if (rc >= 0 && vocab == NULL) return ash_err_set(err, -EINVAL, "model: 'vocab' is missing");
    if (rc >= 0) rc = ash_tok_vocab_load(&model->vocab, vocab, err);
    if (rc >= 0) rc = ash_tok_merges_reserve(&model->merges, 0, err);
    if (rc < 0) return rc;
    model->word_chars_max = (size_t)chars;
    if (ash_str_adds(&model->subword_prefix, prefix) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the vocabulary");
    return ash_tok_model_finish(model, unknown, false, err);
}

static int load_unigram(struct ash_tok_model *model, const json_t *object, struct ash_err *err)
{
    int32_t unknown = -1;
    int rc = ash_tok_unigram_load(model, object, &unknown, err);

    if (rc == 0) rc = ash_tok_model_finish(model, NULL, false, err);
    model->has_unknown = unknown >= 0;
    model->unknown_id = unknown;
    return rc;
}

static int load_options(struct ash_tok_model *model, const json_t *object, const char **unknown_out,
                        struct ash_err *err)
{
    const char *type = "BPE"; /* files from before 2020 do not say */
    double dropout = 0;
    int rc = ash_json_string(object, "type", &type, err);

    if (rc >= 0 && strcmp(type, "BPE") != 0)
        return ash_err_set(err, -ENOTSUP, "model: type '%.64s' is not supported, only BPE, Unigram and WordPiece are",
                           type);
    if (rc >= 0) rc = ash_json_double(object, "dropout", 0, 1, &dropout, err);
    if (rc >= 0 && dropout > 0)
        return ash_err_set(err, -ENOTSUP, "model: dropout %g makes the ids random; set it to null", dropout);
    if (rc >= 0) rc = refuse_affix(object, "continuing_subword_prefix", err);
    if (rc >= 0) rc = refuse_affix(object, "end_of_word_suffix", err);
    if (rc >= 0) rc = ash_json_bool(object, "fuse_unk", &model->fuse_unknown, err);
    if (rc >= 0) rc = ash_json_bool(object, "byte_fallback", &model->byte_fallback, err);
    if (rc >= 0) rc = ash_json_bool(object, "ignore_merges", &model->ignore_merges, err);
    if (rc >= 0) rc = ash_json_string(object, "unk_token", unknown_out, err);
    return rc;
}

static int load_tables(struct ash_tok_model *model, const json_t *object, struct ash_err *err)
{
    const json_t *vocab = NULL, *merges = NULL;
    int rc = ash_json_object(object, "vocab", &vocab, err);

    if (rc >= 0) rc = ash_json_array(object, "merges", &merges, err);
    if (rc >= 0 && (vocab == NULL || merges == NULL))
        return ash_err_set(err, -EINVAL, "model: 'vocab' and 'merges' must both be there");
    if (rc >= 0) rc = ash_tok_vocab_load(&model->vocab, vocab, err);
    if (rc >= 0) rc = ash_tok_merges_load(&model->merges, &model->vocab, merges, err);
    return rc;
}

/* The token of each byte: its character for byte-level models, <0x..> for the others. */
static void find_bytes(struct ash_tok_model *model)
{
    model->all_bytes = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        int size = model->byte_level ? ash_utf8_encode(ash_tok_byte_to_point((uint8_t)byte), name)
                                     : snprintf(name, sizeof(name), "<0x%02X>", byte);
        model->bytes[byte] = ash_tok_vocab_find(&model->vocab, name, (size_t)size);
        if (model->bytes[byte] < 0) model->all_bytes = false;
    }
    if (!model->byte_level && !model->byte_fallback) model->all_bytes = false;
}

/* Is a token that is not spelled by its own characters (a byte's, the unknown one) part of a merge? */
static int merges_use_stand_ins(const struct ash_tok_model *model, bool *use_out)
{
    bool *stand_in = calloc(model->vocab.entry_count + 1, sizeof(*stand_in));

    if (stand_in == NULL) return -ENOMEM;
    if (model->unknown_id >= 0) stand_in[model->unknown_id] = true;
    for (unsigned byte = 0; byte < 256; byte++)
        if (model->bytes[byte] >= 0) stand_in[model->bytes[byte]] = true;
    *use_out = false;
    for (size_t i = 0; i <= model->merges.mask; i++) {
        const struct ash_tok_merge *merge = &model->merges.slots[i];
        if (merge->rank != ASH_TOK_NO_RANK && (stand_in[merge->left] || stand_in[merge->right])) *use_out = true;
    }
    free(stand_in);
    return 0;
}

static int load_characters(struct ash_tok_model *model, struct ash_err *err)
{
    bool stand_ins;

    model->points = ash_tok_points_open(&model->vocab);
    if (model->points == NULL || merges_use_stand_ins(model, &stand_ins) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the vocabulary");
    if (model->ignore_merges || stand_ins) return 0; /* then a text is not cut */
    model->pairs = ash_tok_pairs_open(model);
    return model->pairs != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for the merges");
}

int ash_tok_model_load(struct ash_tok_model *model, const json_t *object, bool byte_level, struct ash_err *err)
{
    const char *unknown = NULL, *type = json_string_value(json_object_get(object, "type"));
    int rc;

    if (type != NULL && strcmp(type, "Unigram") == 0) return load_unigram(model, object, err);
    if (type != NULL && strcmp(type, "WordPiece") == 0) return load_word_piece(model, object, err);
    rc = load_options(model, object, &unknown, err);

    if (rc >= 0) rc = load_tables(model, object, err);
    return rc < 0 ? rc : ash_tok_model_finish(model, unknown, byte_level, err);
}

int ash_tok_model_finish(struct ash_tok_model *model, const char *unknown, bool byte_level, struct ash_err *err)
{
    model->byte_level = byte_level;
    model->has_unknown = unknown != NULL;
    model->unknown_id = unknown != NULL ? ash_tok_vocab_find(&model->vocab, unknown, strlen(unknown)) : -1;
    find_bytes(model);
    if (model->is_word_piece && model->unknown_id < 0)
        return ash_err_set(err, -EINVAL, "model: the vocabulary lacks unk_token '%.64s'", unknown);
    return byte_level || model->is_word_piece || model->scores != NULL ? 0 : load_characters(model, err);
}

void ash_tok_model_fini(struct ash_tok_model *model)
{
    ash_tok_points_close(model->points);
    ash_tok_pairs_close(model->pairs);
    ash_tok_merges_fini(&model->merges);
    ash_str_fini(&model->subword_prefix);
    free(model->scores);
    ash_tok_vocab_fini(&model->vocab);
}
