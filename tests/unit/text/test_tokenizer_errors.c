/* Bad files and bad texts: each gets a code and a sentence that names what is wrong, and nothing is lost. */
#include "text/tokenizer/tokenizer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "unit/text/tokenizer_sample.h"

static void check_refused(const struct sample_parts *parts, int code, const char *hint)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    int rc = sample_parse(parts, &tokenizer, &err);

    if (rc != code) fail_msg("%d instead of %d (%s)", rc, code, err.text);
    assert_null(tokenizer);
    assert_int_equal(err.code, code);
    assert_int_equal(strncmp(err.text, "sample: ", 8), 0);
    if (strstr(err.text, hint) == NULL) fail_msg("'%s' does not say '%s'", err.text, hint);
}

static void test_model(void **state)
{
    (void)state;
    check_refused(&(struct sample_parts){.options = "\"type\": \"WordLevel\","}, -ENOTSUP, "WordLevel");
    check_refused(&(struct sample_parts){.options = "\"dropout\": 0.1,"}, -ENOTSUP, "dropout");
    check_refused(&(struct sample_parts){.options = "\"dropout\": \"x\","}, -EINVAL, "dropout");
    check_refused(&(struct sample_parts){.options = "\"continuing_subword_prefix\": \"##\","}, -ENOTSUP, "##");
    check_refused(&(struct sample_parts){.options = "\"end_of_word_suffix\": \"</w>\","}, -ENOTSUP, "</w>");
    check_refused(&(struct sample_parts){.options = "\"fuse_unk\": 1,"}, -EINVAL, "fuse_unk");
    check_refused(&(struct sample_parts){.vocab = "[]"}, -EINVAL, "vocab");
    check_refused(&(struct sample_parts){.vocab = "null"}, -EINVAL, "'vocab' and 'merges'");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": -1}"}, -EINVAL, "'a'");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 4194304}"}, -EINVAL, "'a'");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": \"0\"}"}, -EINVAL, "'a'");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 1, \"b\": 1}"}, -EINVAL, "share the id 1");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[\"a b\"]"}, -EINVAL, "'a' and 'b'");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[\"a a\"]"}, -EINVAL, "merge 0");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[\"a\"]"}, -EINVAL, "merge 0");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[\"a b c\"]"}, -EINVAL, "merge 0");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[[\"a\"]]"}, -EINVAL, "merge 0");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[[\"a\", \"b\", \"c\"]]"}, -EINVAL,
                  "merge 0");
    check_refused(&(struct sample_parts){.vocab = "{\"a\": 0}", .merges = "[7]"}, -EINVAL, "merge 0");
}

static void test_parts(void **state)
{
    (void)state;
    check_refused(&(struct sample_parts){.normalizer = "{\"type\": \"Nmt\"}"}, -ENOTSUP, "normalizer: type 'Nmt'");
    check_refused(&(struct sample_parts){.normalizer = "{\"type\": \"BertNormalizer\", \"lowercase\": 3}"}, -EINVAL,
                  "lowercase");
    check_refused(&(struct sample_parts){.normalizer = "{}"}, -EINVAL, "normalizer: 'type' is missing");
    check_refused(&(struct sample_parts){.normalizer = "{\"type\": \"Prepend\"}"}, -EINVAL, "prepend");
    check_refused(&(struct sample_parts){.normalizer = "{\"type\": \"Replace\", \"content\": \"\"}"}, -EINVAL,
                  "pattern");
    check_refused(
        &(struct sample_parts){.normalizer =
                                   "{\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"String\": \"\"}}"},
        -ENOTSUP, "empty pattern");
    check_refused(&(struct sample_parts){.pre = "{\"type\": \"Whitespace\"}"}, -ENOTSUP,
                  "pre_tokenizer: type 'Whitespace'");
    check_refused(
        &(struct sample_parts){
            .pre = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": \"Isolated\"}"},
        -EINVAL, "'('");
    check_refused(&(struct sample_parts){.pre = "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}}"}, -EINVAL,
                  "behavior");
    check_refused(
        &(struct sample_parts){.pre = "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"x\"}"},
        -ENOTSUP, "behavior 'x'");
    check_refused(&(struct sample_parts){.pre = "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}"}, -EINVAL,
                  "one character");
    check_refused(
        &(struct sample_parts){.pre = "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}"},
        -EINVAL, "contradict");
    check_refused(&(struct sample_parts){.pre = "{\"type\": \"Sequence\"}"}, -EINVAL, "pretokenizers");
    check_refused(&(struct sample_parts){.post = "{\"type\": \"BertProcessing\"}"}, -EINVAL,
                  "'cls' is not a token and its id");
    check_refused(
        &(struct sample_parts){
            .post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}]}"},
        -EINVAL, "'x' has no 'ids'");
    check_refused(
        &(struct sample_parts){.post =
                                   "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}]}"},
        -EINVAL, "'B'");
    check_refused(&(struct sample_parts){.decoder = "{\"type\": \"CTC\"}"}, -ENOTSUP, "decoder: type 'CTC'");
    check_refused(&(struct sample_parts){.decoder = "{\"type\": \"Strip\", \"content\": \"ab\"}"}, -EINVAL,
                  "one character");
}

