/* Tasks: keys, templates, choices, examples, filters and metrics, with values that lm-evaluation-harness gives. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "post/eval/filter.h"
#include "post/eval/task.h"

static struct ash_task *open_task(const char *yaml)
{
    struct ash_task *task = NULL;
    struct ash_err err = {0};

    if (ash_task_parse(yaml, "t.yaml", &task, &err) < 0) fail_msg("%s", err.text);
    return task;
}

static void refuses(const char *yaml, int code, const char *what)
{
    struct ash_task *task = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_task_parse(yaml, "t.yaml", &task, &err), code);
    if (strstr(err.text, what) == NULL) fail_msg("'%s' does not say '%s'", err.text, what);
}

#define CHOICE "task: t\noutput_type: multiple_choice\ndoc_to_choice: \"{{choices.text}}\"\ndoc_to_target: answer\n"

static void test_what_is_not_supported_is_named(void **state)
{
    (void)state;
    refuses("task: t\ndoc_to_text: !function utils.make\ndoc_to_target: x\n", -ENOTSUP, "!function utils.make");
    refuses("task: t\noutput_type: winograd\ndoc_to_target: x\n", -ENOTSUP, "winograd");
    refuses("task: t\ndoc_to_target: x\nmetric_list:\n  - metric: bleu\n", -ENOTSUP, "bleu");
    refuses("task: t\ndoc_to_target: x\nfilter_list:\n  - name: a\n    filter:\n      - function: magic\n", -ENOTSUP,
            "magic");
    refuses("task: t\ndoc_to_target: x\nfilter_list:\n  - name: a\n    filter:\n      - function: regex\n"
            "        regex_pattern: '(a'\n",
            -EINVAL, "regular expression");
    refuses("doc_to_target: x\n", -EINVAL, "task");
    refuses("task: t\n", -EINVAL, "doc_to_target");
    refuses("- a\n", -EINVAL, "mapping");
}

static void test_documents_become_texts_and_choices(void **state)
{
    struct ash_task *task = open_task(CHOICE "doc_to_text: \"{% if q %}\\nQ: {{q}}\\n{% endif %}A:\\n\"\n");
    json_t *doc = json_pack("{s:s, s:{s:[s, s]}, s:s}", "q", "2+2", "choices", "text", "it's 4", "five", "answer", "1");
    struct ash_task_item item = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_task_item_init(task, doc, &item, &err), 0);
    assert_string_equal(item.text, "\nQ: 2+2\nA:\n"); /* as Jinja is by itself: no line end is dropped */
    assert_int_equal(json_array_size(item.choices), 2);
    assert_string_equal(json_string_value(json_array_get(item.choices, 0)), "it's 4");
    assert_int_equal(item.gold, 1);
    ash_task_item_fini(&item);
    json_object_set_new(doc, "answer", json_string("7"));
    assert_int_equal(ash_task_item_init(task, doc, &item, &err), -EINVAL);
    json_decref(doc);
    ash_task_close(task);
}

static void test_examples_come_before_and_never_the_document_itself(void **state)
{
    struct ash_task *task = open_task("task: t\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: a\n"
                                      "description: 'Do. '\nnum_fewshot: 2\nfewshot_config: {sampler: first_n}\n");
    json_t *docs =
        json_pack("[{s:s, s:i}, {s:s, s:i}, {s:s, s:i}]", "q", "x", "a", 1, "q", "y", "a", 2, "q", "z", "a", 3);
    struct ash_str context = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_task_context(task, docs, docs, 0, &context, &err), 0);
    assert_string_equal(context.data, "Do. y 2\n\nz 3\n\nx");
    task->takes_first_examples = false;
    ash_str_clear(&context);
    assert_int_equal(ash_task_context(task, docs, docs, 1, &context, &err), 0);
    assert_null(strstr(context.data, "y 2"));
    task->fewshot = 3;
    assert_int_equal(ash_task_context(task, docs, docs, 1, &context, &err), -EINVAL);
    ash_str_fini(&context);
    json_decref(docs);
    ash_task_close(task);
}

static void filtered(const char *json_text, const char *wanted, char *const *texts, size_t count)
{
    json_t *json = json_loads(json_text, 0, NULL);
    struct ash_filter *filter = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};

    if (ash_filter_open(json, &filter, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_filter_apply(filter, texts, count, &text), 0);
    assert_string_equal(text.data, wanted);
    ash_str_fini(&text);
    ash_filter_close(filter);
    json_decref(json);
}

