/* flight: what differs, who is missing and who ended is found from the rings that ranks leave. */
#include "observe/flight/flight.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "observe/ranks/run_id.h"
#include "observe/trace/trace.h"

#define RANKS 4

static char dir[64];
static struct ash_ring_file *rings[RANKS];

/* Ranks of a job of one run. */
static void begin_job(void)
{
    snprintf(dir, sizeof(dir), "/tmp/ashlar-flight-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (size_t r = 0; r < RANKS; r++) {
        char labels[64];
        struct ash_ring_opts opts = {.dir = dir,
                                     .kind = ASH_FLIGHT_KIND,
                                     .labels = labels,
                                     .record_bytes = sizeof(struct ash_flight_call),
                                     .capacity = 16};

        snprintf(labels, sizeof(labels), "job=\"7\",rank=\"%zu\",run_id=\"%s\"", r, r < 2 ? "a" : "b");
        assert_int_equal(ash_ring_open(&opts, &rings[r], NULL), 0);
    }
}

/* A call of one rank; ended: whether it has. */
static void call(size_t rank, uint64_t sequence, enum ash_flight_op op, uint64_t bytes, bool has_ended)
{
    uint64_t start_ns = ash_clock_ns() - 5000000000u + sequence * 1000;
    struct ash_flight_call record = {.group = 99,
                                     .name = "dp",
                                     .sequence = sequence,
                                     .dtype = "f32",
                                     .op = (uint16_t)op,
                                     .peer = UINT32_MAX,
                                     .rank = (uint32_t)rank,
                                     .size = RANKS,
                                     .bytes = bytes,
                                     .start_ns = start_ns,
                                     .end_ns = has_ended ? start_ns + 500 : 0};

    ash_ring_add(rings[rank], &record);
}

static void calls(uint64_t first, uint64_t last)
{
    for (uint64_t sequence = first; sequence <= last; sequence++)
        for (size_t r = 0; r < RANKS; r++)
            call(r, sequence, ASH_FLIGHT_ALL_REDUCE, 4096, true);
}

static void end_job(struct ash_flight_set *set, struct ash_flight_report *report)
{
    ash_flight_report_fini(report);
    ash_flight_set_fini(set);
    for (size_t r = 0; r < RANKS; r++)
        ash_ring_close(rings[r], false);
    ash_dir_remove(dir, NULL);
}

static void load(struct ash_flight_set *set, struct ash_flight_report *report)
{
    assert_int_equal(ash_flight_set_load(set, dir, NULL, NULL, NULL), 0);
    assert_int_equal(set->count, RANKS);
    assert_int_equal(ash_flight_compare(set, report), 0);
}

static void test_equal_calls(void **state)
{
    struct ash_flight_set set;
    struct ash_flight_report report;
    (void)state;

    begin_job();
    calls(1, 40); /* more than the rings hold */
    call(0, 41, ASH_FLIGHT_ALL_REDUCE, 4096, true);
    load(&set, &report);
    assert_int_equal(report.count, 0);
    assert_int_equal(report.groups, 1);
    end_job(&set, &report);
}

static void test_another_call(void **state)
{
    struct ash_flight_set set;
    struct ash_flight_report report;
    (void)state;

    begin_job();
    calls(1, 4);
    for (size_t r = 0; r < RANKS; r++)
        call(r, 5, r == 2 ? ASH_FLIGHT_ALL_GATHER : ASH_FLIGHT_ALL_REDUCE, 4096, false);
    load(&set, &report);
    assert_int_equal(report.count, 1);
    assert_int_equal(report.findings[0].fault, ASH_FLIGHT_DIFFERS);
    assert_int_equal(report.findings[0].sequence, 5);
    assert_int_equal(report.findings[0].named_count, 1);
    assert_int_equal(report.findings[0].named[0], 2);
    assert_int_equal(report.findings[0].other->op, ASH_FLIGHT_ALL_GATHER);
    end_job(&set, &report);
}

static void test_missing_rank(void **state)
{
    struct ash_flight_set set;
    struct ash_flight_report report;
    (void)state;

    begin_job();
    calls(1, 6);
    for (size_t r = 0; r < RANKS; r++)
        if (r != 3) call(r, 7, ASH_FLIGHT_BARRIER, 0, false);
    load(&set, &report);
    assert_int_equal(report.count, 1);
    assert_int_equal(report.findings[0].fault, ASH_FLIGHT_MISSING);
    assert_int_equal(report.findings[0].sequence, 7);
    assert_int_equal(report.findings[0].named[0], 3);
    assert_true(report.findings[0].since_s > 3 && report.findings[0].first_waiter < 3);
    end_job(&set, &report);
}

