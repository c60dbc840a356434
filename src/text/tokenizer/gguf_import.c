/* A tokenizer from the metadata of a GGUF file. Vocabulary and merges are taken as they are; the other parts become
 * those of a tokenizer.json, which are read like any other. The "llama" kind has scores instead of merges: two
 * neighbours that make a token merge, the highest score first, the leftmost of equal ones. That is merging by rank,
 * with the order of the scores as ranks. */
#include "text/tokenizer/gguf_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/scored.h"

#define NAME_BYTES 32
#define KEY(name) "tokenizer.ggml." name

struct import {
    struct ash_gguf *file;
    const struct ash_gguf_value *tokens, *types, *scores, *merges; /* the last three may be missing */
    const struct ash_tok_gguf_words *words;                        /* NULL: the "llama" kind */
    bool add_bos, add_eos, space_prefix;
    int64_t bos, eos, unknown; /* -1: none */
};

/* ---- reading the metadata ---------------------------------------------------------------------------------------- */

/* An array that says something of each token. */
static int find_list(struct import *import, const char *key, enum ash_gguf_type element,
                     const struct ash_gguf_value **array_out, struct ash_err *err)
{
    int rc = ash_gguf_array(import->file, key, element, array_out, err);

    if (rc > 0 && (*array_out)->count < import->tokens->count)
        return ash_err_set(err, -EINVAL, "'%s' has %zu entries for %zu tokens", key, (*array_out)->count,
                           import->tokens->count);
    return rc;
}

static int read_flag(const struct ash_gguf *file, const char *key, bool *flag, struct ash_err *err)
{
    int64_t value = *flag;
    int rc = ash_gguf_int(file, key, 0, 1, &value, err);

    *flag = value != 0;
    return rc;
}

static int read_id(const struct import *import, const char *key, int64_t *id, struct ash_err *err)
{
    return ash_gguf_int(import->file, key, 0, (int64_t)import->tokens->count - 1, id, err);
}

static int read_kind(struct import *import, struct ash_err *err)
{
    const char *kind = "no_vocab", *pre = "default";
    int rc = ash_gguf_string(import->file, KEY("model"), &kind, err);

    if (rc >= 0) rc = ash_gguf_string(import->file, KEY("pre"), &pre, err);
    if (rc < 0) return rc;
    if (strcmp(kind, "no_vocab") == 0)
        return ash_err_set(err, -ENOENT, "it holds no vocabulary: put the model's tokenizer.json next to the file");
    if (strcmp(kind, "llama") == 0) {
        import->add_bos = import->space_prefix = true; /* unless the file says otherwise */
        import->bos = 1;
        import->eos = 2;
        import->unknown = 0;
        return 0;
    }
    if (strcmp(kind, "gpt2") != 0)
        return ash_err_set(
            err, -ENOTSUP,
            "its tokenizer ('%.40s') is not supported (llama and gpt2 are): put the model's tokenizer.json "
            "next to the file",
            kind);
    import->words = ash_tok_gguf_words_named(pre);
    if (import->words == NULL)
        return ash_err_set(
            err, -ENOTSUP,
            "its way to cut words ('%.40s') is not supported (llama-bpe, smaug-bpe, qwen2, qwen35, tekken, "
            "deepseek-r1-qwen, gpt-2 and smollm are): put the model's tokenizer.json next to the file",
            pre);
    import->add_bos = import->words->ignore_merges;
    return 0;
}

static int read_lists(struct import *import, struct ash_err *err)
{
    int rc = ash_gguf_array(import->file, KEY("tokens"), ASH_GGUF_STRING, &import->tokens, err);

    if (rc == 0 || (rc > 0 && import->tokens->count == 0))
        return ash_err_set(err, -ENOENT, "it holds no vocabulary: put the model's tokenizer.json next to the file");
    if (rc > 0 && import->tokens->count > ASH_TOK_ID_MAX)
        return ash_err_set(err, -E2BIG, "%zu tokens are too many", import->tokens->count);
    if (rc >= 0) rc = find_list(import, KEY("token_type"), ASH_GGUF_I32, &import->types, err);
    if (rc >= 0 && import->words == NULL) rc = find_list(import, KEY("scores"), ASH_GGUF_F32, &import->scores, err);
    if (rc >= 0 && import->words != NULL) {
        rc = ash_gguf_array(import->file, KEY("merges"), ASH_GGUF_STRING, &import->merges, err);
        if (rc == 0) rc = ash_err_set(err, -EINVAL, "it lacks '" KEY("merges") "'");
    }
    return rc < 0 ? rc : 0;
}

