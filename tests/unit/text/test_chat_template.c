/* Chat templates. tests/golden/chat/cases.json holds short templates, their variables and the text that Jinja2 3.1.6
 * gives for them, set up as the transformers library sets it up; ours must be the same text, and an error where it has
 * one. */
#include "text/chat_template/chat_template.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"

static struct ash_chat_template *open_template(const char *source)
{
    struct ash_chat_template *template = NULL;
    struct ash_err err = {0};

    if (ash_chat_template_parse(source, strlen(source), "t", "<s>", "</s>", &template, &err) < 0)
        fail_msg("%s", err.text);
    return template;
}

/* ---- against Jinja2 ---------------------------------------------------------------------------------------------- */

static void check_case(const json_t *item)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    const char *source = json_string_value(json_object_get(item, "template"));
    const char *expected = json_string_value(json_object_get(item, "expected"));
    struct ash_chat_template *template = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};
    int rc =
        ash_chat_template_parse(source, strlen(source), name, json_string_value(json_object_get(item, "bos_token")),
                                json_string_value(json_object_get(item, "eos_token")), &template, &err);

    if (rc == 0) rc = ash_chat_template_render_json(template, json_object_get(item, "variables"), &text, &err);
    if (expected == NULL) {
        assert_true(rc < 0);
        assert_non_null(strstr(err.text, ": line "));
    } else {
        if (rc < 0) fail_msg("%s", err.text);
        if (strcmp(text.data != NULL ? text.data : "", expected) != 0)
            fail_msg("%s: got '%s', not '%s'", name, text.data, expected);
    }
    ash_str_fini(&text);
    ash_chat_template_close(template);
}

