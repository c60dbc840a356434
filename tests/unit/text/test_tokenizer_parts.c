/* Every normalizer, pre-tokenizer, post-processor and option of added tokens, on small hand-made tokenizers. The
 * expected cuts of splits and of added tokens are those that the Hugging Face library documents by its own examples. */
#include "text/tokenizer/tokenizer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/file.h"
#include "unit/text/tokenizer_sample.h"

#define SPLIT(kind, pattern, behavior, invert)                                                                         \
    "{\"type\": \"Split\", \"pattern\": {\"" kind "\": \"" pattern "\"}, \"behavior\": \"" behavior                    \
    "\", \"invert\": " invert "}"

static void test_split_behaviors(void **state)
{
    static const char text[] = "The-final--countdown";

    (void)state;
    sample_check_words(NULL, SPLIT("String", "-", "Removed", "false"), text, "The|final|countdown");
    sample_check_words(NULL, SPLIT("String", "-", "Isolated", "false"), text, "The|-|final|-|-|countdown");
    sample_check_words(NULL, SPLIT("String", "-", "MergedWithPrevious", "false"), text, "The-|final-|-|countdown");
    sample_check_words(NULL, SPLIT("String", "-", "MergedWithNext", "false"), text, "The|-final|-|-countdown");
    sample_check_words(NULL, SPLIT("String", "-", "Contiguous", "false"), text, "The|-|final|--|countdown");
    sample_check_words(NULL, SPLIT("Regex", "-+", "MergedWithNext", "false"), text, "The|-final|--countdown");
}

static void test_split_edges(void **state)
{
    (void)state;
    sample_check_words(NULL, SPLIT("String", "Hello", "Removed", "true"), "Hello Hello Hello", "Hello|Hello|Hello");
    sample_check_words(NULL, SPLIT("Regex", "\\\\w+|[^\\\\w\\\\s]+", "Removed", "true"), "How are you?",
                       "How|are|you|?");
    sample_check_words(NULL, SPLIT("String", "-", "MergedWithPrevious", "false"), "-a-", "-|a-");
    sample_check_words(NULL, SPLIT("String", "-", "MergedWithNext", "false"), "-a-", "-a|-");
    sample_check_words(NULL, SPLIT("String", "ab", "Isolated", "false"), "aababb", "a|ab|ab|b");
    sample_check_words(NULL, SPLIT("Regex", "x*", "Isolated", "false"), "axxb", "a|xx|b"); /* empty matches cut too */
    sample_check_words(NULL, "{\"type\": \"Sequence\", \"pretokenizers\": []}", "as it is", "as it is");
}

static void test_sequence_of_splits(void **state)
{
    static const char deepseek[] =
        "{\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT("Regex", "\\\\p{N}{1,3}", "Isolated", "false") ", " SPLIT(
            "Regex", "[一-龥ぁ-ゟ゠-ヿ]+", "Isolated", "false") ", " SPLIT("Regex", "\\\\s?\\\\p{L}+", "Isolated",
                                                                           "false") "]}";

    (void)state;
    sample_check_words(NULL, deepseek, "ab 1234東京abc か", "ab| |123|4|東京|abc| |か");
}

static void test_digits_and_punctuation(void **state)
{
    (void)state;
    sample_check_words(NULL, "{\"type\": \"Digits\", \"individual_digits\": false}", "Hey 123 friend!",
                       "Hey |123| friend!");
    sample_check_words(NULL, "{\"type\": \"Digits\", \"individual_digits\": true}", "a12½b", "a|1|2|½|b");
    sample_check_words(NULL, "{\"type\": \"Punctuation\"}", "Hey! «So»?!", "Hey|!| |«|So|»|?|!");
    sample_check_words(NULL, "{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"}", "Hey?! $x", "Hey|?!| |$|x");
}