static int read_switches(struct import *import, struct ash_err *err)
{
    int64_t last = (int64_t)import->tokens->count - 1;
    int rc;

    if (import->bos > last) import->bos = -1;
    if (import->eos > last) import->eos = -1;
    rc = read_id(import, KEY("bos_token_id"), &import->bos, err);
    if (rc >= 0) rc = read_id(import, KEY("eos_token_id"), &import->eos, err);
    if (rc >= 0) rc = read_id(import, KEY("unknown_token_id"), &import->unknown, err);
    if (rc >= 0) rc = read_flag(import->file, KEY("add_bos_token"), &import->add_bos, err);
    if (rc >= 0) rc = read_flag(import->file, KEY("add_eos_token"), &import->add_eos, err);
    if (rc >= 0) rc = read_flag(import->file, KEY("add_space_prefix"), &import->space_prefix, err);
    return rc < 0 ? rc : 0;
}

/* ---- vocabulary -------------------------------------------------------------------------------------------------- */

/* The next token's text; a token without one gets a name. */
static struct ash_tok_span next_token(const struct import *import, size_t *at, size_t id, char name[NAME_BYTES])
{
    struct ash_tok_span text = {"", 0};

    if (!ash_gguf_next_text(import->tokens, at, &text.data, &text.size_bytes)) text.size_bytes = 0;
    if (text.size_bytes == 0) text = (struct ash_tok_span){name, (size_t)snprintf(name, NAME_BYTES, "[EMPTY_%zu]", id)};
    return text;
}

static int fill_vocab(const struct import *import, struct ash_tok_vocab *vocab, struct ash_err *err)
{
    size_t count = import->tokens->count, at = 0;
    int rc =
        ash_tok_vocab_reserve(vocab, count, import->tokens->size_bytes + count * NAME_BYTES, (int32_t)count - 1, err);

    for (size_t id = 0; rc == 0 && id < count; id++) {
        char name[NAME_BYTES];
        struct ash_tok_span text = next_token(import, &at, id, name);

        if (text.size_bytes > UINT32_MAX / 2 || memchr(text.data, '\0', text.size_bytes) != NULL ||
            ash_utf8_valid_prefix(text.data, text.size_bytes) != text.size_bytes)
            return ash_err_set(err, -EINVAL, "token %zu is not text", id);
        rc = ash_tok_vocab_put(vocab, (int32_t)id, text.data, text.size_bytes, err);
    }
    return rc;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

/* Lines of "a b". */
static int fill_listed(const struct import *import, struct ash_tok_model *model, struct ash_err *err)
{
    struct ash_str joined = {0};
    const char *text = NULL;
    size_t bytes = 0, at = 0;
    int rc = ash_tok_merges_reserve(&model->merges, import->merges->count, err);

    while (rc == 0 && ash_gguf_next_text(import->merges, &at, &text, &bytes)) {
        const char *space = bytes > 1 ? memchr(text + 1, ' ', bytes - 1) : NULL;
        size_t left = space != NULL ? (size_t)(space - text) : 0;
        struct ash_tok_span half[2] = {{text, left}, {text + left + 1, bytes - left - (left > 0)}};

        rc = left == 0 ? ash_err_set(err, -EINVAL, "merge %zu is not \"a b\"", model->merges.count)
                       : ash_tok_merges_add(&model->merges, &model->vocab, half, &joined, err);
    }
    ash_str_fini(&joined);
    return rc;
}

static int fill_scored(const struct import *import, struct ash_tok_model *model, struct ash_err *err)
{
    size_t count = import->tokens->count;
    float *scores = calloc(count, sizeof(*scores));
    int rc = scores != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu scores", count);

    for (size_t i = 0; rc == 0 && import->scores != NULL && i < count; i++) {
        scores[i] = ash_gguf_float_at(import->scores, i);
        if (isnan(scores[i])) rc = ash_err_set(err, -EINVAL, "'" KEY("scores") "' has a value that is no number");
    }
    if (rc == 0) rc = ash_tok_merge_scored(model, scores, NULL, err);
    free(scores);
    return rc;
}

static int load_model(void *ctx, struct ash_tok_model *model, bool byte_level, struct ash_err *err)
{
    const struct import *import = ctx;
    const char *unknown = NULL;
    int rc = fill_vocab(import, &model->vocab, err);

    if (rc < 0) return rc;
    rc = import->words != NULL ? fill_listed(import, model, err) : fill_scored(import, model, err);
    if (rc < 0) return rc;
    model->byte_fallback = model->fuse_unknown = import->words == NULL;
    model->ignore_merges = import->words != NULL && import->words->ignore_merges;
    if (import->words == NULL && import->unknown >= 0) unknown = model->vocab.entries[import->unknown].content;
    return ash_tok_model_finish(model, unknown, byte_level, err);
}

/* ---- the other parts, as a tokenizer.json has them --------------------------------------------------------------- */

static json_t *byte_level_json(bool splits)
{
    return json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", (int)splits);
}

static json_t *pre_tokenizer_json(const struct ash_tok_gguf_words *words)
{
    json_t *first;

    if (words == NULL) return json_null();
    if (words->digits)
        first = json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1);
    else if (words->expression != NULL)
        first = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", words->expression,
                          "behavior", "Isolated", "invert", 0);
    else
        return byte_level_json(true);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first,
                     byte_level_json(words->expression == NULL));
}

