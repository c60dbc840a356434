/* Divisions of a run's processes: those that it has now take as long as was measured, and none is shorter than the best
 * one that a plain search over all of them finds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/rl/split.h"

#define CASES 2000

static double drawn(uint64_t seed, uint64_t *at)
{
    return (double)ash_rng_below(seed, 0, (*at)++, 1000) / 100.0;
}

static struct ash_rl_measured draw_run(uint64_t seed)
{
    uint64_t at = 0;
    struct ash_rl_measured run = {.unit = 1 + (int)ash_rng_below(seed, 0, at++, 4)};

    run.trainers = run.unit * (1 + (int)ash_rng_below(seed, 0, at++, 5));
    run.samplers = 1 + (int)ash_rng_below(seed, 0, at++, 12);
    run.turns = ash_rng_below(seed, 0, at++, 2) == 0;
    run.compute_s = drawn(seed, &at);
    run.fixed_s = drawn(seed, &at) / 10;
    run.draw_s = drawn(seed, &at);
    run.take_s = drawn(seed, &at) / 10;
    return run;
}

/* Seconds of a step with so many ranks that train, of `procs`. */
static double plain(const struct ash_rl_measured *run, int trainers, int procs)
{
    double train = run->compute_s * run->trainers / trainers + run->fixed_s;
    double sample = run->draw_s * run->samplers / (procs - trainers) + run->take_s;

    return run->turns ? train + sample : fmax(train, sample);
}

static void test_the_best_of_all_is_found(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct ash_rl_measured run = draw_run(seed);
        struct ash_rl_division divisions[ASH_RL_DIVISIONS_MAX];
        int procs = run.trainers + run.samplers;
        size_t best = 0, count = ash_rl_divide(&run, procs, divisions, &best);
        double least = INFINITY;

        for (int trainers = run.unit; trainers < procs; trainers += run.unit)
            least = fmin(least, plain(&run, trainers, procs));
        assert_true(count > 0 && best < count);
        assert_true(divisions[best].step_s == least);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(divisions[i].trainers + divisions[i].samplers, procs);
            assert_int_equal(divisions[i].trainers % run.unit, 0);
            if (divisions[i].trainers == run.trainers)
                assert_true(fabs(divisions[i].train_s - run.compute_s - run.fixed_s) < 1e-9);
            if (!run.turns && divisions[i].step_s > 0)
                assert_true(fmin(divisions[i].trainer_waits, divisions[i].samplers_wait) == 0.0);
        }
    }
}

static void test_too_few_processes_have_no_division(void **state)
{
    struct ash_rl_measured run = {.trainers = 4, .samplers = 1, .unit = 4, .compute_s = 1, .draw_s = 1};
    struct ash_rl_division divisions[ASH_RL_DIVISIONS_MAX];
    size_t best = 0;

    (void)state;
    assert_int_equal(ash_rl_divide(&run, 4, divisions, &best), 0);
    assert_int_equal(ash_rl_divide(&run, 5, divisions, &best), 1);
    assert_int_equal(ash_rl_divide(&run, 100000, divisions, &best), ASH_RL_DIVISIONS_MAX);
    assert_true(divisions[0].trainers >= 4 && best < ASH_RL_DIVISIONS_MAX);
    assert_int_equal(divisions[best].trainers, 80000); /* as 4 and 1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_best_of_all_is_found),
                                       cmocka_unit_test(test_too_few_processes_have_no_division)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