/* A stopped rank is inside the call like all others: the network is not to blame. e2e_diagnose stops a real one. */
static void test_stopped_rank(void **state)
{
    struct ash_flight_set set;
    struct ash_flight_report report;
    (void)state;

    begin_job();
    calls(1, 3);
    for (size_t r = 0; r < RANKS; r++)
        call(r, 4, ASH_FLIGHT_ALL_REDUCE, 64, false);
    load(&set, &report);
    assert_int_equal(report.count, 1);
    assert_int_equal(report.findings[0].fault, ASH_FLIGHT_SLOW);
    ash_flight_report_fini(&report);
    assert_false(set.ranks[1].is_stopped);
    set.ranks[1].is_stopped = true;
    assert_int_equal(ash_flight_compare(&set, &report), 0);
    assert_int_equal(report.count, 1);
    assert_int_equal(report.findings[0].fault, ASH_FLIGHT_STOPPED);
    assert_int_equal(report.findings[0].named_count, 1);
    assert_int_equal(report.findings[0].named[0], 1);
    end_job(&set, &report);
}

static void test_rank_that_ended(void **state)
{
    struct ash_flight_set set;
    struct ash_flight_report report;
    (void)state;

    begin_job();
    calls(1, 3);
    for (size_t r = 0; r < RANKS; r++)
        call(r, 4, ASH_FLIGHT_ALL_REDUCE, 64, r != 1);
    ash_ring_close(rings[1], true); /* its lock is gone, the file stays */
    rings[1] = NULL;
    load(&set, &report);
    assert_int_equal(report.count, 1);
    assert_int_equal(report.findings[0].fault, ASH_FLIGHT_ENDED);
    assert_int_equal(report.findings[0].named[0], 1);
    end_job(&set, &report);
}

static void test_nothing_there(void **state)
{
    struct ash_flight_set set = {0};
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_flight_set_load(&set, "/tmp/ashlar-no-such-folder", NULL, NULL, &err), -ENOENT);
    begin_job();
    assert_int_equal(ash_flight_set_load(&set, dir, "8", NULL, &err), -ENOENT);
    assert_non_null(strstr(err.text, "job 8"));
    for (size_t r = 0; r < RANKS; r++)
        ash_ring_close(rings[r], false);
    assert_int_equal(rmdir(dir), 0);
}

/* Jobs without a number have the same one: only a run's own recorders are its. */
static void test_one_run(void **state)
{
    struct ash_flight_set set = {0};
    struct ash_flight_report report = {0};
    (void)state;

    begin_job();
    call(0, 1, ASH_FLIGHT_ALL_REDUCE, 64, true);
    assert_int_equal(ash_flight_set_load(&set, dir, "7", "c", NULL), -ENOENT);
    assert_int_equal(ash_flight_set_load(&set, dir, NULL, "b", NULL), 0);
    assert_int_equal(set.count, RANKS - 2);
    assert_int_equal(set.ranks[0].rank, 2);
    end_job(&set, &report);
}

/* However a folder is written, before it is made and after. */
static void test_run_ids(void **state)
{
    static const char *const same[] = {"%s/runs/new", "%s//runs/new/", "%s/./runs/../runs/new"};
    char first[ASH_RUN_ID_BYTES], id[ASH_RUN_ID_BYTES], path[256];
    (void)state;

    snprintf(dir, sizeof(dir), "/tmp/ashlar-flight-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/runs/new", dir);
    ash_run_id(path, first);
    for (int made = 0; made < 2; made++) {
        for (size_t i = 0; i < 3 - (size_t)!made; i++) { /* what is missing has no parent to go up to */
            snprintf(path, sizeof(path), same[i], dir);
            assert_string_equal(ash_run_id(path, id), first);
        }
        snprintf(path, sizeof(path), "%s/runs/other", dir);
        assert_string_not_equal(ash_run_id(path, id), first);
        snprintf(path, sizeof(path), "%s/runs/new", dir);
        assert_int_equal(ash_dir_make(path, NULL), 0);
    }
    assert_int_equal(chdir(path), 0);
    assert_string_equal(ash_run_id(".", id), first);
    assert_string_equal(ash_run_id("../new", id), first);
    assert_int_equal(chdir(".."), 0);
    assert_string_equal(ash_run_id("new", id), first);
    ash_run_id("newer", id);
    assert_int_equal(chdir("/"), 0);
    snprintf(path, sizeof(path), "%s/runs/newer", dir);
    assert_string_equal(ash_run_id(path, first), id);
    assert_int_equal(ash_dir_remove(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_calls),  cmocka_unit_test(test_another_call),
        cmocka_unit_test(test_missing_rank), cmocka_unit_test(test_rank_that_ended),
        cmocka_unit_test(test_stopped_rank), cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_one_run),      cmocka_unit_test(test_run_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