static json_t *normalizer_json(const struct import *import)
{
    json_t *replace, *prepend;

    if (import->words != NULL) return import->words->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
    replace =
        json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", ASH_TOK_SPACE_MARK);
    if (!import->space_prefix) return replace;
    prepend = json_pack("{s:s, s:s}", "type", "Prepend", "prepend", ASH_TOK_SPACE_MARK);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "normalizers", prepend, replace);
}

static json_t *decoder_json(const struct import *import)
{
    json_t *steps;

    if (import->words != NULL) return json_pack("{s:s}", "type", "ByteLevel");
    steps = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String", ASH_TOK_SPACE_MARK,
                      "content", " ", "type", "ByteFallback", "type", "Fuse");
    if (import->space_prefix)
        json_array_append_new(
            steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps);
}

static json_t *special_json(const char *name)
{
    return json_pack("{s:{s:s}}", "SpecialToken", "id", name);
}

static json_t *post_processor_json(const struct import *import)
{
    bool bos = import->add_bos && import->bos >= 0, eos = import->add_eos && import->eos >= 0;
    json_t *single = json_array();

    if (bos) json_array_append_new(single, special_json("bos"));
    json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    if (eos) json_array_append_new(single, special_json("eos"));
    return json_pack("{s:s, s:o, s:{s:{s:[I]}, s:{s:[I]}}}", "type", "TemplateProcessing", "single", single,
                     "special_tokens", "bos", "ids", (json_int_t)import->bos, "eos", "ids", (json_int_t)import->eos);
}

/* Tokens that are cut out of a text before anything else. */
static json_t *added_json(const struct import *import)
{
    json_t *list = json_array();
    size_t at = 0;

    for (size_t id = 0; import->types != NULL && id < import->tokens->count; id++) {
        int32_t type = ash_gguf_int_at(import->types, id);
        char name[NAME_BYTES];
        struct ash_tok_span text = next_token(import, &at, id, name);

        if (type != ASH_TOK_GGUF_CONTROL && type != ASH_TOK_GGUF_USER_DEFINED && type != ASH_TOK_GGUF_UNKNOWN) continue;
        json_array_append_new(list, json_pack("{s:I, s:s%, s:b, s:b}", "id", (json_int_t)id, "content", text.data,
                                              text.size_bytes, "normalized", 0, "special",
                                              (int)(type != ASH_TOK_GGUF_USER_DEFINED)));
    }
    return list;
}

/* The ids under their names of today, or those of older files. */
static int read_fim(const struct import *import, struct ash_fim_marks *marks, struct ash_err *err)
{
    static const char *const keys[][3] = {
        {KEY("prefix_token_id"), KEY("suffix_token_id"), KEY("middle_token_id")},
        {KEY("fim_pre_token_id"), KEY("fim_suf_token_id"), KEY("fim_mid_token_id")},
    };
    int64_t ids[3] = {-1, -1, -1};
    int rc = 0;

    for (size_t i = 0; i < 6 && rc >= 0; i++)
        rc = read_id(import, keys[i / 3][i % 3], &ids[i % 3], err);
    *marks = (struct ash_fim_marks){(int32_t)ids[0], (int32_t)ids[1], (int32_t)ids[2]};
    return rc < 0 ? rc : 0;
}

int ash_tokenizer_from_gguf(struct ash_gguf *file, const char *name, struct ash_tokenizer **tokenizer_out,
                            struct ash_err *err)
{
    struct import import = {.file = file, .bos = -1, .eos = -1, .unknown = -1};
    struct ash_fim_marks fim;
    json_t *root;
    int rc = read_kind(&import, err);

    if (rc == 0) rc = read_lists(&import, err);
    if (rc == 0) rc = read_switches(&import, err);
    if (rc == 0) rc = read_fim(&import, &fim, err);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", name);
    root = json_pack("{s:o, s:o, s:o, s:o, s:o}", "added_tokens", added_json(&import), "normalizer",
                     normalizer_json(&import), "pre_tokenizer", pre_tokenizer_json(import.words), "post_processor",
                     post_processor_json(&import), "decoder", decoder_json(&import));
    if (root == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory for its tokenizer", name);
    rc = ash_tok_assemble(root, import.words != NULL, load_model, &import, name, tokenizer_out, err);
    json_decref(root);
    if (rc == 0) (*tokenizer_out)->fim = fim;
    return rc;
}