static void test_metaspace(void **state)
{
    (void)state;
    sample_check_words(NULL, "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"add_prefix_space\": true}",
                       "Hey friend!", "▁Hey|▁friend!");
    sample_check_words(NULL, "{\"type\": \"Metaspace\", \"replacement\": \"▁\"}", "Hey   friend!", "▁Hey|▁|▁|▁friend!");
    sample_check_words(NULL, "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"never\"}", "a b",
                       "a|_b");
    sample_check_words(NULL, "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"split\": false}", " a b", "_a_b");
    sample_check_words(
        NULL,
        "{\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT(
            "String", "-", "Isolated",
            "false") ", "
                     "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}]}",
        "a-b c", "_a|-|b|_c");
}

static void test_byte_level(void **state)
{
    static const char bare[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";

    (void)state;
    sample_check_words(NULL, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", "Hi you're 12!",
                       "ĠHi|Ġyou|'re|Ġ12|!");
    sample_check_words(NULL, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", "  é\n\n a", "Ġ|ĠÃ©|ĊĊ|Ġa");
    sample_check_words(NULL, bare, "é x", "Ã©Ġx");
    /* a ByteLevel that is not the last step maps at its place: the second one sees characters */
    sample_check_words(
        NULL,
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\", \"add_prefix_space\": true}, " SPLIT(
            "String", "Ġ", "Isolated", "false") "]}",
        "a b", "Ġ|a|Ġ|b");
    sample_check_words("{\"type\": \"ByteLevel\"}", SPLIT("String", "Ġ", "MergedWithNext", "false"), "a é", "a|ĠÃ©");
}

static void test_normalizers(void **state)
{
    (void)state;
    sample_check_words("{\"type\": \"Prepend\", \"prepend\": \"▁\"}", NULL, "a b", "▁a b");
    sample_check_words("{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"▁\"}", NULL, " a  b",
                       "▁a▁▁b");
    sample_check_words("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\s+\"}, \"content\": \" \"}", NULL,
                       "a \n\t b", "a b");
    sample_check_words("{\"type\": \"Replace\", \"pattern\": {\"String\": \"aaa\"}, \"content\": \"b\"}", NULL, "aaaab",
                       "bab");
    sample_check_words("{\"type\": \"Lowercase\"}", NULL, "ÀBCİΣ", "àbci̇σ");
    sample_check_words("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}, {\"type\": \"NFC\"}]}",
                       NULL, "CAFE\xcc\x81", "caf\xc3\xa9");
}

static void test_forms(void **state)
{
    static const char angstrom[] = "\xe2\x84\xab", composed[] = "\xc3\x85", split[] = "A\xcc\x8a";

    (void)state;
    sample_check_words("{\"type\": \"NFC\"}", NULL, angstrom, composed);
    sample_check_words("{\"type\": \"NFD\"}", NULL, angstrom, split);
    sample_check_words("{\"type\": \"NFC\"}", NULL, split, composed);
    sample_check_words("{\"type\": \"NFKC\"}", NULL, "\xef\xac\x81\xc2\xb2", "fi2");
    sample_check_words("{\"type\": \"NFKD\"}", NULL, "\xef\xac\x81\xc3\xa9", "fie\xcc\x81");
    sample_check_words("{\"type\": \"NFC\"}", NULL, "\xef\xac\x81", "\xef\xac\x81");
    /* marks are put in order: dot below (220) before acute (230); equal ones stay as they are */
    sample_check_words("{\"type\": \"NFD\"}", NULL, "q\xcc\x81\xcc\xa3\xcc\x80", "q\xcc\xa3\xcc\x81\xcc\x80");
    sample_check_words("{\"type\": \"NFC\"}", NULL, "xe\xcc\xa3\xcc\x82y", "x\xe1\xbb\x87y"); /* ệ */
    /* Hangul: letters to a syllable and back, a syllable and one more letter */
    sample_check_words("{\"type\": \"NFC\"}", NULL, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c");
    sample_check_words("{\"type\": \"NFC\"}", NULL, "\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c");
    sample_check_words("{\"type\": \"NFD\"}", NULL, "\xed\x95\x9c", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab");
}

/* Marks in the worst order, half a million of them: linear work, or the test does not end. */
static void test_many_marks(void **state)
{
    struct sample_parts parts = {.normalizer = "{\"type\": \"NFC\"}",
                                 .vocab = "{\"a\": 0, \"\xcc\x81\": 1, \"\xcc\xa3\": 2}"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);
    struct ash_str text = {0};
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_str_adds(&text, "\xcc\x81"), 0);
    for (int i = 0; i < 250000; i++)
        assert_int_equal(ash_str_adds(&text, i < 125000 ? "\xcc\x81" : "\xcc\xa3"), 0);
    assert_int_equal(ash_tokenizer_encode(tokenizer, text.data, text.size_bytes, false, &ids, &err), 0);
    assert_int_equal(ids.count, 250001);
    assert_int_equal(ids.data[0], 2);
    assert_int_equal(ids.data[250000], 1);
    ash_ids_fini(&ids);
    ash_str_fini(&text);
    ash_tokenizer_close(tokenizer);
}

#define ADDED(id, content, flags) "{\"id\": " #id ", \"content\": \"" content "\", " flags "}"

static struct ash_tokenizer *open_added(const char *normalizer, const char *added, const char *vocab)
{
    struct sample_parts parts = {.normalizer = normalizer,
                                 .added = added,
                                 .vocab = vocab,
                                 .options = "\"unk_token\": \"?\", \"fuse_unk\": true, \"ignore_merges\": true,"};

    return sample_open(&parts);
}

static void test_added_options(void **state)
{
    struct ash_tokenizer *tokenizer = open_added(
        "{\"type\": \"Lowercase\"}",
        "[" ADDED(3, "my", "\"lstrip\": true, \"rstrip\": true") "," ADDED(4, "name", "\"special\": false") "," ADDED(
            5, "ony", "\"single_word\": true") "," ADDED(6, "[CLS]",
                                                         "\"special\": true") "," ADDED(7, "[SEP]",
                                                                                        "\"special\": true") "]",
        "{\"?\": 0, \" is anthony \": 1, \" is ant\": 2}");

    (void)state;
    sample_check(tokenizer, "[CLS] My name is Anthony [SEP]", false, "[CLS]|my|name| is anthony |[SEP]");
    sample_check(tokenizer, "[cls]", false, "?"); /* not normalized: found unchanged or not at all */
    assert_true(ash_tokenizer_is_special(tokenizer, 6));
    assert_false(ash_tokenizer_is_special(tokenizer, 3));
    assert_int_equal(ash_tokenizer_id(tokenizer, "name"), 4);
    assert_int_equal(ash_tokenizer_vocab_size(tokenizer), 8);
    ash_tokenizer_close(tokenizer);
}

static void test_added_single_word(void **state)
{
    struct ash_tokenizer *tokenizer =
        open_added("{\"type\": \"Lowercase\"}", "[" ADDED(5, "<mask>", "\"single_word\": true") "]",
                   "{\"?\": 0, \" my name \": 1, \" a<mask> <mask>ony \": 2, \", \": 3, \"- ◌̰<mask>\": 4}");

    (void)state;
    sample_check(tokenizer, "<mask> My name <mask> A<mask> <mask>ony <mask>", false,
                 "<mask>| my name |<mask>| a<mask> <mask>ony |<mask>");
    sample_check(tokenizer, "<mask>, <mask>- ◌̰<mask>", false, "<mask>|, |<mask>|- ◌̰<mask>");
    ash_tokenizer_close(tokenizer);
}

static void test_added_strip(void **state)
{
    struct ash_tokenizer *tokenizer =
        open_added(NULL, "[" ADDED(4, "<m>", "\"lstrip\": true, \"rstrip\": true, \"single_word\": true") "]",
                   "{\"?\": 0, \"Hi\": 1, \"there\": 2, \"x\": 3}");

    (void)state;
    sample_check(tokenizer, "Hi <m> there\t<m>\t<m>\xe2\x80\x80x", false, "Hi|<m>|there|<m>|<m>|x");
    sample_check(tokenizer, "\xe3\x80\x80 <m>", false, "<m>");
    ash_tokenizer_close(tokenizer);
}

static void test_added_longest(void **state)
{
    struct ash_tokenizer *tokenizer =
        open_added(NULL,
                   "[" ADDED(2, "<a", "\"special\": true") "," ADDED(3, "<ab>", "\"special\": true") "," ADDED(
                       4, "b>", "\"special\": true") "]",
                   "{\"?\": 0, \"x\": 1}");

    (void)state;
    sample_check(tokenizer, "x<ab>x<abx<ab<ab>b>", false, "x|<ab>|x|<a|?|x|<a|?|<ab>|b>");
    ash_tokenizer_close(tokenizer);
}

static void test_template(void **state)
{
    struct sample_parts parts = {
        .vocab = "{\"<s>\": 0, \"</s>\": 1, \"a\": 2, \"b\": 3}",
        .post = "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\", \"trim_offsets\": true}, "
                "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"B\", \"type_id\": 0}}, "
                "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"E\", \"type_id\": 0}}, "
                "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], "
                "\"special_tokens\": {\"B\": {\"id\": \"B\", \"ids\": [0], \"tokens\": [\"<s>\"]}, "
                "\"E\": {\"id\": \"E\", \"ids\": [1, 0], \"tokens\": [\"</s>\", \"<s>\"]}}}]}"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "ab", true, "<s>|a|b|</s>|<s>|a|b");
    sample_check(tokenizer, "ab", false, "a|b|a|b");
    sample_check(tokenizer, "", true, "<s>|</s>|<s>");
    ash_tokenizer_close(tokenizer);
}

/* A folder whose tokenizer.json has no template: tokenizer_config.json says whether texts get a first token. */
static void test_config_adds_bos(void **state)
{
    static const struct {
        const char *config, *expected;
    } cases[] = {
        {"{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": true, \"bos_token\": {\"content\": \"<s>\"}}",
         "<s>|a|b"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": true, \"bos_token\": \"<s>\"}", "<s>|a|b"},
        {"{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": false, \"bos_token\": \"<s>\"}", "a|b"},
        {"{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": true, \"bos_token\": null}", "a|b"},
        {"{\"tokenizer_class\": \"Qwen2Tokenizer\", \"add_bos_token\": true, \"bos_token\": \"<s>\"}", "a|b"},
    };
    char *json = sample_json(&(struct sample_parts){.vocab = "{\"<s>\": 0, \"a\": 1, \"b\": 2}"});
    char dir[] = "/tmp/ashlar-test-XXXXXX", file[64], config[64];
    struct ash_err err = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/tokenizer.json", dir);
    snprintf(config, sizeof(config), "%s/tokenizer_config.json", dir);
    assert_int_equal(ash_file_replace(file, json, strlen(json), &err), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_tokenizer *tokenizer = NULL;

        assert_int_equal(ash_file_replace(config, cases[i].config, strlen(cases[i].config), &err), 0);
        if (ash_tokenizer_open(i % 2 == 0 ? dir : file, &tokenizer, &err) < 0) fail_msg("%s", err.text);
        sample_check(tokenizer, "ab", true, cases[i].expected);
        sample_check(tokenizer, "ab", false, "a|b");
        ash_tokenizer_close(tokenizer);
    }
    assert_int_equal(ash_dir_remove(dir, NULL), 0);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_behaviors),    cmocka_unit_test(test_split_edges),
        cmocka_unit_test(test_sequence_of_splits), cmocka_unit_test(test_digits_and_punctuation),
        cmocka_unit_test(test_metaspace),          cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_normalizers),        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_many_marks),         cmocka_unit_test(test_added_options),
        cmocka_unit_test(test_added_single_word),  cmocka_unit_test(test_added_strip),
        cmocka_unit_test(test_added_longest),      cmocka_unit_test(test_template),
        cmocka_unit_test(test_config_adds_bos),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