static void test_added(void **state)
{
    (void)state;
    check_refused(&(struct sample_parts){.added = "[{\"id\": 0}]"}, -EINVAL, "content");
    check_refused(&(struct sample_parts){.added = "[{\"content\": \"a\"}]"}, -EINVAL, "'id'");
    check_refused(&(struct sample_parts){.added = "[{\"id\": 7, \"content\": \"x\"}]", .vocab = "{\"a\": 0}"}, -EINVAL,
                  "'x' has id 7 in the file, but the vocabulary before it makes it 1");
    check_refused(&(struct sample_parts){.added = "[{\"id\": 1, \"content\": \"a\"}]", .vocab = "{\"a\": 0}"}, -EINVAL,
                  "makes it 0");
    check_refused(&(struct sample_parts){.added = "[7]"}, -EINVAL, "content");
    check_refused(&(struct sample_parts){.added = "{}"}, -EINVAL, "added_tokens");
}

static void test_nesting(void **state)
{
    struct ash_str text = {0};

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(ash_str_adds(&text, "{\"type\": \"Sequence\", \"normalizers\": ["), 0);
    assert_int_equal(ash_str_adds(&text, "{\"type\": \"NFC\"}"), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ash_str_adds(&text, "]}"), 0);
    check_refused(&(struct sample_parts){.normalizer = text.data}, -E2BIG, "nested");
    ash_str_clear(&text);
    assert_int_equal(ash_str_adds(&text, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}"), 0);
    for (int i = 0; i < 40; i++)
        assert_int_equal(ash_str_adds(&text, ", {\"type\": \"Lowercase\"}"), 0);
    assert_int_equal(ash_str_adds(&text, "]}"), 0);
    check_refused(&(struct sample_parts){.normalizer = text.data}, -E2BIG, "more than 32 steps");
    ash_str_fini(&text);
}

static void check_text(const struct sample_parts *parts, const char *text, size_t size, int code, const char *hint)
{
    struct ash_tokenizer *tokenizer = sample_open(parts);
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    assert_int_equal(ash_ids_add(&ids, 77), 0);
    assert_int_equal(ash_tokenizer_encode(tokenizer, text, size, true, &ids, &err), code);
    assert_int_equal(err.code, code);
    if (strstr(err.text, hint) == NULL) fail_msg("'%s' does not say '%s'", err.text, hint);
    assert_int_equal(ids.count, 1); /* what was there stays, nothing is added */
    assert_int_equal(ids.data[0], 77);
    ash_ids_fini(&ids);
    ash_tokenizer_close(tokenizer);
}

static void test_texts(void **state)
{
    struct sample_parts plain = {.vocab = "{\"a\": 0}"};
    struct sample_parts no_unknown = {.vocab = "{\"a\": 0}", .options = "\"unk_token\": \"?\","};
    struct sample_parts slow = {
        .vocab = "{\"a\": 0}",
        .pre = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a|a)*b\"}, \"behavior\": \"Isolated\"}"};
    struct sample_parts growing = {
        .vocab = "{\"a\": 0}",
        .normalizer = "{\"type\": \"Sequence\", \"normalizers\": ["
                      "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaaaaaaaa\"},"
                      "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaaaaaaaa\"},"
                      "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaaaaaaaa\"},"
                      "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaaaaaaaa\"}]}"};
    char many[4096];

    (void)state;
    check_text(&plain, "aa\xff", 3, -EILSEQ, "byte 2 of the text (0xff)");
    check_text(&plain, "a\xe6\x9d", 3, -EILSEQ, "byte 1");
    check_text(&plain, "\xc0\x80", 2, -EILSEQ, "byte 0");
    check_text(&plain, "\xed\xa0\x80", 3, -EILSEQ, "byte 0");
    check_text(&no_unknown, "aab", 3, -EINVAL, "unk_token");
    memset(many, 'a', sizeof(many));
    memcpy(many + sizeof(many) - 2, "cb", 2); /* the b keeps PCRE2 from knowing at once that there is no match */
    check_text(&slow, many, sizeof(many), -EOVERFLOW, "(a|a)*b");
    check_text(&growing, many, sizeof(many), -E2BIG, "16 times");
}

