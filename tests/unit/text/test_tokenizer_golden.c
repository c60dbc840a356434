/* Every string of tests/golden/tokenizers gets the Hugging Face library's ids and text, whole and one id at a time. */
#include "text/tokenizer/tokenizer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

#define GOLDEN TEST_DATA "/golden/tokenizers"

static struct ash_tokenizer *open_golden(const char *name)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    char dir[512];

    assert_int_equal(ash_path_join(dir, sizeof(dir), GOLDEN, name), 0);
    if (ash_tokenizer_open(dir, &tokenizer, &err) < 0) fail_msg("%s", err.text);
    return tokenizer;
}

static void check_ids(const struct ash_tokenizer *tokenizer, const json_t *text, bool add_special,
                      const json_t *expected)
{
    const char *shown = json_string_value(text);
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    if (ash_tokenizer_encode(tokenizer, shown, json_string_length(text), add_special, &ids, &err) < 0)
        fail_msg("%s", err.text);
    if (ids.count != json_array_size(expected))
        fail_msg("'%s': %zu ids instead of %zu", shown, ids.count, json_array_size(expected));
    for (size_t i = 0; i < ids.count; i++)
        if (ids.data[i] != json_integer_value(json_array_get(expected, i)))
            fail_msg("'%s': id %zu is %d instead of %lld", shown, i, ids.data[i],
                     (long long)json_integer_value(json_array_get(expected, i)));
    ash_ids_fini(&ids);
}

/* What a decoder gives out is always the beginning of the whole text. */
static void check_stream(const struct ash_tokenizer *tokenizer, const struct ash_ids *ids, const char *expected,
                         size_t size)
{
    struct ash_decoder *decoder = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};

    assert_int_equal(ash_decoder_open(tokenizer, false, &decoder, &err), 0);
    for (int round = 0; round < 2; round++) { /* finish starts anew */
        ash_str_clear(&text);
        for (size_t i = 0; i < ids->count; i++) {
            assert_int_equal(ash_decoder_push(decoder, ids->data[i], &text, &err), 0);
            assert_in_range(text.size_bytes, 0, size);
            if (text.size_bytes > 0) assert_memory_equal(text.data, expected, text.size_bytes);
        }
        assert_int_equal(ash_decoder_finish(decoder, &text, &err), 0);
        assert_int_equal(text.size_bytes, size);
        if (size > 0) assert_memory_equal(text.data, expected, size);
    }
    ash_decoder_close(decoder);
    ash_str_fini(&text);
}

static void check_text(const struct ash_tokenizer *tokenizer, const json_t *array, const json_t *expected)
{
    const char *bytes = json_string_value(expected);
    size_t size = json_string_length(expected), i;
    struct ash_ids ids = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    json_t *id;

    json_array_foreach(array, i, id) {
        assert_int_equal(ash_ids_add(&ids, (int32_t)json_integer_value(id)), 0);
    }
    if (ash_tokenizer_decode(tokenizer, ids.data, ids.count, false, &text, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(text.size_bytes, size);
    if (size > 0) assert_memory_equal(text.data, bytes, size);
    check_stream(tokenizer, &ids, bytes, size);
    ash_ids_fini(&ids);
    ash_str_fini(&text);
}

static void check_folder(const char *name, size_t count)
{
    struct ash_tokenizer *tokenizer = open_golden(name);
    json_t *encodings, *item;
    json_error_t where;
    char path[512];
    size_t i;

    snprintf(path, sizeof(path), "%s/%s/encodings.json", GOLDEN, name);
    encodings = json_load_file(path, JSON_ALLOW_NUL, &where); /* one of the texts has a NUL in it */
    assert_non_null(encodings);
    assert_int_equal(json_array_size(encodings), count);
    json_array_foreach(encodings, i, item) {
        check_ids(tokenizer, json_object_get(item, "text"), true, json_object_get(item, "ids"));
        check_ids(tokenizer, json_object_get(item, "text"), false, json_object_get(item, "ids_nospecial"));
        check_text(tokenizer, json_object_get(item, "ids_nospecial"), json_object_get(item, "decoded"));
    }
    json_decref(encodings);
    ash_tokenizer_close(tokenizer);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_folder("gpt2-bytelevel", 61);
}

static void test_bert(void **state)
{
    (void)state;
    check_folder("bert-wordpiece", 73);
    check_folder("unigram-precompiled", 75);
    check_folder("unigram-bytefallback", 75);
}

static void test_llama2(void **state)
{
    (void)state;
    check_folder("llama2-bytefallback", 61);
}

static void test_llama3(void **state)
{
    (void)state;
    check_folder("llama3-split", 61);
}

static void test_qwen2(void **state)
{
    (void)state;
    check_folder("qwen2-nfc", 61);
}

/* A real file of 512 tokens, the vocabulary of a published model. */
static void test_stories(void **state)
{
    static const int32_t expected[] = {1, 403, 407, 261, 378};
    struct ash_tokenizer *tokenizer = open_golden("stories260K");
    struct ash_ids ids = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    static const char prompt[] = "Once upon a time";

    (void)state;
    assert_int_equal(ash_tokenizer_vocab_size(tokenizer), 512);
    assert_int_equal(ash_tokenizer_id(tokenizer, "<s>"), 1);
    assert_string_equal(ash_tokenizer_content(tokenizer, 2), "</s>");
    assert_null(ash_tokenizer_content(tokenizer, 512));
    assert_true(ash_tokenizer_is_special(tokenizer, 1));
    assert_int_equal(ash_tokenizer_encode(tokenizer, prompt, strlen(prompt), true, &ids, &err), 0);
    assert_int_equal(ids.count, sizeof(expected) / sizeof(expected[0]));
    assert_memory_equal(ids.data, expected, sizeof(expected));
    assert_int_equal(ash_tokenizer_decode(tokenizer, ids.data, ids.count, true, &text, &err), 0);
    assert_string_equal(text.data, prompt);
    ash_ids_fini(&ids);
    ash_str_fini(&text);
    ash_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),   cmocka_unit_test(test_bert),  cmocka_unit_test(test_llama2),
        cmocka_unit_test(test_llama3), cmocka_unit_test(test_qwen2), cmocka_unit_test(test_stories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
