/* What only S3 has, against the server and bucket that S3_TEST_BUCKET names (tests/e2e/s3_world.sh starts one); without it
 * all tests are skipped. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/opts.h"
#include "storage/s3/s3_priv.h"

static struct ash_s3 *s3;

static void expect_ok(int rc, const struct ash_err *err)
{
    if (rc < 0) fail_msg("%d: %s", rc, err->text);
}

static int open_bucket(void **state)
{
    const struct ash_s3_opts opts = {.connections = 2, .part_bytes = 5 << 20, .retry_s = 5};
    const char *bucket = ash_env_get("S3_TEST_BUCKET");
    struct ash_err err = {0};

    (void)state;
    if (bucket != NULL) expect_ok(ash_s3_open(bucket, &opts, &s3, &err), &err);
    return 0;
}

static int close_bucket(void **state)
{
    (void)state;
    if (s3 != NULL) {
        ash_s3_remove(s3, "lease", NULL);
        ash_s3_remove(s3, "clock", NULL);
        ash_s3_remove(s3, "moving", NULL);
    }
    ash_s3_close(s3);
    s3 = NULL;
    return 0;
}

static void a_condition_lets_one_writer_win(void **state)
{
    const struct ash_s3_condition absent = {.wants_absent = true};
    struct ash_s3_condition same = {0};
    struct ash_s3_object object = {0};
    struct ash_err err = {0};

    (void)state;
    if (s3 == NULL) skip();
    expect_ok(ash_s3_remove(s3, "lease", &err), &err);
    expect_ok(ash_s3_write(s3, "lease", "one", 3, &absent, &err), &err);
    assert_int_equal(ash_s3_write(s3, "lease", "two", 3, &absent, &err), -EEXIST);
    expect_ok(ash_s3_stat(s3, "lease", &object, &err), &err);
    same.etag = object.etag;
    expect_ok(ash_s3_write(s3, "lease", "three", 5, &same, &err), &err);
    assert_int_equal(ash_s3_write(s3, "lease", "four", 4, &same, &err), -ESTALE);
}

static void a_wrong_clock_is_corrected_by_the_servers(void **state)
{
    struct ash_s3_object object = {0};
    struct ash_err err = {0};

    (void)state;
    if (s3 == NULL) skip();
    expect_ok(ash_s3_write(s3, "clock", "tick", 4, NULL, &err), &err);
    s3->skew_s = 86400;
    expect_ok(ash_s3_stat(s3, "clock", &object, &err), &err); /* HEAD: its refusal has no body */
    assert_true(fabs(s3->skew_s) < 60);
    s3->skew_s = -86400;
    expect_ok(ash_s3_write(s3, "clock", "tock", 4, NULL, &err), &err);
    assert_true(fabs(s3->skew_s) < 60);
}

static void another_version_between_ranges_is_noticed(void **state)
{
    struct ash_s3_object object = {0};
    struct ash_err err = {0};
    char data[3];

    (void)state;
    if (s3 == NULL) skip();
    expect_ok(ash_s3_write(s3, "moving", "abc", 3, NULL, &err), &err);
    expect_ok(ash_s3_stat(s3, "moving", &object, &err), &err);
    expect_ok(ash_s3_write(s3, "moving", "xyz", 3, NULL, &err), &err);
    assert_int_equal(ash_s3_read(s3, &(struct ash_s3_range){"moving", object.etag, 0, 3}, data, &err), -ESTALE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_condition_lets_one_writer_win),
        cmocka_unit_test(a_wrong_clock_is_corrected_by_the_servers),
        cmocka_unit_test(another_version_between_ranges_is_noticed),
    };

    return cmocka_run_group_tests(tests, open_bucket, close_bucket);
}