static void test_golden(void **state)
{
    struct ash_err err = {0};
    json_t *cases = NULL, *item;
    size_t i;

    (void)state;
    if (ash_json_load(TEST_DATA "/golden/chat/cases.json", &cases, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(json_array_size(cases), 76);
    json_array_foreach(cases, i, item) {
        check_case(item);
    }
    json_decref(cases);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void test_messages(void **state)
{
    static const char source[] =
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}{{ tools is none }}{{ pad_token is defined }}";
    static const struct ash_chat_message messages[] = {{"system", "Be kind."}, {"user", "Ünïcode 東京\n"}};
    static const struct ash_chat_message broken[] = {{"user", "a\xff"}};
    struct ash_chat_template *template = open_template(source);
    struct ash_str text = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_str_adds(&text, "before "), 0);
    assert_int_equal(ash_chat_template_render(template, messages, 2, true, &text, &err), 0);
    assert_string_equal(text.data, "before <s><system>Be kind.</s><user>Ünïcode 東京\n</s><assistant>TrueFalse");
    ash_str_clear(&text);
    assert_int_equal(ash_chat_template_render(template, messages, 1, false, &text, &err), 0);
    assert_string_equal(text.data, "<s><system>Be kind.</s>TrueFalse");
    assert_int_equal(ash_chat_template_render(template, broken, 1, false, &text, &err), -EILSEQ);
    assert_string_equal(text.data, "<s><system>Be kind.</s>TrueFalse"); /* nothing of a failed call stays */
    assert_int_equal(ash_chat_template_render_json(template, NULL, &text, &err), -EINVAL);
    ash_str_fini(&text);
    ash_chat_template_close(template);
    ash_chat_template_close(NULL);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    struct ash_err err = {0};
    char path[256];

    assert_int_equal(ash_path_join(path, sizeof(path), dir, name), 0);
    assert_int_equal(ash_file_replace(path, text, strlen(text), &err), 0);
}

static void check_folder(const char *dir, const char *expected)
{
    static const struct ash_chat_message messages[] = {{"user", "hi"}};
    struct ash_chat_template *template = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};

    if (ash_chat_template_open(dir, &template, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_chat_template_render(template, messages, 1, true, &text, &err), 0);
    assert_string_equal(text.data, expected);
    ash_str_fini(&text);
    ash_chat_template_close(template);
}

static void test_folder(void **state)
{
    static const struct ash_chat_message message = {"user", "hi"};
    struct ash_chat_template *template = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};
    char dir[] = "/tmp/ashlar-test-XXXXXX", given[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ash_chat_template_open(dir, &template, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no chat template"));
    write_file(dir, "tokenizer_config.json", "{\"bos_token\": \"<b>\"}");
    assert_int_equal(ash_chat_template_open(dir, &template, &err), -ENOENT);
    write_file(
        dir, "tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": \"</b>\", \"pad_token\": null, \"unk_token\": \"<u>\", "
        "\"chat_template\": \"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}{{ pad_token "
        "}}\"}");
    check_folder(dir, "<b>hi</b><u>");
    write_file(dir, "given", "{{ messages[0].content }}{{ eos_token }}{{ bos_token }}{{ unk_token }}");
    assert_int_equal(ash_path_join(given, sizeof(given), dir, "given"), 0);
    if (ash_chat_template_read(given, dir, &template, &err) < 0) fail_msg("%s", err.text); /* as the model's own */
    assert_int_equal(ash_chat_template_render(template, &message, 1, true, &text, &err), 0);
    assert_string_equal(text.data, "hi</b><b><u>");
    ash_str_fini(&text);
    ash_chat_template_close(template);
    template = NULL;
    assert_int_equal(ash_chat_template_read("/nowhere", dir, &template, &err), -ENOENT);
    write_file(dir, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": \"default\", "
               "\"template\": \"y\"}]}");
    check_folder(dir, "y");
    write_file(dir, "chat_template.jinja", "file {{ messages[0].role }}\n");
    check_folder(dir, "file user");
    write_file(dir, "chat_template.jinja", "{% if %}");
    assert_int_equal(ash_chat_template_open(dir, &template, &err), -EINVAL);
    assert_non_null(strstr(err.text, "chat_template.jinja: line 1: "));
    write_file(dir, "chat_template.jinja", "\xff");
    assert_int_equal(ash_chat_template_open(dir, &template, &err), -EILSEQ);
    write_file(dir, "tokenizer_config.json", "{");
    assert_int_equal(ash_chat_template_open(dir, &template, &err), -EINVAL);
    assert_null(template);
    assert_int_equal(ash_dir_remove(dir, &err), 0);
}

/* As tasks of lm-evaluation-harness say where the answer is. */
static void test_members_of_lists(void **state)
{
    static const struct {
        const char *source, *expected;
    } samples[] = {
        {"{{ ['A', 'B', 'C'].index('B') }}", "1"},
        {"{{ choices.label.index(answer) }}", "2"},
        {"{{ [1, 2, 1, 1].index(2) }} {{ [1, 2, 1, 1].count(1) }} {{ [].count(1) }}", "1 3 0"},
        {"{{ ['a'].index('b') }}", NULL},
        {"{{ ['a'].index() }}", NULL},
    };
    json_t *variables = json_pack("{s:s, s:{s:[s,s,s]}}", "answer", "4", "choices", "label", "A", "B", "4");

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct ash_chat_template *template = open_template(samples[i].source);
        struct ash_str text = {0};
        struct ash_err err = {0};
        int rc = ash_chat_template_render_json(template, variables, &text, &err);

        assert_int_equal(rc, samples[i].expected != NULL ? 0 : -EINVAL);
        if (rc == 0) assert_string_equal(text.data, samples[i].expected);
        ash_str_fini(&text);
        ash_chat_template_close(template);
    }
    json_decref(variables);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void test_syntax_errors(void **state)
{
    static const struct {
        const char *source, *hint;
    } samples[] = {
        {"a\n{{ x", "line 2: a tag has no end"},
        {"{{ 'x }}", "line 1: a string has no end"},
        {"{# x", "a comment has no end"},
        {"{% raw %}x", "{% raw %}"},
        {"{% if x %}", "{% endif %} is missing"},
        {"\n\n{% for x in y %}{% endif %}", "line 3: the tag 'endif' is not supported here"},
        {"{% for x y %}{% endfor %}", "'in' is missing"},
        {"{% include 'x' %}", "'include'"},
        {"{% set %}{% endset %}", "a name is missing"},
        {"{% set 3 = 4 %}", "a name is missing"},
        {"{% filter %}x{% endfilter %}", "a filter's name is missing"},
        {"{% filter upper %}x", "{% endfilter %} is missing"},
        {"{% break %}", "belong into a loop"},
        {"{{ }}", "a value is missing"},
        {"{{ a b }}", "the expression should end here"},
        {"{{ a | }}", "a filter's name"},
        {"{{ a is }}", "a test's name"},
        {"{{ a. }}", "after '.'"},
        {"{{ a[ }}", "closed that was not opened"},
        {"{{ a] }}", "closed that was not opened"},
        {"{{ a[] }}", "an index is missing"},
        {"{{ [1 2] }}", "']' is missing"},
        {"{{ {'a' 1} }}", "':' is missing"},
        {"{{ f(1 2) }}", "')' is missing"},
        {"{{ a ? b }}", "means nothing"},
        {"{{ 99999999999999999999 }}", "too large"},
        {"{% %}", "without a word"},
        {"{% if a %}{% else %}{% else %}{% endif %}", "'else'"},
        {"{% for x in y recursive %}{% endfor %}", "recursive"},
        {"{% macro %}{% endmacro %}", "macro's name"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct ash_chat_template *template = NULL;
        struct ash_err err = {0};
        int rc =
            ash_chat_template_parse(samples[i].source, strlen(samples[i].source), "t", NULL, NULL, &template, &err);
        if (rc >= 0) fail_msg("'%s' was taken", samples[i].source);
        if (strstr(err.text, samples[i].hint) == NULL) fail_msg("'%s' does not say '%s'", err.text, samples[i].hint);
        assert_null(template);
    }
}

static void check_refused(const char *source, int code, const char *hint)
{
    static const struct ash_chat_message messages[] = {{"user", "hi"}};
    struct ash_chat_template *template = open_template(source);
    struct ash_str text = {0};
    struct ash_err err = {0};
    int rc = ash_chat_template_render(template, messages, 1, false, &text, &err);

    if (rc != code) fail_msg("'%s': %d instead of %d (%s)", source, rc, code, err.text);
    assert_int_equal(err.code, code);
    if (strstr(err.text, hint) == NULL) fail_msg("'%s' does not say '%s'", err.text, hint);
    assert_int_equal(text.size_bytes, 0);
    ash_str_fini(&text);
    ash_chat_template_close(template);
}

static void test_run_errors(void **state)
{
    (void)state;
    check_refused("a\n{{ x | nope }}", -ENOTSUP, "t: line 2: the filter 'nope'");
    check_refused("{{ x is nope }}", -ENOTSUP, "the test 'nope'");
    check_refused("{{ 'a'.nope() }}", -ENOTSUP, "the method 'nope'");
    check_refused("{{ nope() }}", -ENOTSUP, "no function 'nope'");
    check_refused("{{ 'a'() }}", -EINVAL, "a string cannot be called");
    check_refused("{{ nope.x }}", -EINVAL, "'nope' is undefined and has no 'x'");
    check_refused("{{ nope.x() }}", -EINVAL, "'nope' is undefined");
    check_refused("{{ messages.nope.x }}", -EINVAL, "'nope' is undefined");
    check_refused("{{ 1 + 'a' }}", -EINVAL, "an integer and a string");
    check_refused("{{ 1 < 'a' }}", -EINVAL, "no order");
    check_refused("{{ 1 in 2 }}", -EINVAL, "nothing can be in an integer");
    check_refused("{{ 9223372036854775807 + 1 }}", -EOVERFLOW, "too large");
    check_refused("{{ 10 ** 40 }}", -EOVERFLOW, "too large");
    check_refused("{{ 5 % 0 }}", -EINVAL, "division by zero");
    check_refused("{{ 'abc'[::0] }}", -EINVAL, "step");
    check_refused("{% for a, b in [[1]] %}{% endfor %}", -EINVAL, "fewer values");
    check_refused("{% for a, b in [[1, 2, 3]] %}{% endfor %}", -EINVAL, "more values");
    check_refused("{% for a in 5 %}{% endfor %}", -EINVAL, "nothing to loop over");
    check_refused("{% set messages.x = 1 %}", -EINVAL, "only a namespace");
    check_refused("{{ {1.5: 2} }}", -ENOTSUP, "keys");
    check_refused("{{ nope | tojson }}", -EINVAL, "undefined");
    check_refused("{{ messages[0].content | replace('a') }}", -EINVAL, "an argument is missing");
    check_refused("{{ raise_exception('Say please') }}", -EINVAL, "refuses these messages: Say please");
    check_refused("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", -EINVAL, "more arguments");
    check_refused("{{ f }}{{ namespace(1) }}", -EINVAL, "names");
}

/* Whatever a template asks for, it ends, and within its memory. */
static void test_limits(void **state)
{
    struct ash_str text = {0};
    struct ash_err err = {0};
    struct ash_chat_template *template = NULL;

    (void)state;
    check_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", -E2BIG, "too deep");
    check_refused("{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}", -EOVERFLOW,
                  "steps");
    check_refused("{{ range(100001) }}", -E2BIG, "range");
    check_refused("{{ 'a' * 1000000000 }}", -E2BIG, "repeated");
    check_refused(
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        -ENOMEM, "MiB");
    check_refused("{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}", -E2BIG, "too much text");
    check_refused("{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
                  -EOVERFLOW, "steps");
    check_refused(
        "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if x[999999] == 'b' %}{% endif %}{% endfor %}",
        -EOVERFLOW, "steps");
    for (int kind = 0; kind < 5; kind++) {
        static const char *const opens[] = {"{{ ((((", "{{ [[[[", "{% if x %}", "{{ not not not not ", "{{ - - - - "};
        ash_str_clear(&text);
        for (int i = 0; i < 5000; i++)
            assert_int_equal(ash_str_adds(&text, i == 0 || kind == 2 ? opens[kind] : opens[kind] + 3), 0);
        assert_int_equal(ash_chat_template_parse(text.data, text.size_bytes, "t", NULL, NULL, &template, &err),
                         -EINVAL);
        assert_null(template);
    }
    ash_str_clear(&text); /* a long chain is not deep in the source, but it is when it runs */
    assert_int_equal(ash_str_adds(&text, "{{ 1"), 0);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(ash_str_adds(&text, " + 1"), 0);
    assert_int_equal(ash_str_adds(&text, " }}"), 0);
    check_refused(text.data, -E2BIG, "too deep");
    ash_str_fini(&text);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *render_often(void *ctx)
{
    static const struct ash_chat_message messages[] = {{"user", "hi"}};
    const struct ash_chat_template *template = ctx;

    for (int i = 0; i < 100; i++) {
        struct ash_str text = {0};
        struct ash_err err = {0};
        int rc = ash_chat_template_render(template, messages, 1, true, &text, &err);
        bool same = rc == 0 && strcmp(text.data, "0 1 2 hi!") == 0;
        ash_str_fini(&text);
        if (!same) return ctx;
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct ash_chat_template *template = open_template("{% macro f(x) %}{{ x }}!{% endmacro %}{% for i in range(3) "
                                                       "%}{{ i }} {% endfor %}{{ f(messages[0].content) }}");
    pthread_t threads[4];
    void *result;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, template), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    ash_chat_template_close(template);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_folder),        cmocka_unit_test(test_members_of_lists),
        cmocka_unit_test(test_syntax_errors), cmocka_unit_test(test_run_errors),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
