/* Decoders: each on small hand-made tokenizers, at once and one id at a time, broken bytes included. */
#include "text/tokenizer/tokenizer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/utf8.h"
#include "unit/text/tokenizer_sample.h"

#define FFFD "\xef\xbf\xbd"

/* Append the ids of the tokens that list names ('|' between them). */
static void add_ids(const struct ash_tokenizer *tokenizer, const char *list, struct ash_ids *ids)
{
    char *names = strdup(list);

    for (char *at = names, *bar; at != NULL && *at != '\0'; at = bar != NULL ? bar + 1 : NULL) {
        bar = strchr(at, '|');
        if (bar != NULL) *bar = '\0';
        assert_in_range(ash_tokenizer_id(tokenizer, at), 0, INT32_MAX);
        assert_int_equal(ash_ids_add(ids, ash_tokenizer_id(tokenizer, at)), 0);
    }
    free(names);
}

/* Decode the tokens that list names ('|' between them); whole and streamed must both be expected. */
static void check_decode(const struct ash_tokenizer *tokenizer, const char *list, bool skip_special,
                         const char *expected)
{
    struct ash_decoder *decoder = NULL;
    struct ash_ids ids = {0};
    struct ash_str whole = {0}, pieces = {0};
    struct ash_err err = {0};

    add_ids(tokenizer, list, &ids);
    if (ash_tokenizer_decode(tokenizer, ids.data, ids.count, skip_special, &whole, &err) < 0) fail_msg("%s", err.text);
    assert_string_equal(whole.data != NULL ? whole.data : "", expected);
    assert_int_equal(ash_decoder_open(tokenizer, skip_special, &decoder, &err), 0);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ash_decoder_push(decoder, ids.data[i], &pieces, &err), 0);
        assert_int_equal(ash_utf8_valid_prefix(pieces.data, pieces.size_bytes), pieces.size_bytes);
    }
    assert_int_equal(ash_decoder_finish(decoder, &pieces, &err), 0);
    assert_string_equal(pieces.data != NULL ? pieces.data : "", expected);
    ash_decoder_close(decoder);
    ash_ids_fini(&ids);
    ash_str_fini(&whole);
    ash_str_fini(&pieces);
}

/* After the prompt, the answer's tokens give the text expected. */
static void check_answer(const struct ash_tokenizer *tokenizer, const char *prompt, const char *answer,
                         const char *expected)
{
    struct ash_decoder *decoder = NULL;
    struct ash_ids ids = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    size_t prompt_count;

    add_ids(tokenizer, prompt, &ids);
    prompt_count = ids.count;
    add_ids(tokenizer, answer, &ids);
    assert_int_equal(ash_decoder_open(tokenizer, true, &decoder, &err), 0);
    for (int again = 0; again < 2; again++) { /* a decoder that was used starts like a new one */
        ash_str_clear(&text);
        assert_int_equal(ash_decoder_start(decoder, ids.data, prompt_count, &err), 0);
        for (size_t i = prompt_count; i < ids.count; i++)
            assert_int_equal(ash_decoder_push(decoder, ids.data[i], &text, &err), 0);
        if (again == 1) assert_int_equal(ash_decoder_finish(decoder, &text, &err), 0);
    }
    assert_string_equal(text.data != NULL ? text.data : "", expected);
    ash_decoder_close(decoder);
    ash_ids_fini(&ids);
    ash_str_fini(&text);
}

