/* SentencePiece's files: where they are found, what tokenizer_config.json adds, and a sentence for those that cannot be
 * read. The ids are compared with SentencePiece's own in e2e/sentencepiece_world. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"
#include "text/tokenizer/sentencepiece.h"
#include "unit/storage/scratch.h"

/* A file of the corpus: pieces of "Hello, world". */
static char *read_corpus(const char *name, size_t *size_out)
{
    char path[512], *data = NULL;

    snprintf(path, sizeof(path), "%s/fuzz/corpus/fuzz_sentencepiece/%s", TEST_DATA, name);
    assert_int_equal(ash_file_read(path, 1 << 20, &data, size_out, NULL), 0);
    return data;
}

static void put(const char *name, const char *data, size_t size_bytes)
{
    assert_int_equal(ash_file_replace(scratch_path(name), data, size_bytes, NULL), 0);
}

static void expect(const struct ash_tokenizer *tokenizer, const char *text, const int32_t *ids, size_t count)
{
    struct ash_ids got = {0};
    struct ash_err err = {0};

    if (ash_tokenizer_encode(tokenizer, text, strlen(text), true, &got, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(got.count, count);
    assert_memory_equal(got.data, ids, count * sizeof(*ids));
    ash_ids_fini(&got);
}

/* A folder with tokenizer.model alone: pieces as they are; "!" is unknown, and "<sep>" a piece that is cut out. */
static void test_folder(void **state)
{
    const int32_t mixed[] = {18, 0, 3, 4, 10};
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    size_t size_bytes = 0;
    char *data = read_corpus("unigram", &size_bytes);

    (void)state;
    put("tokenizer.model", data, size_bytes);
    if (ash_tokenizer_open(scratch_dir, &tokenizer, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_tokenizer_vocab_size(tokenizer), 22);
    expect(tokenizer, "Hello", (const int32_t[]){18, 21}, 2);
    expect(tokenizer, "  He!<sep>r", mixed, 5);
    ash_tokenizer_close(tokenizer);
    free(data);
}

/* LlamaTokenizer begins a text with bos, unless it is told not to; tokens beyond the pieces are added. */
static void test_config(void **state)
{
    static const char config[] =
        "{\"tokenizer_class\": \"LlamaTokenizer\", \"bos_token\": \"<s>\", \"added_tokens_decoder\":"
        " {\"1\": {\"content\": \"<s>\", \"special\": true},"
        " \"22\": {\"content\": \"<pad>\", \"special\": true}}}";
    static const char other[] = "{\"tokenizer_class\": \"XLMRobertaTokenizer\"}";
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    size_t size_bytes = 0;
    char *data = read_corpus("unigram", &size_bytes);

    (void)state;
    put("tokenizer.model", data, size_bytes);
    put("tokenizer_config.json", config, sizeof(config) - 1);
    if (ash_tokenizer_open(scratch_dir, &tokenizer, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_tokenizer_id(tokenizer, "<pad>"), 22);
    expect(tokenizer, "He<pad>", (const int32_t[]){1, 18, 22}, 3);
    ash_tokenizer_close(tokenizer);
    put("tokenizer_config.json", other, sizeof(other) - 1);
    assert_int_equal(ash_tokenizer_open(scratch_dir, &tokenizer, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "XLMRobertaTokenizer"));
    free(data);
}

/* Bytes in the place of characters that have no piece. */
static void test_bytes(void **state)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_str text = {0};
    struct ash_ids ids = {0};
    struct ash_err err = {0};
    size_t size_bytes = 0;
    char *data = read_corpus("bpe", &size_bytes);

    (void)state;
    if (ash_tokenizer_from_sentencepiece(data, size_bytes, NULL, "bpe", &tokenizer, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_tokenizer_encode(tokenizer, "Hello w\xc3\xb6rld", 12, false, &ids, &err), 0);
    assert_int_equal(ids.data[ids.count - 5], 4 + 0xc3);
    assert_int_equal(ids.data[ids.count - 4], 4 + 0xb6);
    assert_int_equal(ash_tokenizer_decode(tokenizer, ids.data, ids.count, true, &text, &err), 0);
    assert_memory_equal(text.data, "Hello w\xc3\xb6rld", 12);
    ash_ids_fini(&ids);
    ash_str_fini(&text);
    ash_tokenizer_close(tokenizer);
    free(data);
}

/* Each beginning of a file is taken whole or refused with a sentence; so is what is none. */
static void test_damaged(void **state)
{
    size_t size_bytes = 0;
    char *data = read_corpus("unigram", &size_bytes);

    (void)state;
    for (size_t cut = 0; cut < size_bytes; cut++) {
        struct ash_tokenizer *tokenizer = NULL;
        struct ash_err err = {0};
        int rc = ash_tokenizer_from_sentencepiece(data, cut, NULL, "cut", &tokenizer, &err);

        if (rc == 0)
            ash_tokenizer_close(tokenizer);
        else
            assert_true(rc == -EINVAL && err.text[0] != '\0');
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_config, scratch_open, scratch_close),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