/* Values of the harness's own filters. */
static void test_filters(void **state)
{
    char a[] = "so 12 and #### 1,234 ", b[] = "7 #### 7", c[] = "it is 7";
    char *const texts[] = {a, b, c};

    (void)state;
    filtered("{\"name\":\"x\",\"filter\":[{\"function\":\"regex\"}]}", "1,234", texts, 1);
    filtered(
        "{\"filter\":[{\"function\":\"regex\",\"regex_pattern\":\"(-?[$0-9.,]{2,})|(-?[0-9]+)\",\"group_select\":-1}]}",
        "1,234", texts, 1);
    filtered("{\"filter\":[{\"function\":\"regex\",\"regex_pattern\":\"(-?[$0-9.,]{2,})|(-?[0-9]+)\"}]}", "12", texts,
             1);
    filtered("{\"filter\":[{\"function\":\"regex\",\"regex_pattern\":\"no ([a-z])\"}]}", "[invalid]", texts, 1);
    filtered("{\"filter\":[{\"function\":\"regex\",\"regex_pattern\":\"([0-9]+)$|is ([0-9]+)\"},"
             "{\"function\":\"majority_vote\"},{\"function\":\"take_first\"}]}",
             "7", texts, 3);
    filtered("{\"filter\":[{\"function\":\"take_first_k\",\"k\":2},{\"function\":\"uppercase\"}]}",
             "SO 12 AND #### 1,234 ", texts, 3);
    filtered("{\"filter\":[{\"function\":\"regex\",\"regex_pattern\":\"x*\"}]}", "", texts, 1);
}

static double result_of(const char *yaml, const char *text, const json_t *doc, const char *key)
{
    struct ash_task *task = open_task(yaml);
    struct ash_task_item item = {0};
    char *copy = strdup(text);
    struct ash_task_answer answer = {.item = &item, .texts = &copy};
    struct ash_err err = {0};
    json_t *results = NULL;
    double value;

    assert_int_equal(ash_task_item_init(task, doc, &item, &err), 0);
    assert_int_equal(ash_task_score(task, &answer, 1, &results, &err), 0);
    assert_non_null(json_object_get(results, key));
    value = json_number_value(json_object_get(results, key));
    json_decref(results);
    ash_task_item_fini(&item);
    ash_task_close(task);
    free(copy);
    return value;
}

static void test_exact_match(void **state)
{
    json_t *doc = json_pack("{s:s, s:[s, s]}", "a", "The 42.", "many", "x", "y");

    (void)state;
    assert_true(result_of("task: t\ndoc_to_text: a\ndoc_to_target: a\n", "The 42.", doc, "exact_match,none") > 0.5);
    assert_true(result_of("task: t\ndoc_to_text: a\ndoc_to_target: a\n", "the 42", doc, "exact_match,none") < 0.5);
    assert_true(result_of("task: t\ndoc_to_text: a\ndoc_to_target: a\nmetric_list:\n  - metric: exact_match\n"
                          "    ignore_case: true\n    ignore_punctuation: true\n    regexes_to_ignore: ['^the ']\n",
                          "the 42", doc, "exact_match,none") < 0.5); /* The is not ^the */
    assert_true(result_of("task: t\ndoc_to_text: a\ndoc_to_target: a\nmetric_list:\n  - metric: exact_match\n"
                          "    ignore_case: true\n    ignore_punctuation: true\n    regexes_to_ignore: ['(?i)^the ']\n",
                          "42", doc, "exact_match,none") > 0.5);
    assert_true(result_of("task: t\ndoc_to_text: a\ndoc_to_target: many\n", "y", doc, "exact_match,none") > 0.5);
    json_decref(doc);
}

static void test_choices_are_compared_by_characters_too(void **state)
{
    struct ash_task *task = open_task("task: t\noutput_type: multiple_choice\ndoc_to_text: q\n"
                                      "doc_to_choice: ['a', 'aaaa', 'äöü']\ndoc_to_target: 1\n");
    double likelihoods[] = {-2.0, -4.0, -3.1}, wrong[] = {-1.0, -8.0, -9.0};
    json_t *doc = json_pack("{s:s}", "q", "?"), *results = NULL;
    struct ash_task_item item = {0};
    struct ash_err err = {0};
    const struct ash_task_answer answers[] = {{.item = &item, .loglikelihoods = likelihoods},
                                              {.item = &item, .loglikelihoods = wrong}};

    (void)state;
    assert_int_equal(ash_task_item_init(task, doc, &item, &err), 0);
    assert_int_equal(ash_task_score(task, answers, 2, &results, &err), 0);
    assert_true(json_number_value(json_object_get(results, "acc,none")) < 0.1);
    assert_true(fabs(json_number_value(json_object_get(results, "acc_norm,none")) - 0.5) < 1e-12);
    assert_true(fabs(json_number_value(json_object_get(results, "acc_norm_stderr,none")) - 0.5) < 1e-12);
    json_decref(results);
    json_decref(doc);
    ash_task_item_fini(&item);
    ash_task_close(task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_supported_is_named),
        cmocka_unit_test(test_documents_become_texts_and_choices),
        cmocka_unit_test(test_examples_come_before_and_never_the_document_itself),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_exact_match),
        cmocka_unit_test(test_choices_are_compared_by_characters_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
