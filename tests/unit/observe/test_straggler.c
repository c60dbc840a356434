/* straggler: slow ranks are named soon and by the right step; noise, jitter and saves name no rank. */
#include "observe/ranks/straggler.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/hash.h"

static uint64_t state;

static double draw(void)
{
    state = ash_hash_mix(state + 0x9e3779b97f4a7c15u);
    return (double)(state >> 11) * 0x1p-53;
}

/* About a normal distribution, with a step far out now and then. */
static double noise(double share)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += draw();
    if (draw() < 0.01) sum += 10 * draw(); /* a page fault, a daemon */
    return share * sum;
}

/* A job whose rank `slow` does `factor` times its work from step `since` on. */
static double *make_job(size_t ranks, size_t steps, size_t slow, size_t since, double factor, double jitter)
{
    double *own = malloc(ranks * steps * sizeof(*own));

    assert_non_null(own);
    for (size_t s = 0; s < steps; s++)
        for (size_t r = 0; r < ranks; r++)
            own[s * ranks + r] = 0.1 * (1 + noise(jitter)) * (r == slow && s >= since ? factor : 1);
    return own;
}

static void check_named(double factor, size_t within)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        size_t ranks = 2 + seed % 14, slow = seed % ranks, since = 60 + seed;
        struct ash_straggler found[4] = {{0}};
        double *own;
        int count;

        state = seed;
        own = make_job(ranks, since + within, slow, since, factor, 0.02);
        count = ash_straggler_find(&(struct ash_work){.ranks = ranks, .steps = since + within, .own = own}, found, 4);
        if (count != 1 || found[0].rank != slow)
            fail_msg("seed %llu: %zu ranks, rank %zu slow by %g: %d found, the first is rank %zu",
                     (unsigned long long)seed, ranks, slow, factor, count, found[0].rank);
        if (llabs((long long)found[0].since - (long long)(since + 1)) > 8)
            fail_msg("seed %llu: since step %llu, not %zu", (unsigned long long)seed,
                     (unsigned long long)found[0].since, since + 1);
        assert_true(fabs(found[0].slower - (factor - 1)) < 0.12 && !found[0].was_always);
        free(own);
    }
}

static void test_slow_ranks_are_named(void **unused)
{
    (void)unused;
    check_named(1.1, 30);
    check_named(1.2, 10);
    check_named(1.5, 6);
}

/* 200,000 steps of clean jobs: at most one alarm for 100,000 steps. */
static void test_clean_runs_name_nobody(void **unused)
{
    size_t alarms = 0, steps = 0;
    (void)unused;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        size_t ranks = 2 + seed % 7;
        struct ash_straggler found[4];
        double *own;
        int count;

        state = seed * 7919;
        own = make_job(ranks, 1000, SIZE_MAX, 0, 1, 0.01 + 0.04 * draw());
        count = ash_straggler_find(&(struct ash_work){.ranks = ranks, .steps = 1000, .own = own}, found, 4);
        assert_true(count >= 0);
        alarms += (size_t)count;
        steps += 1000;
        free(own);
    }
    if (alarms > steps / 100000) fail_msg("%zu alarms in %zu clean steps", alarms, steps);
}

/* On a machine that others use, ranks are held up at random, and by much: alike. */
static void test_ranks_that_share_cores_name_nobody(void **unused)
{
    enum { STEPS = 200 };
    size_t alarms = 0;
    (void)unused;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        size_t ranks = 2 + seed % 3;
        struct ash_straggler found[4];
        double *own;

        state = seed * 104729;
        own = make_job(ranks, STEPS, SIZE_MAX, 0, 1, 0.02);
        for (size_t i = 0; i < ranks * STEPS; i++)
            own[i] *= draw() < 0.5 ? 1 + 3 * draw() * draw() : 1;
        alarms += (size_t)ash_straggler_find(&(struct ash_work){.ranks = ranks, .steps = STEPS, .own = own}, found, 4);
        free(own);
    }
    assert_int_equal(alarms, 0);
}

/* A rank that waits for its data is named for that; one that recovered is not named. */
static void test_parts_and_ends(void **unused)
{
    enum { RANKS = 4, STEPS = 120 };
    double own[RANKS * STEPS], data[RANKS * STEPS];
    struct ash_straggler found[4];
    (void)unused;

    state = 5;
    for (size_t i = 0; i < RANKS * STEPS; i++) {
        bool is_slow = i % RANKS == 2 && i / RANKS >= 50;

        data[i] = is_slow ? 0.05 : 0.001;
        own[i] = 0.1 * (1 + noise(0.01)) + data[i];
    }
    assert_int_equal(
        ash_straggler_find(&(struct ash_work){.ranks = RANKS, .steps = STEPS, .own = own, .data = data}, found, 4), 1);
    assert_true(found[0].is_data && found[0].rank == 2);
    for (size_t i = 0; i < RANKS * STEPS; i++)
        own[i] = 0.1 * (1 + noise(0.01)) * (i % RANKS == 1 && i / RANKS > 30 && i / RANKS < 60 ? 1.5 : 1);
    assert_int_equal(ash_straggler_find(&(struct ash_work){.ranks = RANKS, .steps = STEPS, .own = own}, found, 4), 0);
}

/* Steps that are missing, one rank, no steps: no rank is named and nothing breaks. */
static void test_little_is_known(void **unused)
{
    double own[] = {NAN, NAN, NAN, NAN, 1, NAN, NAN, 1};
    struct ash_straggler found[1];
    (void)unused;

    assert_int_equal(ash_straggler_find(&(struct ash_work){.ranks = 2, .steps = 4, .own = own}, found, 1), 0);
    assert_int_equal(ash_straggler_find(&(struct ash_work){.ranks = 1, .steps = 8, .own = own}, found, 1), 0);
    assert_int_equal(ash_straggler_find(&(struct ash_work){.ranks = 2, .steps = 0, .own = own}, found, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_ranks_are_named),
        cmocka_unit_test(test_clean_runs_name_nobody),
        cmocka_unit_test(test_ranks_that_share_cores_name_nobody),
        cmocka_unit_test(test_parts_and_ends),
        cmocka_unit_test(test_little_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
