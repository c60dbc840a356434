/* Conservative backfill on drawn traces: a start that was promised once never moves to a later time, and is kept. Jobs
 * end early or at their limits, share hosts and GPUs, want domains and groups, and come in three classes. */
#include "cluster.h"

#include <math.h>

#include "base/rng.h"
#include "unit/sanitized.h"

#define DRAWN 150
#define ROUNDS (SANITIZED ? 3 : 10)
#define STEP_S 20.0

struct ledger {
    struct cluster *c;
    uint64_t seed;
    struct ash_policy_job jobs[DRAWN];
    bool is_waiting[DRAWN], is_running[DRAWN];
    double start_s[DRAWN], promised_s[DRAWN], now_s;
    int promises, moved; /* starts that were named; of these, that moved forward */
};

static void observe(void *ctx, const struct ash_policy_decision *decision)
{
    struct ledger *ledger = ctx;
    uint64_t key = decision->key;

    if (decision->act == ASH_POLICY_START) {
        if (ledger->now_s > ledger->promised_s[key])
            fail_msg("seed %d: job %d starts at %g, %g was promised", (int)ledger->seed, (int)key, ledger->now_s,
                     ledger->promised_s[key]);
        ledger->start_s[key] = ledger->now_s;
    } else {
        ledger->promised_s[key] = INFINITY; /* it was stopped, and is as good as new */
    }
    ledger->is_running[key] = decision->act == ASH_POLICY_START;
    ledger->is_waiting[key] = !ledger->is_running[key];
}

static struct ash_policy_job draw_job(uint64_t seed, uint64_t key)
{
    struct ash_policy_job job = {.key = key, .gpu_milli = 1000};

    job.gpus = 1 << ash_rng_below(seed, 2, key, 3);
    job.nodes = ash_rng_below(seed, 3, key, 3) == 0 ? 1 + (int)ash_rng_below(seed, 4, key, 8) : 1;
    job.limit_s = 100 * (1 + (double)ash_rng_below(seed, 5, key, 20));
    job.class = (int)ash_rng_below(seed, 7, key, 3);
    if (job.nodes == 1 && job.gpus == 1 && ash_rng_below(seed, 8, key, 2) == 0) job.gpu_milli = 500;
    if (job.nodes > 1 && ash_rng_below(seed, 9, key, 3) == 0) job.required = 1 + (int)ash_rng_below(seed, 10, key, 2);
    if (job.nodes % 2 == 0 && ash_rng_below(seed, 11, key, 4) == 0) job.group = 2;
    return job;
}

static int end_some(struct ledger *ledger, uint64_t step)
{
    int ended = 0;

    for (uint64_t key = 0; key < DRAWN; key++) {
        bool is_early = ash_rng_below(ledger->seed, 12, step * DRAWN + key, 30) == 0;

        if (!ledger->is_running[key]) continue;
        if (ledger->now_s < ledger->start_s[key] + ledger->jobs[key].limit_s && !is_early) continue;
        ledger->is_running[key] = false;
        ash_policy_end(ledger->c->policy, ledger->c->number[key], ledger->now_s);
        ended++;
    }
    return ended;
}

/* No start that is named now is later than one that was named before. */
static void check_promises(struct ledger *ledger)
{
    for (int key = 0; key < DRAWN; key++) {
        double start_s;

        if (!ledger->is_waiting[key]) continue;
        start_s = ash_policy_why(ledger->c->policy, ledger->c->number[key]).start_s;
        if (start_s < 0) continue;
        if (start_s > ledger->promised_s[key])
            fail_msg("seed %d: at %g s job %d is promised %g, it was %g", (int)ledger->seed, ledger->now_s, key,
                     start_s, ledger->promised_s[key]);
        ledger->promises += isinf(ledger->promised_s[key]);
        ledger->moved += isfinite(ledger->promised_s[key]) && start_s < ledger->promised_s[key];
        ledger->promised_s[key] = start_s;
    }
}

