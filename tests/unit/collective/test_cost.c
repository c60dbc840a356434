/* The cost model: the cheaper way is taken, lines are found again from points on them, and files are read and refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/cost.h"

static void test_choose(void **state)
{
    const struct ash_cost cost = {
        .ways = {{.latency_s = 1e-6, .bytes_per_s = 1e9}, {.latency_s = 3e-6, .bytes_per_s = 1e9}}};

    (void)state;
    assert_int_equal(ash_cost_choose(&cost, 2, 0), ASH_COST_AT_ONCE);
    assert_int_equal(ash_cost_choose(&cost, 2, 1999), ASH_COST_AT_ONCE); /* 1 us + 2 * 2000 ns against 3 us + 2000 ns */
    assert_int_equal(ash_cost_choose(&cost, 2, 2001), ASH_COST_SHARES);
    assert_int_equal(ash_cost_choose(&cost, 5, 501), ASH_COST_SHARES);
    assert_int_equal(ash_cost_choose(&ash_cost_default, 2, 100), ASH_COST_AT_ONCE);
    assert_int_equal(ash_cost_choose(&ash_cost_default, 2, 100000), ASH_COST_SHARES);
}

static void test_fit(void **state)
{
    double bytes[] = {100, 1000, 50000, 1000000}, seconds[4];
    struct ash_cost_line line;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        seconds[i] = 2e-6 + bytes[i] / 5e9;
    line = ash_cost_fit(bytes, seconds, 4);
    assert_true(line.latency_s > 1.999e-6 && line.latency_s < 2.001e-6);
    assert_true(line.bytes_per_s > 4.999e9 && line.bytes_per_s < 5.001e9);
    for (size_t i = 0; i < 4; i++) /* a line that would begin below nothing */
        seconds[i] = bytes[i] * bytes[i] / 1e15 + 1e-9;
    line = ash_cost_fit(bytes, seconds, 4);
    assert_true(line.latency_s >= 0 && line.bytes_per_s > 0);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_file(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"all_reduce\":{}}",
                                      "{\"all_reduce\":{\"at_once\":{\"latency_us\":1}}}",
                                      "{\"all_reduce\":{\"at_once\":{\"latency_us\":-1,\"gb_per_s\":2}}}",
                                      "{\"all_reduce\":{\"at_once\":{\"latency_us\":1,\"gb_per_s\":0}}}"};
    char path[] = "/tmp/ashlar-test-cost-XXXXXX";
    struct ash_cost cost = {0}, kept = {0};
    struct ash_err err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ash_cost_save(path, &ash_cost_default, &err), 0);
    assert_int_equal(ash_cost_load(path, &cost, &err), 0);
    for (int way = 0; way < ASH_COST_WAYS; way++) {
        double ratio = cost.ways[way].bytes_per_s / ash_cost_default.ways[way].bytes_per_s;

        assert_true(ratio > 0.999 && ratio < 1.001);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_text(path, bad[i]);
        assert_int_equal(ash_cost_load(path, &kept, &err), -EINVAL);
        assert_non_null(strstr(err.text, path));
        assert_true(kept.ways[0].bytes_per_s == 0); /* untouched */
    }
    unlink(path);
    assert_int_equal(ash_cost_load(path, &kept, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choose), cmocka_unit_test(test_fit),
                                       cmocka_unit_test(test_file)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