static void test_open(void **state)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    char dir[] = "/tmp/ashlar-test-XXXXXX", path[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ash_tokenizer_open(dir, &tokenizer, &err), -ENOENT);
    assert_non_null(strstr(err.text, "holds no tokenizer.json"));
    assert_int_equal(ash_path_join(path, sizeof(path), dir, "tokenizer.json"), 0);
    assert_int_equal(ash_tokenizer_open(path, &tokenizer, &err), -ENOENT);
    assert_int_equal(ash_file_replace(path, "{\"model\": 3}", 12, &err), 0);
    assert_int_equal(ash_tokenizer_open(dir, &tokenizer, &err), -EINVAL);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(ash_file_replace(path, "{\"model\":", 9, &err), 0);
    assert_int_equal(ash_tokenizer_open(dir, &tokenizer, &err), -EINVAL);
    assert_int_equal(ash_file_replace(path, "[]", 2, &err), 0);
    assert_int_equal(ash_tokenizer_open(dir, &tokenizer, &err), -EINVAL);
    assert_int_equal(ash_file_replace(path, "{\"version\": \"2.0\"}", 18, &err), 0);
    assert_int_equal(ash_tokenizer_open(dir, &tokenizer, &err), -ENOTSUP);
    assert_int_equal(ash_file_replace(path, "{}", 2, &err), 0);
    assert_int_equal(ash_tokenizer_open(path, &tokenizer, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'model' is missing"));
    assert_null(tokenizer);
    ash_tokenizer_close(NULL);
    assert_int_equal(ash_dir_remove(dir, &err), 0);
}

/* The hash sees everything that decides ids, and nothing else. */
static void test_hash(void **state)
{
    struct sample_parts base = {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2}", .merges = "[\"a b\"]"};
    const struct sample_parts same[] = {
        {.vocab = "{\"ab\": 2, \"b\": 1, \"a\": 0}", .merges = "[[\"a\", \"b\"]]", .decoder = "{\"type\": \"Fuse\"}"},
    };
    const struct sample_parts other[] = {
        {.vocab = "{\"a\": 1, \"b\": 0, \"ab\": 2}", .merges = "[\"a b\"]"},
        {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2}", .merges = "[]"},
        {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2}", .merges = "[\"a b\"]", .normalizer = "{\"type\": \"NFC\"}"},
        {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2}", .merges = "[\"a b\"]", .options = "\"ignore_merges\": true,"},
        {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2}",
         .merges = "[\"a b\"]",
         .added = "[{\"id\": 3, \"content\": \"x\"}]"},
        {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2}", .merges = "[\"a b\"]", .pre = "{\"type\": \"ByteLevel\"}"},
    };
    struct ash_tokenizer *tokenizer = sample_open(&base);
    uint64_t hash = ash_tokenizer_hash(tokenizer);

    (void)state;
    ash_tokenizer_close(tokenizer);
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        tokenizer = sample_open(&same[i]);
        assert_true(ash_tokenizer_hash(tokenizer) == hash);
        ash_tokenizer_close(tokenizer);
    }
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        tokenizer = sample_open(&other[i]);
        assert_true(ash_tokenizer_hash(tokenizer) != hash);
        ash_tokenizer_close(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),   cmocka_unit_test(test_parts), cmocka_unit_test(test_added),
        cmocka_unit_test(test_nesting), cmocka_unit_test(test_texts), cmocka_unit_test(test_open),
        cmocka_unit_test(test_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
