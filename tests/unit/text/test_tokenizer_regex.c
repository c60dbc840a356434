/* Regular expressions of tokenizer files: PCRE2 must find what Oniguruma finds. The expected matches were computed by
 * Oniguruma 6.9.8 (Ruby syntax, UTF-8), walked as the Hugging Face library walks them. */
#include "text/tokenizer/tokenizer_priv.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/utf8.h"

struct sample {
    const char *expression, *text, *matches; /* "start-end" in bytes, a space between them */
};

static const struct sample samples[] = {
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "I'LL  say\302\240hi 12345!!\n\n  x\341\240\216\302\205y'\305\277",
     "0-1 1-4 4-5 5-9 9-13 13-14 14-17 17-19 19-23 23-24 24-26 26-29 29-32 32-35"},
    {"\\s", "a \t\013\302\205\302\240\341\240\216\342\200\213\357\273\277\343\200\200z", "1-2 2-3 3-4 4-6 6-8 17-20"},
    {"\\w+", "caf\303\251_1\302\262\342\221\240\342\223\220-x\314\201 \342\200\277", "0-9 12-15 16-19 20-23"},
    {"[\\w]+", "1\302\262x", "0-1 3-4"},
    {"\\W+", "a-\302\262-b", "1-2 4-5"},
    {"\\h+", "beefGA9", "0-4 5-7"},
    {"\\H+", "beefGA9", "4-5"},
    {"\\v", "a\013b\nc", "1-2"},
    {"\\b", "ab \303\251-", "0-0 2-2 3-3 5-5"},
    {"\\B.", "abc d", "1-2 2-3"},
    {" ?[^(\\s|[.,!?\342\200\246])]+", "Hi (a|b), so?", "0-2 4-5 6-7 9-12"},
    {"[a-z&&[^aeiou]]+", "abcdefg", "1-4 5-7"},
    {"[^a-z&&[aeiou]]", "abE", "1-2 2-3"},
    {"[a[^b-y]d]+", "azbdc", "0-2 3-4"},
    {"[a[bc]d]+", "xabcdx", "1-5"},
    {"\\p{L}{2,3}+x?", "abcdefghx ab", "0-9 10-12"},
    {"a{2}?b", "aab b ab", "0-3 4-5 7-8"},
    {"a{,2}b", "aaab b", "1-4 5-6"},
    {"a{1", "a{1}", "0-3"},
    {"a++b", "aab", "0-3"},
    {"a(?i)b|c", "aB aC ac c", "0-2 3-5 6-8"},
    {"(?i)abc|D", "ABC d", "0-3 4-5"},
    {"(?m:a.b)", "a\nb", "0-3"},
    {"a.b", "a\nb axb", "4-7"},
    {"^x", "x\nx yx", "0-1 2-3"},
    {"x$", "x\nyx x", "0-1 5-6"},
    {"\\Ax", "xx\nx", "0-1"},
    {"x\\z", "x\nx", "2-3"},
    {"x\\Z", "x\nx\n", "2-3"},
    {"\\p{Han}+", "\346\235\261\344\272\254\343\201\256\343\200\205\343\200\201\343\203\274", "0-6 9-12"},
    {"\\p{Katakana}+", "\343\202\253\343\203\274\343\203\273", "0-3"},
    {"\\p{^L}+", "a1-b", "1-3"},
    {"\\P{L}+", "a1-b", "1-3"},
    {"[^[:space:]]+", "a b", "0-1 2-3"},
    {"\\p{Lowercase_Letter}+", "aBc", "0-1 2-3"},
    {"\\p{space}+", "a \n", "1-3"},
    {"x*", "axxb", "0-0 1-3 4-4"},
    {"", "ab", "0-0 1-1 2-2"},
    {"(a|ab)(c|bcd)?", "abcd", "0-4"},
    {"(?<=a)b|(?<!a)c", "abacc", "1-2 4-5"},
    {"(?>a|ab)c", "abc ac", "4-6"},
    {"[\\-a\\]]+", "-a]b", "0-3"},
    {"[]a]+", "]a[", "0-2"},
    {"[a-]+", "-ab", "0-2"},
    {"\\x41\\x{42}\\u0043", "ABC", "0-3"},
    {"[\\x41-\\x43]+", "ABCD", "0-3"},
    {"[\\w-]+", "a-b c", "0-3 4-5"},
    {"\\.\\*\\/", "a.*/", "1-4"},
    {"}]", "a}]", "1-3"},
    {"(?i:stra\303\237e)", "STRA\341\272\236E", "0-8"},
    {"\\R", "a\r\nb\nc", "1-3 4-5"},
};

/* These need properties that PCRE2 knows from 10.40 on. */
static const struct sample newer_samples[] = {
    {"[[:alpha:]]+", "ab1\303\251", "0-2 3-5"},
    {"[[:^alpha:]]+", "ab1-", "2-4"},
};

