/* Other programs: what they print, how they end, what they are given, and that none can hold us up. */
#include "base/command.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"

static int run(const char *script, const char *input, double limit_s, struct ash_command_result *result,
               struct ash_err *err)
{
    const char *const words[] = {"sh", "-c", script, NULL};

    return ash_command_run(&(struct ash_command){.argv = words, .input = input, .limit_s = limit_s}, result, err);
}

static void test_output(void **state)
{
    struct ash_command_result result;
    (void)state;

    assert_int_equal(run("echo out; echo err >&2; exit 3", NULL, 10, &result, NULL), 0);
    assert_string_equal(result.out.data, "out\n");
    assert_string_equal(result.err.data, "err\n");
    assert_int_equal(result.code, 3);
    ash_command_free(&result);
    assert_int_equal(run("kill -9 $$", NULL, 10, &result, NULL), 0);
    assert_int_equal(result.code, 128 + 9);
    assert_string_equal(result.out.data, "");
    ash_command_free(&result);
}

/* More than a pipe holds, both ways, and a program that does not read. */
static void test_input(void **state)
{
    struct ash_command_result result;
    size_t bytes = (size_t)1 << 20;
    char *text = malloc(bytes + 1);
    (void)state;

    assert_non_null(text);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    assert_int_equal(run("cat", text, 10, &result, NULL), 0);
    assert_int_equal(result.out.size_bytes, bytes);
    assert_string_equal(result.out.data, text);
    ash_command_free(&result);
    assert_int_equal(run("exit 0", text, 10, &result, NULL), 0);
    assert_int_equal(result.code, 0);
    ash_command_free(&result);
    free(text);
}

static void test_limits(void **state)
{
    const char *const nothing[] = {"/no/such/program", NULL};
    struct ash_command_result result;
    struct ash_err err = {0};
    uint64_t start = ash_clock_ns();
    (void)state;

    assert_int_equal(run("sleep 100 & sleep 100", NULL, 0.2, &result, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "did not answer"));
    ash_command_free(&result);
    assert_int_equal(run("exec >&- 2>&-; sleep 100", NULL, 0.2, &result, &err), -ETIMEDOUT); /* closed, and continues */
    ash_command_free(&result);
    assert_true(ash_clock_ns() - start < UINT64_C(20000000000));
    assert_int_equal(run("yes", NULL, 60, &result, &err), -EFBIG);
    ash_command_free(&result);
    assert_int_equal(ash_command_run(&(struct ash_command){.argv = nothing, .limit_s = 5}, &result, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/no/such/program"));
    ash_command_free(&result);
}

static void test_sentences_and_environment(void **state)
{
    static const char *const env[] = {"NODE=n7", "REASON=two words", NULL};
    static const char *const good[] = {"sh", "-c", "printf '%s|%s|%s' \"$NODE\" \"$REASON\" \"${PATH:+path}\"", NULL};
    static const char *const bad[] = {"sh", "-c", "echo first >&2; echo second >&2; exit 3", NULL};
    struct ash_str text = {0}, untouched = {0};
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_command_output(&(struct ash_command){.argv = good, .env = env, .limit_s = 10}, &text, &err),
                     0);
    assert_string_equal(text.data, "n7|two words|path");
    ash_str_fini(&text);
    assert_null(getenv("REASON")); /* this process's is as it was */
    assert_int_equal(ash_command_output(&(struct ash_command){.argv = bad, .limit_s = 10}, &untouched, &err), -EIO);
    assert_string_equal(err.text, "sh ends with 3: first");
    assert_null(untouched.data);
}

/* A shell reads every quoted word back as it was. */
static void test_quote(void **state)
{
    static const char *const words[] = {"plain", "", "two words", "it's", "$HOME `id` \"x\" \\", "a\nb", "--x=1,2"};
    (void)state;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct ash_command_result result;
        struct ash_str script = {0};

        ash_str_adds(&script, "printf %s ");
        assert_int_equal(ash_command_quote(&script, words[i]), 0);
        assert_int_equal(run(script.data, NULL, 10, &result, NULL), 0);
        assert_string_equal(result.out.data, words[i]);
        ash_command_free(&result);
        ash_str_fini(&script);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_output), cmocka_unit_test(test_input),
                                       cmocka_unit_test(test_sentences_and_environment), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_quote)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
