/* The supervisor with shells as ranks: lost ones that come back, failures that repeat, joiners that wait in vain. */
#include "orchestrate/node/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "orchestrate/node/ends.h"

struct fixture {
    char dir[64];
    struct ash_supervisor supervisor;
    char *words[5];
};

static uint64_t no_progress(void *ctx)
{
    (void)ctx;
    return 40;
}

static uint64_t same_epoch(void *ctx)
{
    (void)ctx;
    return 1;
}

/* Two ranks that run a script in whose $0 is the job's folder. has_met: they have met already. */
static void start(struct fixture *fixture, const char *script, bool has_met)
{
    char path[128];

    strcpy(fixture->dir, "/tmp/ashlar-supervisor-XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    snprintf(path, sizeof(path), "%s/contacts", fixture->dir);
    if (has_met) assert_int_equal(ash_file_replace(path, "", 0, NULL), 0);
    fixture->words[0] = (char *)"sh";
    fixture->words[1] = (char *)"-c";
    fixture->words[2] = (char *)script;
    fixture->words[3] = fixture->dir;
    fixture->words[4] = NULL;
    fixture->supervisor = (struct ash_supervisor){
        .job = {.world = 2, .per_node = 2, .master = "127.0.0.1", .port = 1, .program = "sh", .argv = fixture->words},
        .count = 2,
        .grace_s = 0.1,
        .least = 1,
        .restarts = 2,
        .job_dir = fixture->dir};
}

static int supervise(struct fixture *fixture)
{
    struct ash_err err = {0};
    int code = ash_supervise(&fixture->supervisor, &err);

    ash_dir_remove(fixture->dir, NULL);
    return code;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_before_they_have_met_nobody_goes_on(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture, "[ $RANK = 1 ] && exit 7; exec sleep 600", false);
    fixture.supervisor.restarts = 0;
    assert_int_equal(supervise(&fixture), 7);
}

/* One fails before they have met, and the other ends well within the grace: that is no good end. */
static void test_a_good_end_of_some_is_none_of_the_job(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture, "[ $RANK = 1 ] && { touch $0/failed; exit 7; }; until [ -e $0/failed ]; do sleep 0.01; done",
          false);
    fixture.supervisor.restarts = 0;
    fixture.supervisor.grace_s = 60;
    assert_int_equal(supervise(&fixture), 7);
}

/* The last one is killed when the other has ended well: the job was done. */
static void test_a_rank_lost_after_the_end_is_no_failure(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture,
          "[ $RANK = 0 ] && { echo $$ > $0/first; exit 0; }; until [ -e $0/first ]; do sleep 0.01; done\n"
          "while kill -0 $(cat $0/first) 2> /dev/null; do sleep 0.01; done; kill -9 $$",
          true);
    fixture.supervisor.restarts = 0;
    assert_int_equal(supervise(&fixture), 0);
}

static void test_a_lost_one_joins(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture,
          "if [ -n \"$ASHLAR_JOIN\" ]; then touch $0/placed-$(uname -n)-$$ $0/back; exit 0; fi\n"
          "[ $RANK = 1 ] && kill -9 $$\n"
          "until [ -e $0/back ]; do sleep 0.01; done",
          true);
    assert_int_equal(supervise(&fixture), 0);
}

static void test_equal_failures_end_the_job(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture,
          "if [ $RANK = 0 ]; then trap 'exit 75' TERM; while :; do sleep 0.01; done; fi\n"
          "touch $0/placed-$(uname -n)-$$; echo x >> /tmp/ashlar-supervisor-count-$PPID; exit 7",
          true);
    fixture.supervisor.progress = no_progress;
    assert_int_equal(supervise(&fixture), 7);

    char path[64], *text = NULL;
    size_t size = 0;

    snprintf(path, sizeof(path), "/tmp/ashlar-supervisor-count-%d", (int)getpid());
    assert_int_equal(ash_file_read(path, 100, &text, &size, NULL), 0);
    assert_int_equal(size, 2 * 3); /* the start, and two more */
    free(text);
    unlink(path);
}

/* Three of four are lost before ranks have changed: that is one failure, and they come back. */
static void test_ranks_lost_together_are_one_failure(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture,
          "[ -z \"$ASHLAR_JOIN\" ] && [ $RANK != 0 ] && kill -9 $$\n"
          "[ $RANK = 0 ] || touch $0/placed-$(uname -n)-$$ $0/back-$RANK\n"
          "until [ -e $0/back-1 ] && [ -e $0/back-2 ] && [ -e $0/back-3 ]; do sleep 0.01; done",
          true);
    fixture.supervisor.job.world = fixture.supervisor.job.per_node = fixture.supervisor.count = 4;
    fixture.supervisor.restarts = 1;
    fixture.supervisor.progress = no_progress;
    fixture.supervisor.epoch = same_epoch;
    assert_int_equal(supervise(&fixture), 0);
}

