/* Which job gives nodes, and which gets them: stories, and drawn queues held to the rules. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/str.h"
#include "orchestrate/slurm/balance.h"

#define B ASH_BALANCE_BREAK

static bool yes(void *ctx, const struct ash_balance_job *job, enum ash_balance_verb verb)
{
    (void)ctx, (void)job, (void)verb;
    return true;
}

static bool no(void *ctx, const struct ash_balance_job *job, enum ash_balance_verb verb)
{
    (void)ctx, (void)job, (void)verb;
    return false;
}

static void test_stories(void **state)
{
    static const char queue[] =
        "7" B "PENDING" B "Resources" B "3" B "all" B "urgent" B "" B "\n"
        "1" B "RUNNING" B "None" B "3" B "all" B "low" B "n[1-3]" B "ashlar price=5 elastic=2-5 out=/r/a b\n"
        "2" B "RUNNING" B "None" B "1" B "all" B "low" B "n4" B "ashlar joins=1 price=5 elastic=2-5 out=/r/a b\n";
    struct ash_balance balance = {.job_count = 0};
    struct ash_balance_change change;
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_balance_read(&balance, queue, "n5|all*|plnd\nn1|all*|alloc\nn9|other|idle\n", &err), 0);
    assert_string_equal(balance.jobs[1].out, "/r/a b");
    assert_int_equal(balance.jobs[1].least, 2);
    assert_int_equal(balance.jobs[2].most, 0);
    assert_int_equal(ash_balance_all_nodes(&balance, &balance.jobs[1]), 4);
    assert_int_equal(ash_balance_decide(&balance, false, yes, NULL).verb, ASH_BALANCE_NOTHING); /* no higher class */
    balance.jobs[0].rank = 1;
    change = ash_balance_decide(&balance, false, yes, NULL);
    assert_true(change.verb == ASH_BALANCE_GIVE && change.job == 1 && change.heir == 0 && change.nodes == 2);
    assert_int_equal(ash_balance_decide(&balance, false, no, NULL).verb, ASH_BALANCE_NOTHING);
    balance.jobs[0].nodes = 4; /* one more than it may give */
    assert_int_equal(ash_balance_decide(&balance, false, yes, NULL).verb, ASH_BALANCE_NOTHING);
    balance.jobs[0].waits = false;
    change = ash_balance_decide(&balance, false, yes, NULL);
    assert_true(change.verb == ASH_BALANCE_GROW && change.job == 1 && change.nodes == 1);
    ash_balance_free(&balance);
    assert_int_equal(ash_balance_read(&balance, "slurmctld is down\n", "", &err), -EINVAL);
    ash_balance_free(&balance);
    assert_int_equal(ash_balance_read(&balance, "", "n1 all\n", &err), -EINVAL);
    ash_balance_free(&balance);
}

static void draw(uint64_t seed, struct ash_balance *balance)
{
    struct ash_str queue = {0}, nodes = {0};
    struct ash_err err = {0};
    uint64_t jobs = 1 + ash_rng_u64(seed, 0, 0) % 6, idle = ash_rng_u64(seed, 0, 1) % 4;

    for (uint64_t i = 0; i < jobs; i++) {
        uint64_t bits = ash_rng_u64(seed, 0, 10 + i), least = 1 + bits % 3, most = least + bits / 3 % 3;

        if (bits / 16 % 3 == 0)
            ash_str_addf(&queue, "%d" B "PENDING" B "Resources" B "%d" B "all" B "q" B "" B "\n", (int)i,
                         1 + (int)(bits / 64 % 5));
        else
            ash_str_addf(&queue, "%d" B "RUNNING" B "None" B "%d" B "all" B "q" B "n" B "ashlar elastic=%d-%d out=/r\n",
                         (int)i, (int)(least + bits / 64 % (most - least + 1)), (int)least, (int)most);
    }
    for (uint64_t i = 0; i < idle; i++)
        ash_str_addf(&nodes, "n%d|all*|idle\n", (int)i);
    assert_int_equal(ash_balance_read(balance, queue.data, nodes.data != NULL ? nodes.data : "", &err), 0);
    for (size_t i = 0; i < balance->job_count; i++)
        balance->jobs[i].rank = (int64_t)(ash_rng_u64(seed, 0, 50 + i) % 3);
    ash_str_fini(&queue);
    ash_str_fini(&nodes);
}

static void test_drawn(void **state)
{
    size_t gives = 0, grows = 0;
    (void)state;

    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct ash_balance balance = {.job_count = 0};
        struct ash_balance_change change;
        const struct ash_balance_job *job;
        bool waits = false;

        draw(seed, &balance);
        change = ash_balance_decide(&balance, false, yes, NULL);
        job = &balance.jobs[change.job];
        for (size_t i = 0; i < balance.job_count; i++)
            waits = waits || balance.jobs[i].waits;
        if (change.verb == ASH_BALANCE_GIVE) {
            assert_true(balance.jobs[change.heir].waits && balance.jobs[change.heir].rank > job->rank);
            assert_true(job->nodes - change.nodes >= job->least);
            assert_int_equal(change.nodes + balance.idle_count, balance.jobs[change.heir].nodes);
        }
        if (change.verb == ASH_BALANCE_GROW) {
            assert_false(waits);
            assert_true(change.nodes <= balance.idle_count && job->nodes + change.nodes <= job->most);
        }
        if (change.verb != ASH_BALANCE_NOTHING) assert_true(job->runs && change.nodes > 0);
        gives += change.verb == ASH_BALANCE_GIVE;
        grows += change.verb == ASH_BALANCE_GROW;
        ash_balance_free(&balance);
    }
    assert_true(gives > 20 && grows > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
