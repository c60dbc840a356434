/* Groups over several nodes: what the others hear when a rank dies, hangs, gives up, is late or makes another
 * call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "collective/net/net.h"
#include "harness/group_ranks.h"

static void test_killed(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4; i++)
        check_signal(&(struct signal_case){.size = 4,
                                           .victim = ash_rng_below(3, 1, i, 4),
                                           .signal_number = SIGKILL,
                                           .silent_s = 20,
                                           .limit_s = 1.5,
                                           .count = i % 2 == 0 ? 2 : 300000,
                                           .nodes = i < 2 ? "aabb" : "abab",
                                           .algorithm = i < 2 ? ASH_NET_HIERARCHICAL : ASH_NET_AUTO});
}

static void test_stopped(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2; i++)
        check_signal(&(struct signal_case){.size = 3,
                                           .victim = 2 * i,
                                           .signal_number = SIGSTOP,
                                           .silent_s = 0.5,
                                           .limit_s = 2.0,
                                           .count = i % 2 == 0 ? 300000 : 2,
                                           .nodes = "aab"});
}

static int give_up(struct ash_group *group, struct shared *shared, const void *arg)
{
    while (atomic_load(&shared->joined) < ash_group_size(group)) /* all have come */
        usleep(1000);
    if (ash_group_rank(group) == 1) ash_group_abort(group, "rank 1 gives up: its disk is full");
    return call_until_lost(group, shared, arg);
}

static void test_abort(void **state)
{
    const size_t count = 100000;
    struct job job = {.size = 4, .silent_s = 20, .call_s = 30, .run = give_up, .arg = &count, .nodes = "aabb"};
    struct shared *shared = start(&job);

    (void)state;
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    for (size_t r = 0; r < job.size; r++)
        expect_text(shared, r, "its disk is full");
    end(shared);
}

/* Rank 3 lives, but does not come to the call. */
static int linger(struct ash_group *group, struct shared *shared, const void *arg)
{
    if (ash_group_rank(group) != 3) return call_until_lost(group, shared, arg);
    for (size_t r = 0; r < 3; r++)
        while (atomic_load(&shared->code[r]) == 0)
            usleep(1000);
    return 0;
}

static void test_late(void **state)
{
    static const struct {
        const char *nodes;
        int algorithm;
        size_t count;
    } cases[] = {{"aabb", ASH_NET_HIERARCHICAL, 100000}, {"aaab", ASH_NET_HIERARCHICAL, 3}, {"aabb", ASH_NET_FLAT, 3}};

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        check_late((struct job){.size = 4,
                                .silent_s = 20,
                                .call_s = 0.4,
                                .run = linger,
                                .arg = &cases[c].count,
                                .nodes = cases[c].nodes,
                                .algorithm = cases[c].algorithm},
                   3);
}

/* After some calls, ranks 2 and 3 (a node of their own) or rank 3 alone do something else than the others. */
struct mistake {
    size_t first;
    int kind;
};

static int make_mistake(struct ash_group *group, struct shared *shared, const void *arg)
{
    const struct mistake *mistake = arg;
    size_t rank = ash_group_rank(group);
    bool wrong = rank >= mistake->first;
    char data[8192] = {0}, all[4 * 8192];
    size_t sizes[4] = {8, 8, 8, wrong ? 16 : 8};
    struct ash_err err = {0};
    int rc = 0;

    for (int i = 0; i < 3 && rc == 0; i++)
        rc = ash_group_barrier(group, &err);
    if (rc == 0 && mistake->kind == 0) /* another call */
        rc = wrong ? ash_group_barrier(group, &err)
                   : ash_group_all_reduce(group, data, data, 4, ASH_COLL_F32, ASH_COLL_SUM, &err);
    if (rc == 0 && mistake->kind == 1) /* another size, and so another way */
        rc = ash_group_all_gather(group, data, all, wrong ? 8192 : 64, &err);
    if (rc == 0 && mistake->kind == 2) /* each waits for the other */
        rc = ash_group_broadcast(group, data, 64, wrong ? 0 : 3, &err);
    if (rc == 0 && mistake->kind == 3) rc = ash_group_all_to_all(group, data, (size_t[]){8, 8, 8, 8}, all, sizes, &err);
    if (rc == 0) rc = ash_group_barrier(group, &err);
    memcpy(shared->text[rank], err.text, sizeof(err.text));
    atomic_store(&shared->code[rank], rc);
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct mistake mistake = {.first = i < 4 ? 2 : 3, .kind = i % 4};
        struct job job = {
            .size = 4, .silent_s = 120, .call_s = 120, .run = make_mistake, .arg = &mistake, .nodes = "aabb"};
        struct shared *shared = start(&job);
        uint64_t began_ns = ash_clock_ns();

        assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
        assert_true(ash_clock_ns() - began_ns < 60000000000ull); /* no rank waited for long */
        for (size_t r = 0; r < 4; r++)
            if (shared->code[r] != -EPROTO || strstr(shared->text[r], "rank ") == NULL)
                fail_msg("mistake %d, rank %zu: %d (%s)", i, r, shared->code[r], shared->text[r]);
        end(shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed), cmocka_unit_test(test_stopped),
                                       cmocka_unit_test(test_abort), cmocka_unit_test(test_late),
                                       cmocka_unit_test(test_mismatch)};

    if (!start_network()) return 0; /* nothing to test without libfabric */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
