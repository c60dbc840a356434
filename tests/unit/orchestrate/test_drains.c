/* drains: who is out, who was taken out within the hour, and what the budget allows. */
#include "orchestrate/budget/drains.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct ash_drains parse(const char *text, const char *own, double now_s)
{
    struct ash_drains drains = {0};

    assert_int_equal(ash_drains_parse(text, strlen(text), own, now_s, &drains), 0);
    return drains;
}

static void test_lines_are_counted_by_node(void **state)
{
    const char *text =
        "1000 out a\n1100 back a\n9000 out b\n9100 back b\n9200 out b\nrubbish\n9300 lost c\n\n2000 out d\n"
        "9400 out own\n9500 out cut";
    struct ash_drains drains = parse(text, "own", 10000);

    (void)state;
    assert_int_equal(drains.out, 3);  /* b, d, cut */
    assert_int_equal(drains.hour, 2); /* b, cut; a and d went out long ago */
    assert_int_equal(parse("", "own", 10000).out, 0);
    assert_int_equal(parse(text, "own", 20000).hour, 0);
}

/* Two of four may be out, and go out in an hour. */
static void test_the_budget_holds(void **state)
{
    char path[] = "/tmp/ashlar-drains-XXXXXX";
    struct ash_drains_budget budget = {.path = path, .nodes = 4, .share_max = 0.5, .seconds = 60};
    struct ash_err err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ash_drains_claim(&budget, "a", 100, &err), 0);
    assert_int_equal(ash_drains_claim(&budget, "a", 200, &err), 0); /* it is the same node */
    assert_int_equal(ash_drains_claim(&budget, "b", 300, &err), 0);
    assert_int_equal(ash_drains_claim(&budget, "c", 400, &err), -EBUSY);
    assert_non_null(strstr(err.text, "2 of 4 nodes are out already"));
    assert_int_equal(ash_drains_return(&budget, "a", 500, &err), 0);
    assert_int_equal(ash_drains_claim(&budget, "c", 600, &err), -EBUSY);
    assert_non_null(strstr(err.text, "taken out in the last hour"));
    assert_int_equal(ash_drains_claim(&budget, "c", 3900, &err), 0); /* a's drain is older than an hour */
    budget.is_counted = true;
    assert_int_equal(ash_drains_claim(&budget, "d", 3900 + 3600, &err), 0); /* Slurm has counted who is out */
    unlink(path);
    budget.path = "/nonexistent/drains";
    assert_int_equal(ash_drains_claim(&budget, "a", 100, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_counted_by_node),
        cmocka_unit_test(test_the_budget_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