static void test_bad_settings_are_not_tried_again(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture, "[ -n \"$ASHLAR_JOIN\" ] && touch $0/again; [ $RANK = 1 ] && exit 2; exec sleep 600", true);
    assert_int_equal(supervise(&fixture), ASH_END_BAD_SETTINGS);
}

/* The job ends while one still asks for a place: it is not waited for. */
static void test_joiners_do_not_outlive_the_job(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture,
          "if [ -n \"$ASHLAR_JOIN\" ]; then touch $0/asks; exec sleep 600; fi\n"
          "[ $RANK = 1 ] && exit 7\n"
          "until [ -e $0/asks ]; do sleep 0.01; done",
          true);
    assert_int_equal(supervise(&fixture), 0);
}

/* All ranks are lost while one asks for a place: no rank is left to give it, so all start again. */
static void test_joiners_without_ranks_start_again(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture,
          "if [ -n \"$ASHLAR_JOIN\" ]; then touch $0/asks; exec sleep 600; fi\n"
          "[ -e $0/asks ] && exit 0\n"
          "[ $RANK = 1 ] && exit 7\n"
          "until [ -e $0/asks ]; do sleep 0.01; done; exit 7",
          true);
    assert_int_equal(supervise(&fixture), 0);
}

static bool answers(void *ctx)
{
    (void)ctx;
    return true;
}

static bool answers_nobody(void *ctx)
{
    (void)ctx;
    return false;
}

/* One process here, and another elsewhere. */
static void start_node(struct fixture *fixture, const char *script, bool (*has_others)(void *ctx))
{
    start(fixture, script, true);
    fixture->supervisor.count = fixture->supervisor.job.per_node = 1;
    fixture->supervisor.has_others = has_others;
    fixture->supervisor.alone_s = 0.1;
}

/* A node that is started while the job runs. */
static void test_a_node_joins_ranks_elsewhere(void **state)
{
    struct fixture fixture;

    (void)state;
    start_node(&fixture, "[ -n \"$ASHLAR_JOIN\" ] || exit 7; touch $0/placed-$(uname -n)-$$; exit 0", answers);
    fixture.supervisor.joins = true;
    assert_int_equal(supervise(&fixture), 0);
}

/* The last process of a node is lost: it comes back, because others run elsewhere. */
static void test_the_last_of_a_node_comes_back(void **state)
{
    struct fixture fixture;

    (void)state;
    start_node(&fixture, "[ -n \"$ASHLAR_JOIN\" ] || kill -9 $$; touch $0/placed-$(uname -n)-$$; exit 0", answers);
    assert_int_equal(supervise(&fixture), 0);
}

/* A node that joins, and meanwhile the others are gone. */
static void test_joiners_of_a_lost_job_end(void **state)
{
    struct fixture fixture;

    (void)state;
    start_node(&fixture, "exec sleep 600", answers_nobody);
    fixture.supervisor.joins = true;
    assert_int_equal(supervise(&fixture), ASH_END_FAILED);
}

/* A node that joins and cannot: its end is that of its processes, not a good one. */
static void test_joiners_that_fail_are_a_failure(void **state)
{
    struct fixture fixture;

    (void)state;
    start_node(&fixture, "exit 7", answers);
    fixture.supervisor.joins = true;
    fixture.supervisor.restarts = 1;
    assert_int_equal(supervise(&fixture), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_they_have_met_nobody_goes_on),
        cmocka_unit_test(test_a_good_end_of_some_is_none_of_the_job),
        cmocka_unit_test(test_a_rank_lost_after_the_end_is_no_failure),
        cmocka_unit_test(test_a_lost_one_joins),
        cmocka_unit_test(test_equal_failures_end_the_job),
        cmocka_unit_test(test_ranks_lost_together_are_one_failure),
        cmocka_unit_test(test_bad_settings_are_not_tried_again),
        cmocka_unit_test(test_joiners_do_not_outlive_the_job),
        cmocka_unit_test(test_joiners_without_ranks_start_again),
        cmocka_unit_test(test_a_node_joins_ranks_elsewhere),
        cmocka_unit_test(test_the_last_of_a_node_comes_back),
        cmocka_unit_test(test_joiners_of_a_lost_job_end),
        cmocka_unit_test(test_joiners_that_fail_are_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