static void test_byte_level(void **state)
{
    struct sample_parts parts = {.vocab = "{\"a\": 0, \"Ġb\": 1, \"æ\": 2, \"Ŀ\": 3, \"±\": 4, \"æĿ±\": 5, \"ÿ\": 6, "
                                          "\"ð\": 7, \"Ł\": 8, \"ĺ\": 9, \"Ĥ\": 10, \"東\": 11}",
                                 .decoder = "{\"type\": \"ByteLevel\"}",
                                 .added = "[{\"id\": 12, \"content\": \"<x>\", \"special\": true}]"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    check_decode(tokenizer, "a|Ġb", false, "a b");
    check_decode(tokenizer, "æ|Ŀ|±|a", false, "東a");
    check_decode(tokenizer, "æ|Ŀ|a", false, FFFD "a"); /* one mark for the bytes that began a character */
    check_decode(tokenizer, "æ|Ŀ", false, FFFD);
    check_decode(tokenizer, "Ŀ|±|ÿ", false, FFFD FFFD FFFD); /* none of them begins one */
    check_decode(tokenizer, "ð|Ł|ĺ|a|ð|Ł|ĺ|Ĥ", false, FFFD "a\xf0\x9f\x98\x82");
    check_decode(tokenizer, "ð|Ł|æ|Ŀ|±", false, FFFD "東");
    check_decode(tokenizer, "東|a", false, "東a"); /* not spelled in byte characters: as it is */
    check_decode(tokenizer, "a|<x>", true, "a");
    check_decode(tokenizer, "", false, "");
    check_answer(tokenizer, "a", "Ġb", " b");
    check_answer(tokenizer, "æ|Ŀ|±", "a", "a");
    check_answer(tokenizer, "a|æ|Ŀ", "±|a", "東a"); /* the answer finishes the prompt's character */
    check_answer(tokenizer, "a|æ|Ŀ", "a", "a");
    check_answer(tokenizer, "a|æ|Ŀ", "æ|Ŀ|±", "東");
    check_answer(tokenizer, "ð|Ł", "ĺ|a", FFFD "a"); /* a byte of the answer is broken too */
    check_answer(tokenizer, "ð|Ł", "", "");
    ash_tokenizer_close(tokenizer);
}

static void test_llama(void **state)
{
    struct sample_parts parts = {.vocab = "{\"▁Hey\": 0, \"▁you\": 1, \"<0xE5>\": 2, \"<0x8F>\": 3, \"<0xab>\": 4, "
                                          "\"▁\": 5, \"<0x61>\": 6, \"</s>\": 7}",
                                 .decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                                            "\"pattern\": {\"String\": \"▁\"}, \"content\": \" \"}, "
                                            "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
                                            "\"content\": \" \", \"start\": 1, \"stop\": 0}]}",
                                 .added = "[{\"id\": 7, \"content\": \"</s>\", \"special\": true}]"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    check_decode(tokenizer, "▁Hey|▁you", false, "Hey you");
    check_decode(tokenizer, "▁|▁Hey", false, " Hey"); /* one space goes, not two */
    check_decode(tokenizer, "<0xE5>|<0x8F>|<0xab>|▁you", false, "\xe5\x8f\xab you");
    check_decode(tokenizer, "<0xE5>|<0x8F>|▁you", false,
                 FFFD FFFD " you");                             /* one mark a byte, as the library does it */
    check_decode(tokenizer, "<0x61>|<0xE5>", false, FFFD FFFD); /* all of a run or none of it */
    check_decode(tokenizer, "</s>|▁Hey|</s>", true, "Hey");
    check_decode(tokenizer, "</s>|▁Hey", false, "</s> Hey");
    check_answer(tokenizer, "▁Hey", "▁you", " you");
    check_answer(tokenizer, "▁Hey|<0x61>", "▁you", " you"); /* bytes at the end of the prompt are not said again */
    check_answer(tokenizer, "▁Hey|<0xE5>|<0x8F>|<0xab>|</s>", "<0x61>|▁you", "a you");
    check_answer(tokenizer, "▁Hey|<0xE5>|<0x8F>", "<0xab>|▁you", "\xe5\x8f\xab you");
    check_answer(tokenizer, "<0x61>|<0xE5>|<0x8F>", "<0xab>", "\xe5\x8f\xab");
    check_answer(tokenizer, "▁Hey|<0xE5>|<0x8F>", "▁you", " you");
    check_answer(tokenizer, "▁Hey|<0xE5>|<0x8F>", "<0x61>|<0x61>", "aa");
    check_answer(tokenizer, "▁Hey|<0xE5>|<0x8F>", "<0xE5>|▁you", FFFD " you");
    check_answer(tokenizer, "<0x61>", "", "");
    ash_tokenizer_close(tokenizer);
}

static void test_metaspace_and_strip(void **state)
{
    struct sample_parts metaspace = {.vocab = "{\"▁a▁\": 0, \"▁b\": 1}",
                                     .decoder = "{\"type\": \"Metaspace\", \"replacement\": \"▁\"}"};
    struct sample_parts never = {
        .vocab = "{\"▁a▁\": 0, \"▁b\": 1}",
        .decoder = "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"never\"}"};
    struct sample_parts strip = {.vocab = "{\"HHHeyH\": 0, \"HH\": 1, \"y\": 2}",
                                 .decoder = "{\"type\": \"Strip\", \"content\": \"H\", \"start\": 2, \"stop\": 1}"};
    struct sample_parts fused = {
        .vocab = "{\"..\": 0, \"a.\": 1, \"b\": 2}",
        .decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
                   "\"content\": \".\", \"start\": 3, \"stop\": 1}]}"};
    struct ash_tokenizer *tokenizer = sample_open(&metaspace);

    (void)state;
    check_decode(tokenizer, "▁a▁|▁b", false, "a b");
    ash_tokenizer_close(tokenizer);
    tokenizer = sample_open(&never);
    check_decode(tokenizer, "▁a▁|▁b", false, " a  b");
    ash_tokenizer_close(tokenizer);
    tokenizer = sample_open(&strip);
    check_decode(tokenizer, "HHHeyH|HH|y", false, "Heyy"); /* each token by itself */
    ash_tokenizer_close(tokenizer);
    tokenizer = sample_open(&fused);
    check_decode(tokenizer, "..|..|a.|b|a.", false, ".a.ba"); /* the whole text once */
    check_decode(tokenizer, "..|..", false, "");
    check_answer(tokenizer, "..|..|a.", "b|a.", "ba"); /* what was joined does not come back */
    ash_tokenizer_close(tokenizer);
}

static void test_replace_and_none(void **state)
{
    struct sample_parts regex = {
        .vocab = "{\"a1b22\": 0, \"3\": 1}",
        .decoder = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[0-9]+\"}, \"content\": \"#\"}"};
    struct sample_parts none = {.vocab = "{\"a\": 0, \"b\": 1}"};
    struct ash_tokenizer *tokenizer = sample_open(&regex);

    (void)state;
    check_decode(tokenizer, "a1b22|3", false, "a#b##");
    ash_tokenizer_close(tokenizer);
    tokenizer = sample_open(&none);
    check_decode(tokenizer, "a|b|a", false, "a b a"); /* no decoder: a space between tokens */
    ash_tokenizer_close(tokenizer);
}

/* An added token is looked for in its normalized shape, and decoders undo that shape. */
static void test_normalized_added(void **state)
{
    struct sample_parts parts = {
        .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"▁\"}, "
                      "{\"type\": \"Replace\", "
                      "\"pattern\": {\"String\": \" \"}, \"content\": \"▁\"}]}",
        .vocab = "{\"▁\": 0, \"a\": 1}",
        .decoder = "{\"type\": \"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" \"}",
        .added = "[{\"id\": 2, \"content\": \"<t>\", \"special\": false, \"normalized\": true}]"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "a <t>", false, "▁|a|<t>");
    check_decode(tokenizer, "▁|a|<t>", false, " a <t>");
    ash_tokenizer_close(tokenizer);
}

static void test_bad_ids(void **state)
{
    struct sample_parts parts = {.vocab = "{\"a\": 0, \"b\": 5}", .decoder = "{\"type\": \"Fuse\"}"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);
    static const int32_t bad[] = {-1, 1, 6, INT32_MAX, INT32_MIN};
    struct ash_str text = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_str_adds(&text, "before"), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int32_t ids[] = {0, bad[i]};
        assert_int_equal(ash_tokenizer_decode(tokenizer, ids, 2, false, &text, &err), -EINVAL);
        assert_string_equal(text.data, "before"); /* nothing of a failed call stays */
    }
    ash_str_fini(&text);
    ash_decoder_close(NULL);
    ash_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),          cmocka_unit_test(test_llama),
        cmocka_unit_test(test_metaspace_and_strip), cmocka_unit_test(test_replace_and_none),
        cmocka_unit_test(test_normalized_added),    cmocka_unit_test(test_bad_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
