/* Measurements below the commands: planted bits are found in products and memory of devices, calls of collectives are
 * right and take time on three ranks, and what is measured together is judged on the first rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "harness/group_ranks.h"
#include "probe/cluster.h"
#include "probe/collective.h"
#include "probe/device.h"
#include "probe/stream_copy.h"

static enum ash_check_grade grade_of(const struct ash_check_report *report, const char *name)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->results[i].name, name) == 0) return report->results[i].grade;
    return ASH_GRADE_SKIPPED;
}

static void test_device(void **state)
{
    const struct ash_check_opts opts = {.deep_seconds = 0.01, .fault_core = -1};
    const struct ash_device_check sound = {&opts, NULL, -1}, faulty = {&opts, NULL, 0};
    static struct ash_check_report good, bad, none;

    (void)state;
    ash_probe_devices(&sound, "apart", &good);
    assert_int_equal(grade_of(&good, "device products"), ASH_GRADE_GOOD);
    assert_int_equal(grade_of(&good, "device memory"), ASH_GRADE_GOOD);
    ash_probe_devices(&faulty, "apart", &bad);
    assert_int_equal(grade_of(&bad, "device products"), ASH_GRADE_BAD);
    assert_int_equal(grade_of(&bad, "device memory"), ASH_GRADE_BAD);
    ash_probe_devices(&sound, "none", &none);
    assert_int_equal(none.count, 0);
    ash_probe_devices(&sound, "no such backend", &none);
    assert_int_equal(ash_check_worst(&none), ASH_GRADE_BAD);
}

static void test_copy(void **state)
{
    char *from = aligned_alloc(64, 8192), *to = aligned_alloc(64, 8192);

    (void)state;
    for (size_t i = 0; i < 8192; i++)
        from[i] = (char)ash_rng_u64(11, 0, i);
    for (int round = 0; round < 50; round++) {
        size_t count = ash_rng_below(11, 1, (uint64_t)round, 8000);

        memset(to, 0x5a, 8192);
        ash_stream_copy(to, from, count);
        assert_memory_equal(to, from, count);
        for (size_t i = count; i < 8192; i++)
            assert_int_equal(to[i], 0x5a);
    }
    free(from);
    free(to);
}

static int measure_calls(struct ash_group *group, struct shared *shared, const void *arg)
{
    struct ash_err err = {0};

    (void)shared, (void)arg;
    for (enum ash_probe_call call = ASH_PROBE_ALL_REDUCE; call <= ASH_PROBE_COPY; call++) {
        struct ash_collective_probe probe = {
            .group = group, .call = call, .dtype = ASH_COLL_F32, .rounds = 1, .bytes = 12 << 10};
        uint64_t wrong = 1;
        double seconds = 0;
        int rc = ash_collective_probe_init(&probe, probe.bytes, call == ASH_PROBE_ALL_REDUCE, &err);

        if (rc == 0) rc = ash_collective_probe_check(&probe, &wrong, &err);
        if (rc == 0) rc = ash_collective_probe_time(&probe, &seconds, &err);
        if (rc == 0 && call == ASH_PROBE_ALL_REDUCE && ash_collective_probe_bus_factor(&probe) != 4.0 / 3.0) rc = 1;
        ash_collective_probe_fini(&probe);
        if (rc != 0 || wrong != 0 || seconds <= 0) {
            fprintf(stderr, "%s: %d, %s\n", ash_probe_call_name(call), rc, err.text);
            return 1;
        }
    }
    return 0;
}

static void test_collective(void **state)
{
    const struct job job = {.size = 3, .silent_s = 60, .call_s = 60, .run = measure_calls};
    struct shared *shared = start(&job);

    (void)state;
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    end(shared);
}

/* The last node lacks a GPU: the first says so, and all return 1. */
static int measure_cluster(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t last = ash_group_size(group) - 1;
    const struct ash_check_opts node = {.source = {.root = "/nowhere"},
                                        .kernel_log = "/dev/null",
                                        .gpus = ash_group_rank(group) == last ? 1 : -1,
                                        .fault_core = -1};
    const struct ash_cluster_check check = {.node = &node, .slow_share = 0, .links_way = ASH_LINKS_PAIRS};
    struct ash_cluster_probe probe = {0};
    struct ash_err err = {0};
    int rc = ash_cluster_probe_init(&probe, &check, group, &err), bad = 0;

    (void)shared, (void)arg;
    if (rc == 0) rc = ash_cluster_probe_run(&probe, &err);
    if (rc != 1) bad = fprintf(stderr, "rank %zu: %d, %s\n", probe.rank, rc, err.text);
    if (bad == 0 && probe.rank == 0) {
        bad = probe.report->count == 0 || ash_cluster_links_measured(&probe.links) != 6;
        for (size_t i = 0; i < probe.report->count; i++)
            bad |= probe.report->findings[i].node != last;
        for (size_t i = 0; i < probe.size; i++)
            bad |= ash_cluster_probe_least_rate(&probe, i) <= 0;
    }
    ash_cluster_probe_fini(&probe);
    return bad != 0;
}

static void test_cluster(void **state)
{
    const struct job job = {.size = 3, .silent_s = 60, .call_s = 60, .run = measure_cluster};
    struct shared *shared = start(&job);

    (void)state;
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    end(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_device), cmocka_unit_test(test_copy),
                                       cmocka_unit_test(test_collective), cmocka_unit_test(test_cluster)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
