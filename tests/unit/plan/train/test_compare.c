/* The same job on several machines: prices add up, deadlines are kept by no more machines than needed. */
#include "unit/plan/facts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "plan/train/compare.h"

static struct ash_compare_job job_for(const char *model, double gpus, double days)
{
    struct ash_compare_job job = {.gpus = gpus, .days = days};

    job.job = (struct ash_plan_job){
        .shape = shape_of(model), .global_batch = 1024, .seq_tokens = 8192, .tokens = 1e12, .dedup_dispatch = true};
    job.search = (struct ash_search){.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    return job;
}

static struct ash_compare_row compare(const struct ash_compare_job *job, const char *name)
{
    const struct ash_machine *machine = NULL;
    struct ash_compare_row row;

    assert_int_equal(ash_catalog_machine(catalog, name, &machine, NULL), 0);
    ash_compare(&consts, job, machine, &row);
    return row;
}

static void prices_add_up(void **state)
{
    struct ash_compare_job job = job_for("llama-3.1-70b", 500, 0);
    struct ash_compare_row row = compare(&job, "p5.48xlarge");

    (void)state;
    assert_true(row.found && row.plan.step.fits && !row.reserved_price);
    assert_int_equal(row.job.cluster.machines, 63); /* whole machines */
    assert_true(row.job.global_batch == 1008);      /* and whole sequences per GPU */
    assert_true(fabs(row.days * 86400 * row.plan.step.tokens_s / 1e12 - 1) < 1e-9);
    assert_true(fabs(row.usd / (row.days * 24 * 63 * 55.04) - 1) < 1e-9);
    assert_true(row.watts == 504 * 700);
    assert_true(compare(&job, "u-p6e-gb200x72").reserved_price);
}

static void deadlines_are_kept(void **state)
{
    static const char *const names[] = {"p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge", "u-p6e-gb200x72"};
    struct ash_compare_job job = job_for("llama-3.1-70b", 0, 20);

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        struct ash_compare_row row = compare(&job, names[i]), half;
        struct ash_compare_job smaller = job;

        if (!row.found) fail_msg("%s: %s", names[i], row.reason);
        assert_true(row.days <= 20);
        assert_true(row.days > 13 || row.job.cluster.machines < 4); /* not twice the machines that would do */
        if (row.job.cluster.machines == 1) continue;
        smaller.gpus = row.job.cluster.gpus / 2;
        half = compare(&smaller, names[i]);
        assert_true(!half.found || half.days > 20);
    }
}

/* Four machines hold a trillion parameters with their state in host memory, eight without, which is slower: more
 * machines than that still keep the deadline. */
static void a_slower_size_does_not_end_it(void **state)
{
    struct ash_compare_job job = job_for("kimi-k2", 0, 30);
    struct ash_compare_row row = compare(&job, "p6-b300.48xlarge");

    (void)state;
    if (!row.found) fail_msg("%s", row.reason);
    assert_true(row.days <= 30);
}

/* Rounding a batch to what machines divide is no other batch, however many GPUs there are. */
static void batches_stay_what_was_asked_for(void **state)
{
    static const double gpus[] = {288, 500, 700, 1500, 2048, 3000, 8192};
    static const char *const names[] = {"p5.48xlarge", "u-p6e-gb200x72"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(gpus); i++) {
        struct ash_compare_job job = job_for("llama-3-8b", gpus[i], 0);

        for (size_t k = 0; k < ASH_COUNT(names); k++) {
            struct ash_compare_row row = compare(&job, names[k]);

            if (row.found && fabs(row.job.global_batch / 1024 - 1) > 0.1)
                fail_msg("%s, %g GPUs: %g", names[k], gpus[i], row.job.global_batch);
        }
    }
}

/* What a floor leaves out is slower than it; what it leaves is the same plan. */
static void floors_leave_the_best(void **state)
{
    struct ash_plan_job job = job_of("qwen3-30b-a3b", "8xp5.48xlarge", 256, 4096);
    struct ash_search wanted = {.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_search_result result;
    struct ash_plan best, again;
    char text[2][128];

    (void)state;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, &best, 1, &result, NULL), 0);
    wanted.floor_tokens_s = best.step.tokens_s * 0.999;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, &again, 1, &result, NULL), 0);
    assert_string_equal(ash_layout_text(&best.layout, text[0], sizeof(text[0])),
                        ash_layout_text(&again.layout, text[1], sizeof(text[1])));
    assert_true(best.step.tokens_s == again.step.tokens_s);
    wanted.floor_tokens_s = best.step.tokens_s;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, &again, 1, &result, NULL), -ERANGE);
}

static void what_cannot_be_says_why(void **state)
{
    struct ash_compare_job job = job_for("llama-3.1-405b", 8, 0);
    struct ash_compare_row rows[3] = {compare(&job, "g5.48xlarge"), compare(&job, "dgx-h100"), {.found = false}};

    (void)state;
    assert_false(rows[0].found);
    assert_non_null(strstr(rows[0].reason, "does not fit"));
    job = job_for("llama-3.1-70b", 0, 0.01);
    rows[1] = compare(&job, "p5.48xlarge");
    assert_false(rows[1].found);
    assert_non_null(strstr(rows[1].reason, "more do not help"));
    job = job_for("llama-3-8b", 64, 0);
    rows[1] = compare(&job, "dgx-h100"); /* no price */
    rows[2] = compare(&job, "p5.48xlarge");
    qsort(rows, 3, sizeof(rows[0]), ash_compare_by_worth);
    assert_true(rows[0].usd > 0 && rows[1].usd == 0 && rows[1].found && !rows[2].found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices_add_up),
        cmocka_unit_test(deadlines_are_kept),
        cmocka_unit_test(a_slower_size_does_not_end_it),
        cmocka_unit_test(batches_stay_what_was_asked_for),
        cmocka_unit_test(floors_leave_the_best),
        cmocka_unit_test(what_cannot_be_says_why),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