/* Returns how many promises moved forward. */
static int run_drawn(const char *policy, uint64_t seed)
{
    static struct ledger ledger;
    int left = 0;

    ledger = (struct ledger){.seed = seed};
    ledger.c =
        open_cluster("SwitchName=r0 Nodes=n[0-3]\nSwitchName=r1 Nodes=n[4-7]\nSwitchName=r2 Nodes=n[8-11]\n"
                     "SwitchName=r3 Nodes=n[12-15]\nSwitchName=b0 Switches=r[0-1]\nSwitchName=b1 Switches=r[2-3]\n",
                     4, policy);
    ash_policy_listen(ledger.c->policy, observe, &ledger);
    for (uint64_t step = 0; step < DRAWN || left > 0; step++) {
        if (step > 40 * DRAWN) fail_msg("seed %d: %d jobs never started", (int)seed, left);
        ledger.now_s += STEP_S;
        left -= end_some(&ledger, step);
        if (step < DRAWN) {
            ledger.jobs[step] = draw_job(seed, step);
            ledger.promised_s[step] = INFINITY;
            ledger.c->number[step] = ash_policy_submit(ledger.c->policy, &ledger.jobs[step], ledger.now_s, NULL);
            ledger.is_waiting[step] = ledger.c->number[step] >= 0;
            left += ledger.is_waiting[step];
        }
        assert_int_equal(ash_policy_pass(ledger.c->policy, ledger.now_s), 0);
        check_promises(&ledger);
    }
    assert_true(ledger.promises > DRAWN / 4); /* the cluster was full, or this says nothing */
    close_cluster(ledger.c);
    return ledger.moved;
}

#define CLASSES "classes: [{name: low, priority: 1}, {name: mid, priority: 5}, {name: high, priority: 9}]\n"

static void test_promises_are_kept(void **state)
{
    static const char *const policies[] = {
        "preset: conservative\ninterval: 0\n" CLASSES,
        "preset: conservative\ninterval: 0\ndepth: 4\n" CLASSES, /* those that are due lie deeper than that */
        "preset: conservative\ninterval: 0\nfair_share: multifactor\nweights: {fair_share: 1000, age: 10}\n" CLASSES,
        "preset: conservative\ninterval: 0\npreempt: {within: lower, cohort: never}\n" CLASSES,
    };
    int moved = 0;

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(policies); i++)
        for (uint64_t seed = 1; seed <= ROUNDS; seed++)
            moved += run_drawn(policies[i], seed);
    assert_true(moved > 0);
}

/* Two jobs that use half a host each follow each other on it: a third of half a host runs beside both. */
static void test_a_host_is_shared_over_time(void **state)
{
    struct cluster *c = open_cluster("SwitchName=s Nodes=n0\n", 4, "preset: conservative\ninterval: 0\n");
    struct ash_policy_job job = job_of(c, 'a', NULL, 1, 2);

    (void)state;
    job.limit_s = 100;
    submit(c, job, 0); /* a: two GPUs until 100 */
    assert_pass(c, 0, "+a");
    job.key = 'b', job.gpus = 4;
    submit(c, job, 0); /* b: all four from 100 to 200 */
    job.key = 'c', job.gpus = 2;
    submit(c, job, 0); /* c ends before b begins */
    assert_pass(c, 0, "+c");
    job.key = 'd';
    submit(c, job, 0); /* d and e side by side after b */
    job.key = 'e';
    submit(c, job, 0);
    assert_pass(c, 0, "");
    assert_true(why(c, 'b').start_s == 100 && why(c, 'd').start_s == 200 && why(c, 'e').start_s == 200);
    ash_policy_end(c->policy, c->number['c'], 50); /* half of the host is free from 50 to 100: too short for d */
    assert_pass(c, 50, "");
    ash_policy_end(c->policy, c->number['a'], 60); /* all of it: b goes forward, d and e behind it */
    assert_pass(c, 60, "+b");
    assert_true(why(c, 'd').start_s == 160 && why(c, 'e').start_s == 160);
    close_cluster(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_promises_are_kept),
                                       cmocka_unit_test(test_a_host_is_shared_over_time)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
