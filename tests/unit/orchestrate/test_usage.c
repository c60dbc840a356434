/* What accounting says of jobs: sacct's lines, pods, and moments as people write them. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/json.h"
#include "orchestrate/kubernetes/usage.h"
#include "orchestrate/slurm/usage.h"

#define B ASH_SLURM_USAGE_BREAK

static void test_slurm(void **state)
{
    struct ash_usage_list list = {0};
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(
        ash_slurm_read_usage("7" B "a|b" B "ann" B "research" B "1000" B "4600" B "2" B
                             "billing=8,cpu=8,gres/gpu:h200=16,gres/gpu=16,node=2" B "ashlar price=55.04 out=/r/a b\n"
                             "8_3" B "x" B "bob" B "serving" B "Unknown" B "Unknown" B "1" B "" B "\n"
                             "8_4" B "x" B "bob" B "serving" B "3000" B "Unknown" B "1" B "cpu=1" B "ashlar out=/r\n"
                             "9" B "x" B "bob" B "serving" B "9000" B "9100" B "1" B "gres/gpufs=7" B "mine\n",
                             2000, 5000, &list, &err),
        0);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.entries[0].name, "a|b");
    assert_string_equal(list.entries[0].team, "research");
    assert_string_equal(list.entries[0].out, "/r/a b");
    assert_true(list.entries[0].start_s == 2000 && list.entries[0].end_s == 4600);
    assert_true(list.entries[0].nodes == 2 && list.entries[0].gpus == 16 && list.entries[0].price == 55.04);
    assert_string_equal(list.entries[1].out, "/r/task-4");
    assert_true(list.entries[1].end_s == 5000 && list.entries[1].gpus == 0 && list.entries[1].price == 0);
    ash_usage_free(&list);
    assert_int_equal(ash_slurm_read_usage("no accounting\n", 0, 1, &list, &err), -EINVAL);
    ash_usage_free(&list);
}

static void test_pods(void **state)
{
    static const char text[] =
        "[{\"metadata\": {\"namespace\": \"lab\", \"labels\": {\"app.kubernetes.io/instance\": \"big\"}, "
        "\"annotations\": {\"ashlar.dev/user\": \"ann\", \"ashlar.dev/out\": \"/r\", \"ashlar.dev/price\": \"50\"}}, "
        "\"spec\": {\"containers\": [{\"resources\": {\"limits\": {\"nvidia.com/gpu\": \"8\"}}}]}, "
        "\"status\": {\"phase\": \"Succeeded\", \"startTime\": \"1970-01-01T01:00:00Z\", \"containerStatuses\": "
        "[{\"state\": {\"terminated\": {\"finishedAt\": \"1970-01-01T02:00:00Z\"}}}]}},"
        "{\"metadata\": {\"namespace\": \"lab\", \"labels\": {\"app.kubernetes.io/instance\": \"big\"}, "
        "\"annotations\": {\"ashlar.dev/team\": \"research\"}}, "
        "\"status\": {\"phase\": \"Running\", \"startTime\": \"1970-01-01T02:30:00Z\"}},"
        "{\"metadata\": {\"labels\": {\"app.kubernetes.io/instance\": \"big\"}}, \"status\": {\"phase\": "
        "\"Pending\"}}]";
    struct ash_usage_list list = {0};
    struct ash_err err = {0};
    json_t *pods = NULL;
    (void)state;

    assert_int_equal(ash_json_parse(text, strlen(text), "pods", &pods, &err), 0);
    assert_int_equal(ash_kube_read_usage(pods, 0, 10800, &list), 0);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.entries[0].id, "big");
    assert_string_equal(list.entries[0].user, "ann");
    assert_string_equal(list.entries[0].team, "lab");
    assert_true(list.entries[0].end_s - list.entries[0].start_s == 3600);
    assert_true(list.entries[0].gpus == 8 && list.entries[0].price == 50);
    assert_string_equal(list.entries[1].team, "research");
    assert_true(list.entries[1].end_s == 10800);
    ash_usage_free(&list);
    json_decref(pods);
}

static void test_times(void **state)
{
    static const char *const bad[] = {"yesterday", "", "2026-13-01", "12:30", "2026-11-01T", "7 days"};
    double moment = 0.0;
    (void)state;

    setenv("TZ", "UTC", 1);
    tzset();
    assert_int_equal(ash_usage_parse_time("1970-01-02T01:00", 2e9, &moment), 0);
    assert_true(moment == 90000.0);
    assert_int_equal(ash_usage_parse_time("1970-01-03", 2e9, &moment), 0);
    assert_true(moment == 172800.0);
    assert_int_equal(ash_usage_parse_time("7d", 1e6, &moment), 0);
    assert_true(moment == 1e6 - 7 * 86400.0);
    assert_int_equal(ash_usage_parse_time("now", 5.0, &moment), 0);
    assert_true(moment == 5.0);
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        assert_int_equal(ash_usage_parse_time(bad[i], 2e9, &moment), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_pods),
        cmocka_unit_test(test_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
