/* Groups of real processes: meeting, splitting, and what the others hear when one dies, hangs, gives up or makes
 * another call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/rng.h"
#include "harness/group_ranks.h"

/* ---- meeting and splitting --------------------------------------------------------------------------------------- */

static int sum_ranks(struct ash_group *group, int64_t want)
{
    int64_t sum = (int64_t)ash_group_rank(group);

    return ash_group_all_reduce(group, &sum, &sum, 1, ASH_COLL_I64, ASH_COLL_SUM, NULL) == 0 && sum == want ? 0 : 1;
}

static int work(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    struct ash_group *rows = NULL, *columns = NULL;
    int64_t all = (int64_t)(size * (size - 1) / 2);

    (void)shared;
    (void)arg;
    if (sum_ranks(group, all) != 0) return 1;
    if (ash_group_split(group, (int64_t)(rank / 2), 0, &rows, NULL) < 0) return 2;
    if (ash_group_split(group, rank % 2 == 0 ? 5 : -1, -(int64_t)rank, &columns, NULL) < 0) return 3;
    if (ash_group_size(rows) != (rank / 2 * 2 + 1 < size ? 2 : 1) || ash_group_rank(rows) != rank % 2) return 4;
    if ((columns == NULL) != (rank % 2 == 1)) return 5;
    if (columns != NULL && ash_group_get_member(columns, 0).rank != (size - 1) / 2 * 2)
        return 6; /* ordered by key, backwards */
    if (sum_ranks(rows, ash_group_size(rows) == 2 ? 1 : 0) != 0) return 7;
    if (columns != NULL && sum_ranks(columns, (int64_t)((size + 1) / 2 * ((size + 1) / 2 - 1) / 2)) != 0) return 8;
    ash_group_close(columns);
    ash_group_close(rows);
    return sum_ranks(group, all) != 0 || ash_group_barrier(group, NULL) != 0 ? 9 : 0;
}

static void test_split(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 6; size++) {
        struct job job = {.size = size, .silent_s = 20, .call_s = 20, .run = work};
        struct shared *shared = start(&job);

        assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
        end(shared);
    }
}

static int just_meet(struct ash_group *group, struct shared *shared, const void *arg)
{
    (void)shared;
    (void)arg;
    return ash_group_barrier(group, NULL) != 0;
}

static void test_many(void **state)
{
    struct job job = {.size = GROUP_RANKS_MAX, .silent_s = 20, .call_s = 20, .run = just_meet};
    struct shared *shared = start(&job);
    uint64_t last_ns = 0;

    (void)state;
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    for (size_t r = 0; r < GROUP_RANKS_MAX; r++)
        if (shared->joined_ns[r] > last_ns) last_ns = shared->joined_ns[r];
    print_message("64 ranks have met after %.0f ms\n", (double)(last_ns - shared->began_ns) * 1e-6);
    end(shared);
}

static void test_missing(void **state)
{
    struct ash_launch_env env = {.rank = 0, .size = 3, .host = "127.0.0.1", .job = 1};
    struct ash_group_opts opts = {.join_timeout = 0.3, .silent_timeout = 1, .call_timeout = 1};
    struct ash_group *group = NULL;
    struct ash_err err = {0};
    int reserved = ash_socket_reserve(&env.port, NULL);

    (void)state;
    assert_int_equal(ash_group_open(&env, &opts, &group, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "2 of 3 ranks have not joined"));
    assert_non_null(strstr(err.text, "1, 2"));
    env.rank = 1;
    assert_true(ash_group_open(&env, &opts, &group, &err) < 0);
    assert_non_null(strstr(err.text, "rank 1 cannot reach rank 0"));
    close(reserved);
}

static void test_unknown_host(void **state)
{
    struct ash_launch_env env = {.size = 2, .host = "no-such-host.invalid", .port = 12000, .job = 1};
    struct ash_group_opts opts = {.join_timeout = 60, .silent_timeout = 1, .call_timeout = 1};
    struct ash_group *group = NULL;
    uint64_t began_ns = ash_clock_ns();

    (void)state;
    for (env.rank = 0; env.rank < 2; env.rank++) { /* the first does not wait for those who cannot find it */
        struct ash_err err = {0};

        assert_int_equal(ash_group_open(&env, &opts, &group, &err), -ENOENT);
        if (strstr(err.text, "MASTER_ADDR") == NULL || strstr(err.text, "no-such-host.invalid") == NULL)
            fail_msg("it says: %s", err.text);
    }
    assert_true(ash_clock_ns() - began_ns < 30000000000ull);
}

static int count_nodes(struct ash_group *group, struct shared *shared, const void *arg)
{
    (void)shared;
    (void)arg;
    return ash_group_nodes(group) != 2 || sum_ranks(group, 3) != 0;
}

/* Ranks that do not see each other in /proc share no memory, whatever their host is called. */
static void test_pid_namespaces(void **state)
{
    struct job job = {.size = 3, .silent_s = 20, .call_s = 20, .run = count_nodes, .hidden_ranks = 1};
    struct shared *shared;

    (void)state;
    if (!has_network() || !can_hide()) skip();
    shared = start(&job);
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    end(shared);
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

static void test_killed(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 12; i++) {
        size_t size = 2 + i % 6;

        check_signal(&(struct signal_case){.size = size,
                                           .victim = ash_rng_below(3, 1, i, size),
                                           .signal_number = SIGKILL,
                                           .silent_s = 20,
                                           .limit_s = 1.0,
                                           .count = i % 2 == 0 ? 2 : 300000});
    }
}

static void test_stopped(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        check_signal(&(struct signal_case){.size = 3 + i,
                                           .victim = ash_rng_below(4, 1, i, 3 + i),
                                           .signal_number = SIGSTOP,
                                           .silent_s = 0.5,
                                           .limit_s = 1.5,
                                           .count = i % 2 == 0 ? 300000 : 2});
}

static int give_up(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t count = 100;

    (void)arg;
    if (ash_group_rank(group) != 1) return call_until_lost(group, shared, &count);
    ash_group_abort(group, "rank 1 gives up: its disk is full");
    return call_until_lost(group, shared, &count); /* its own calls end as well */
}

static void test_abort(void **state)
{
    struct job job = {.size = 4, .silent_s = 20, .call_s = 30, .run = give_up};
    struct shared *shared = start(&job);

    (void)state;
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    for (size_t r = 0; r < job.size; r++)
        expect_text(shared, r, "its disk is full");
    end(shared);
}

static int linger(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t count = 3;

    if (ash_group_rank(group) != 2) return call_until_lost(group, shared, &count);
    while (atomic_load(&shared->code[0]) == 0 ||
           atomic_load(&shared->code[1]) == 0) /* alive, but busy with something else */
        usleep(1000);
    (void)arg;
    return 0;
}

static void test_late(void **state)
{
    (void)state;
    check_late((struct job){.size = 3, .silent_s = 20, .call_s = 0.4, .run = linger}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),  cmocka_unit_test(test_many),         cmocka_unit_test(test_missing),
        cmocka_unit_test(test_killed), cmocka_unit_test(test_stopped),      cmocka_unit_test(test_abort),
        cmocka_unit_test(test_late),   cmocka_unit_test(test_unknown_host), cmocka_unit_test(test_pid_namespaces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
