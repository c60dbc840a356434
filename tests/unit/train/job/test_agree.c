/* Ranks that must have the same lines: equal ones pass, and every rank gets the same sentence about the first that
 * differs. */
#include "unit/train/tiny.h"

#include "train/job/agree.h"
#include "harness/group_ranks.h"

/* What the ranks have, and what each must hear ("": they agree). */
struct plan {
    const char *lines[4];
    const char *says;
};

static int compare(struct ash_group *group, struct shared *shared, const void *arg)
{
    const struct plan *plan = arg;
    size_t rank = ash_group_rank(group);
    struct ash_str lines = {0};
    struct ash_err err = {0};
    int rc;

    (void)shared;
    ash_str_adds(&lines, plan->lines[rank]);
    rc = ash_agree_check(group, &lines, &err);
    ash_str_fini(&lines);
    if (plan->says[0] == '\0') return rc != 0;
    if (rc != -EBADE) return 2;
    if (strstr(err.text, plan->says) != NULL) return 0;
    fprintf(stderr, "'%s' does not say '%s'\n", err.text, plan->says);
    return 3;
}

static void expect(const struct plan *plan, size_t size)
{
    struct job job = {.size = size, .silent_s = 10, .call_s = 10, .run = compare, .arg = plan};

    assert_int_equal(run_job(&job), 0);
}

static void test_equal_lines_agree(void **state)
{
    (void)state;
    expect(&(struct plan){{"a 1\nb 2\n", "a 1\nb 2\n", "a 1\nb 2\n"}, ""}, 3);
}

static void test_the_first_difference_is_named(void **state)
{
    (void)state;
    expect(&(struct plan){{"a 1\nb 2\n", "a 1\nb 2\n", "a 1\nb 3\n"}, "jobs: b is 2 on rank 0 ("}, 3);
    expect(&(struct plan){{"a 1\nb 2\n", "a 1\nb 2\n", "a 1\nb 3\n"}, ") and 3 on rank 2 ("}, 3);
    expect(&(struct plan){{"a 1\nb 2\n", "a 4\nb 3\n"}, "), b 2 and 3"}, 2);
    expect(&(struct plan){{"a 1\n", "a 2\n", "a 3\n", "a 1\n"}, "; 2 ranks differ from rank 0"}, 4);
}

/* Other versions have other lines: that is no reason to read beyond them. */
static void test_texts_of_other_forms_differ(void **state)
{
    (void)state;
    expect(&(struct plan){{"a 1\n", "a 1\nb 2\n"}, "their versions are not the same"}, 2);
    expect(&(struct plan){{"a 1\n", "nonsense"}, "their versions are not the same"}, 2);
}

static void test_settings_of_a_process_are_left_out(void **state)
{
    struct tiny one, other;
    struct ash_str lines[2] = {{0}, {0}};

    (void)state;
    tiny_open(&one, NULL);
    tiny_open(&other, SETTINGS("runtime.threads=1", "runtime.pin=off"));
    assert_int_equal(ash_agree_add_job(&lines[0], &one.job), 0);
    assert_int_equal(ash_agree_add_job(&lines[1], &other.job), 0);
    assert_string_equal(lines[0].data, lines[1].data);
    assert_non_null(strstr(lines[0].data, "\ntrain.save_every 0\n"));
    assert_non_null(strstr(lines[0].data, "\nmesh.tp 1\n"));
    assert_null(strstr(lines[0].data, "runtime."));
    assert_null(strstr(lines[0].data, "data.train"));
    ash_str_fini(&lines[0]);
    ash_str_fini(&lines[1]);
    tiny_close(&one);
    tiny_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_lines_agree),
        cmocka_unit_test(test_the_first_difference_is_named),
        cmocka_unit_test(test_texts_of_other_forms_differ),
        cmocka_unit_test(test_settings_of_a_process_are_left_out),
    };
    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}
