/* Membership in a virtual network keeps its four promises for drawn faults, on few and many ranks; and a mistake that
 * is planted against each of them is caught. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "chaos/simulate/simulate.h"
#include "unit/sanitized.h"

#if SANITIZED
#define SEEDS 60
#else
#define SEEDS 600
#endif

/* From a loss that is known to the next view: processes notice a silence within a heartbeat of each other (0.1 s), and
 * hosts that do not answer are given up after a few tries. */
#define FORM_LIMIT_S 0.5

static struct ash_fault_sim_opts options(size_t ranks, uint64_t seed)
{
    return (struct ash_fault_sim_opts){
        .ranks = ranks, .per_host = ranks < 16 ? 2 : 8, .seed = seed, .faults = ASH_FAULT_SIM_ALL, .silent_s = 3};
}

static void expect_good(const struct ash_fault_sim_opts *opts)
{
    struct ash_fault_sim_result result;

    assert_int_equal(ash_fault_sim_run(opts, &result), 0);
    if (!result.is_good)
        fail_msg("%zu ranks, seed %llu: %s", opts->ranks, (unsigned long long)opts->seed, result.violation);
}

static void test_drawn_faults(void **state)
{
    static const size_t sizes[] = {2, 3, 4, 7, 16, 64};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct ash_fault_sim_opts opts = options(sizes[seed % 6], seed);

        expect_good(&opts);
    }
}

/* With a register a job whose processes die and come back never ends. */
static void test_register_goes_on(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS / 4; seed++) {
        struct ash_fault_sim_opts opts = options(8, seed);
        struct ash_fault_sim_result result;

        opts.right = ASH_FAULT_SIM_RIGHT_REGISTER;
        opts.faults = ASH_FAULT_SIM_CRASH | ASH_FAULT_SIM_PAUSE | ASH_FAULT_SIM_LEAVE;
        opts.fault_count = 3; /* of 8: at least one who holds the last step lives */
        assert_int_equal(ash_fault_sim_run(&opts, &result), 0);
        if (!result.is_good || result.has_ended)
            fail_msg("seed %llu: %s", (unsigned long long)seed, result.is_good ? "ended" : result.violation);
        assert_int_equal(result.final_size, 8);
    }
}

static void test_many_ranks(void **state)
{
    struct ash_fault_sim_opts opts = options(SANITIZED ? 512 : 4096, 5);
    struct ash_fault_sim_result result;

    (void)state;
    opts.faults = ASH_FAULT_SIM_CRASH | ASH_FAULT_SIM_FOLLOW;
    assert_int_equal(ash_fault_sim_run(&opts, &result), 0);
    assert_string_equal(result.violation, "");
    assert_int_equal(result.final_size, opts.ranks);
    assert_true(result.settle_s <= 1.0 && result.epochs > 2);
}

/* Messages that are sent again must not fill the coordinator's queue: it would answer later each time, until all
 * others believe it dead. */
static void test_repeats_do_not_pile_up(void **state)
{
    struct ash_fault_sim_opts opts = options(SANITIZED ? 1024 : 16384, 2);
    struct ash_fault_sim_result result;

    (void)state;
    opts.faults = ASH_FAULT_SIM_CRASH; /* four times, up to three processes each, which come back */
    assert_int_equal(ash_fault_sim_run(&opts, &result), 0);
    assert_string_equal(result.violation, "");
    assert_int_equal(result.final_size, opts.ranks);
    assert_true(result.settle_s <= 1.0 && result.form_s <= 1.0);
}

/* A host is gone without a word, or cut off: once one process knows, all are soon in the next view. No process that
 * learns of it from others waits for the silent ones again. */
static void test_silence_is_known_to_all(void **state)
{
    static const size_t sizes[] = {4, 6, 9, 16, 64};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS / 2; seed++) {
        struct ash_fault_sim_opts opts = options(sizes[seed % 5], seed);
        struct ash_fault_sim_result result;

        opts.faults = ASH_FAULT_SIM_HOST;
        opts.fault_count = 1;
        opts.per_host = 1 + seed % 2;
        assert_int_equal(ash_fault_sim_run(&opts, &result), 0);
        if (!result.is_good || result.form_s > FORM_LIMIT_S)
            fail_msg("%zu ranks, seed %llu: %.3f s to form a view; %s", opts.ranks, (unsigned long long)seed,
                     result.form_s, result.violation);
    }
}

/* One run is the same again. */
static void test_repeats(void **state)
{
    struct ash_fault_sim_opts opts = options(32, 77);
    struct ash_fault_sim_result first, second;

    (void)state;
    assert_int_equal(ash_fault_sim_run(&opts, &first), 0);
    assert_int_equal(ash_fault_sim_run(&opts, &second), 0);
    assert_int_equal(first.events, second.events);
    assert_int_equal(first.steps, second.steps);
}

static void expect_caught(enum ash_fault_sim_plant plant, const char *promise)
{
    struct ash_fault_sim_result result = {.is_good = true};
    bool is_caught = false;

    for (uint64_t seed = 1; seed <= 200 && !is_caught; seed++) {
        struct ash_fault_sim_opts opts = options(16, seed);

        opts.plant = plant;
        opts.per_host = 2;
        assert_int_equal(ash_fault_sim_run(&opts, &result), 0);
        is_caught = strncmp(result.violation, promise, strlen(promise)) == 0; /* others may be broken with it */
    }
    if (!is_caught) fail_msg("'%s' was not found broken", promise);
}

static void test_planted(void **state)
{
    (void)state;
    expect_caught(ASH_FAULT_SIM_PLANT_RIGHT, "one side");
    expect_caught(ASH_FAULT_SIM_PLANT_FOREVER, "bounded");
    expect_caught(ASH_FAULT_SIM_PLANT_DEAF, "settled");
    expect_caught(ASH_FAULT_SIM_PLANT_FORGET, "not lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn_faults),
                                       cmocka_unit_test(test_register_goes_on),
                                       cmocka_unit_test(test_many_ranks),
                                       cmocka_unit_test(test_repeats_do_not_pile_up),
                                       cmocka_unit_test(test_silence_is_known_to_all),
                                       cmocka_unit_test(test_repeats),
                                       cmocka_unit_test(test_planted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
