/* What the page shows of a folder with days of ended processes: those that run, those that have just ended, and the
 * runs that are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "observe/page/recent.h"

#define NOW 1e9

static json_t *ranks(void)
{
    return json_pack("[{s:i, s:b, s:f, s:s}, {s:i, s:b, s:f, s:s}, {s:i, s:b, s:f, s:s}, {s:i, s:b}]", "rank", 0,
                     "alive", 0, "seen", NOW - 3600, "run_id", "old", "rank", 1, "alive", 0, "seen", NOW - 60, "run_id",
                     "new", "rank", 2, "alive", 1, "seen", NOW - 3600, "run_id", "old", "rank", 3, "alive", 0);
}

/* The numbers of those that are left, as text. */
static const char *left(json_t *list, char *buf)
{
    json_t *item;
    size_t i;

    buf[0] = '\0';
    json_array_foreach(list, i, item)
        sprintf(buf + strlen(buf), "%d", (int)json_integer_value(json_object_get(item, "rank")));
    json_decref(list);
    return buf;
}

static void test_ended(void **state)
{
    json_t *list = ranks();
    char buf[16];

    (void)state;
    ash_recent_keep(list, NOW);
    assert_string_equal(left(list, buf), "12");
}

static void test_named(void **state)
{
    const char *const names[] = {"new", "old"};
    json_t *list = ranks();
    char buf[16];

    (void)state;
    ash_recent_keep_runs(list, names, 0);
    ash_recent_keep_runs(list, names, 2);
    assert_string_equal(left(list, buf), "012");
    list = ranks();
    ash_recent_keep_runs(list, names, 1);
    assert_string_equal(left(list, buf), "1");
}

static void test_folder(void **state)
{
    char one[ASH_FOLDER_ID_BYTES], other[ASH_FOLDER_ID_BYTES];

    (void)state;
    assert_string_equal(ash_folder_id("/proc/self/../..", one), ash_folder_id("/", other));
    assert_true(strlen(one) > 36);
    assert_string_not_equal(one, ash_folder_id("/proc", other));
    assert_string_equal(ash_folder_id("/nothing/here", other), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ended), cmocka_unit_test(test_named),
                                       cmocka_unit_test(test_folder)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
