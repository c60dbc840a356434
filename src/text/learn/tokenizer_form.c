/* tokenizer_form: JSON in the order and with the keys that the library itself writes. Patterns are those that GGUF
 * files have names for, so that a model with such a tokenizer can be converted. */
#include "text/learn/tokenizer_form.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/tokenizer/gguf_priv.h"

const char *const ash_learned_patterns[] = {"gpt2", "llama3", "qwen2", "tekken", NULL};

static const struct ash_tok_gguf_words *words_of(const struct ash_tokenizer_form *form)
{
    static const char *const gguf_names[] = {"gpt-2", "llama-bpe", "qwen2", "tekken"};

    return ash_tok_gguf_words_named(gguf_names[form->pattern]);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* The bytes whose characters spell text. Returns 1, 0 if a character stands for none, or -ENOMEM. */
static int to_bytes(const char *text, struct ash_str *bytes)
{
    size_t left = strlen(text);
    uint32_t point;

    while (left > 0) {
        int size = ash_utf8_decode(text, left, &point), byte = ash_tok_byte_from_point(point);
        char one = (char)byte;

        ash_assert(size > 0);
        if (byte < 0) return 0;
        if (ash_str_add(bytes, &one, 1) < 0) return -ENOMEM;
        text += size;
        left -= (size_t)size;
    }
    return 1;
}

/* No token that is learned may be written like a special one. */
static int reserve(const char *text, struct ash_words *reserved, struct ash_err *err)
{
    struct ash_str bytes = {0};
    int rc = to_bytes(text, &bytes);

    if (rc > 0 && bytes.size_bytes == 1)
        rc = ash_err_set(err, -EINVAL, "'%s' cannot be a special token: it is the token of a byte", text);
    if (rc > 0 && ash_words_add(reserved, bytes.data, bytes.size_bytes, 1) < 0) rc = -ENOMEM;
    if (rc == -ENOMEM) ash_err_set(err, rc, "out of memory");
    ash_str_fini(&bytes);
    return rc < 0 ? rc : 0;
}

static int check_one(const struct ash_tokenizer_form *form, size_t index, struct ash_words *reserved,
                     struct ash_err *err)
{
    const char *text = form->special[index];

    if (text[0] == '\0' || ash_utf8_valid_prefix(text, strlen(text)) < strlen(text))
        return ash_err_set(err, -EINVAL, "special token %zu is empty or not UTF-8", index + 1);
    for (size_t i = 0; i < index; i++)
        if (strcmp(form->special[i], text) == 0)
            return ash_err_set(err, -EINVAL, "the special token '%s' is named twice", text);
    return reserve(text, reserved, err);
}

int ash_tokenizer_form_check(const struct ash_tokenizer_form *form, struct ash_words *reserved, struct ash_err *err)
{
    for (size_t i = 0; i < form->special_count; i++) {
        int rc = check_one(form, i, reserved, err);

        if (rc < 0) return rc;
    }
    return 0;
}

static json_t *special_tokens(const struct ash_tokenizer_form *form)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < form->special_count; i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                                              form->special[i], "single_word", 0, "lstrip", 0, "rstrip", 0,
                                              "normalized", 0, "special", 1));
    return list;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Bytes as their characters. */
static const char *spell(const struct ash_words *tokens, size_t id, struct ash_str *text)
{
    ash_tok_bytes_map(text, ash_words_bytes(tokens, id), tokens->items[id].size_bytes);
    return text->data;
}

static json_t *vocabulary(const struct ash_tokenizer_form *form, const struct ash_words *tokens)
{
    json_t *vocab = json_object();
    struct ash_str text = {0};
    size_t first = form->special_count;
    int rc = vocab != NULL ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < first; i++)
        rc = json_object_set_new(vocab, form->special[i], json_integer((json_int_t)i));
    for (size_t i = 0; rc == 0 && i < tokens->count; i++) {
        ash_str_clear(&text);
        rc = json_object_set_new(vocab, spell(tokens, i, &text), json_integer((json_int_t)(first + i)));
    }
    ash_str_fini(&text);
    if (rc == 0) return vocab;
    json_decref(vocab);
    return NULL;
}

static json_t *merge_list(const struct ash_bpe_learner *learner)
{
    const struct ash_words *tokens = ash_bpe_learner_tokens(learner);
    size_t count;
    const struct ash_bpe_merge *merges = ash_bpe_learner_merges(learner, &count);
    json_t *list = json_array();
    struct ash_str text = {0};
    int rc = list != NULL ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        ash_str_clear(&text);
        spell(tokens, merges[i].left, &text);
        ash_str_adds(&text, " ");
        spell(tokens, merges[i].right, &text);
        rc = json_array_append_new(list, json_string(text.data));
    }
    ash_str_fini(&text);
    if (rc == 0) return list;
    json_decref(list);
    return NULL;
}

static json_t *model(const struct ash_tokenizer_form *form, const struct ash_bpe_learner *learner)
{
    return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                     "ignore_merges", (int)words_of(form)->ignore_merges, "vocab",
                     vocabulary(form, ash_bpe_learner_tokens(learner)), "merges", merge_list(learner));
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static json_t *byte_level(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     (int)use_regex);
}

static json_t *pre_tokenizer(const struct ash_tok_gguf_words *words)
{
    if (words->expression == NULL) return byte_level(true);
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Split",
                     "pattern", "Regex", words->expression, "behavior", "Isolated", "invert", 0, byte_level(false));
}

json_t *ash_tokenizer_form_json(const struct ash_tokenizer_form *form, const struct ash_bpe_learner *learner)
{
    const struct ash_tok_gguf_words *words = words_of(form);

    ash_assert(words != NULL);
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", special_tokens(form), "normalizer",
                     words->nfc ? json_pack("{s:s}", "type", "NFC") : json_null(), "pre_tokenizer",
                     pre_tokenizer(words), "post_processor", byte_level(false), "decoder", byte_level(false), "model",
                     model(form, learner));
}

json_t *ash_tokenizer_form_config(const struct ash_tokenizer_form *form)
{
    json_t *config = json_pack("{s:s, s:b, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0, "add_prefix_space", 0);

    if (config != NULL && form->special_count > 0)
        json_object_set_new(config, "eos_token", json_string(form->special[0]));
    return config;
}