static void check(const struct sample *sample)
{
    struct ash_tok_scratch *scratch = ash_tok_scratch_open();
    struct ash_tok_pattern pattern = {0};
    struct ash_tok_finder finder;
    struct ash_str found = {0};
    struct ash_err err = {0};
    size_t start, end;

    assert_non_null(scratch);
    if (ash_tok_pattern_regex(&pattern, sample->expression, &err) < 0) fail_msg("%s", err.text);
    finder = ash_tok_finder_make(&pattern, scratch, (struct ash_tok_span){sample->text, strlen(sample->text)});
    assert_int_equal(ash_str_adds(&found, ""), 0);
    while (ash_tok_finder_next(&finder, &start, &end, &err) > 0)
        assert_int_equal(ash_str_addf(&found, "%s%zu-%zu", found.size_bytes > 0 ? " " : "", start, end), 0);
    if (strcmp(found.data, sample->matches) != 0)
        fail_msg("/%s/ found %s, not %s", sample->expression, found.data, sample->matches);
    ash_str_fini(&found);
    ash_tok_pattern_fini(&pattern);
    ash_tok_scratch_close(scratch);
}

static void test_samples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        check(&samples[i]);
}

static void test_newer_samples(void **state)
{
    struct ash_tok_pattern pattern = {0};
    bool known = ash_tok_pattern_regex(&pattern, "\\p{Alphabetic}", NULL) == 0;

    (void)state;
    ash_tok_pattern_fini(&pattern);
    if (!known) skip();
    for (size_t i = 0; i < sizeof(newer_samples) / sizeof(newer_samples[0]); i++)
        check(&newer_samples[i]);
}

/* What cannot be said in PCRE2, or not at all, is refused with the expression and the place. */
static void test_refused(void **state)
{
    static const char *const refused[] = {
        "(",      ")",        "a)b",     "[a",        "[",          "[]",    "[^]",   "*a",        "a**",
        "(?x:a)", "(?~a)",    "(?<n>a)", "\\1",       "\\k<n>",     "\\K",   "\\G",   "\\X",       "\\y",
        "\\p{L",  "\\pL",     "\\p{}",   "\\p{Nope}", "\\p{a=b}",   "\\x",   "\\xe9", "\\x{d800}", "\\x{110000}",
        "\\u12",  "\\",       "[\\",     "[b-a]",     "[[:nope:]]", "[a&&]", "[&&a]", "[a-\\d]",   "(?i",
        "\\017",  "(?<=a+)b", "a{3,2}",  "a{1}{2}",   "+",          "a|*",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct ash_tok_pattern pattern = {0};
        struct ash_err err = {0};
        int rc = ash_tok_pattern_regex(&pattern, refused[i], &err);
        if (rc >= 0) fail_msg("/%s/ was taken", refused[i]);
        assert_int_equal(err.code, rc);
        assert_non_null(strstr(err.text, "regular expression '"));
        ash_tok_pattern_fini(&pattern);
    }
}

static void test_nesting_is_bounded(void **state)
{
    struct ash_str text = {0};
    struct ash_err err = {0};

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct ash_tok_pattern pattern = {0};
        ash_str_clear(&text);
        for (int i = 0; i < (kind == 2 ? 20000 : 500); i++)
            assert_int_equal(ash_str_adds(&text, kind == 0 ? "(" : kind == 1 ? "[" : "a"), 0);
        assert_int_equal(ash_tok_pattern_regex(&pattern, text.data, &err), -E2BIG);
        ash_tok_pattern_fini(&pattern);
    }
    ash_str_fini(&text);
}

/* An expression that backtracks without end is given up with an error, soon. */
static void test_steps_are_bounded(void **state)
{
    static const char *const expressions[] = {"(a|a)*b", "(a+)+b", "(?:a?){30}a{30}b", "(?=(a+)+b)"};
    struct ash_tok_scratch *scratch = ash_tok_scratch_open();
    char text[2001];

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 2] = 'c'; /* the b after it keeps PCRE2 from knowing that there can be none */
    text[sizeof(text) - 1] = 'b';
    for (size_t i = 0; i < sizeof(expressions) / sizeof(expressions[0]); i++) {
        struct ash_tok_pattern pattern = {0};
        struct ash_err err = {0};
        struct ash_tok_finder finder;
        size_t start, end;
        uint64_t before = ash_clock_ns();
        int rc;
        assert_int_equal(ash_tok_pattern_regex(&pattern, expressions[i], &err), 0);
        finder = ash_tok_finder_make(&pattern, scratch, (struct ash_tok_span){text, sizeof(text)});
        while ((rc = ash_tok_finder_next(&finder, &start, &end, &err)) > 0)
            continue;
        assert_true(rc == 0 || rc == -EOVERFLOW);
        assert_true(ash_clock_ns() - before < 20u * 1000000000u);
        ash_tok_pattern_fini(&pattern);
    }
    ash_tok_scratch_close(scratch);
}

/* The 256 characters of byte-level vocabularies: a bijection, with the corners that every such vocabulary shows. */
static void test_byte_characters(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(ash_tok_byte_from_point(ash_tok_byte_to_point((uint8_t)byte)), byte);
    assert_int_equal(ash_tok_byte_to_point(' '), 0x120);
    assert_int_equal(ash_tok_byte_to_point('\n'), 0x10a);
    assert_int_equal(ash_tok_byte_to_point(0x7f), 0x121);
    assert_int_equal(ash_tok_byte_to_point(0xad), 0x143);
    assert_int_equal(ash_tok_byte_from_point(0x144), -1);
    assert_int_equal(ash_tok_byte_from_point(' '), -1);
    assert_int_equal(ash_tok_byte_from_point(0xad), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),           cmocka_unit_test(test_newer_samples),
        cmocka_unit_test(test_refused),           cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_steps_are_bounded), cmocka_unit_test(test_byte_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
