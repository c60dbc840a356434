/* Expert traffic: shares that can be worked out on paper, published measurements, and what
 * must hold between degrees. */
#include "unit/plan/facts.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "plan/audit/audit.h"

static void test_what_leaves_the_domain(void **state)
{
    static const struct {
        const char *cluster;
        double ranks, leaving;
    } cases[] = {{"32xp5.48xlarge", 32, 0.75},
                 {"32xp5.48xlarge", 64, 0.875},
                 {"32xp5.48xlarge", 8, 0},
                 {"4xu-p6e-gb200x72", 64, 0},
                 {"4xu-p6e-gb200x72", 256, 1 - 72 / 256.0}};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct ash_cluster cluster = cluster_of(cases[i].cluster);
        struct ash_dispatch dispatch = {
            .ranks = cases[i].ranks, .tokens = 4096, .hidden = 7168, .choices = 8, .element_bytes = 2, .imbalance = 1};
        struct ash_dispatch_time time;

        ash_dispatch_predict(&consts, &cluster, &dispatch, &time);
        assert_true(fabs(time.leaving - cases[i].leaving) < 1e-9);
        /* eight copies of 4096 tokens of 7168 values of two bytes, but those that stay on the rank */
        assert_true(fabs(time.inner_bytes + time.outer_bytes - 469762048.0 * (1 - 1 / cases[i].ranks)) < 1);
        assert_true((time.outer_s > 0) == (cases[i].leaving > 0));
    }
}

/* Two-level dispatch sends less across, fp8 half as much, and imbalance costs. */
static void test_kinds_of_dispatch(void **state)
{
    struct ash_cluster cluster = cluster_of("32xp5.48xlarge");
    struct ash_dispatch plain = {
        .ranks = 64, .tokens = 4096, .hidden = 7168, .choices = 8, .element_bytes = 2, .imbalance = 1};
    struct ash_dispatch two_level = plain, fp8 = plain, uneven = plain;
    struct ash_dispatch_time a, b;

    (void)state;
    two_level.two_level = true;
    fp8.element_bytes = 1;
    uneven.imbalance = 1.5;
    ash_dispatch_predict(&consts, &cluster, &plain, &a);
    ash_dispatch_predict(&consts, &cluster, &two_level, &b);
    assert_true(b.outer_bytes < 0.75 * a.outer_bytes && b.total_s < a.total_s);
    ash_dispatch_predict(&consts, &cluster, &fp8, &b);
    assert_true(b.there_s < 0.6 * a.there_s && fabs(b.back_s - a.back_s) < 1e-12);
    ash_dispatch_predict(&consts, &cluster, &uneven, &b);
    assert_true(b.total_s > 1.4 * a.total_s);
    plain.ranks = 1;
    ash_dispatch_predict(&consts, &cluster, &plain, &b);
    assert_true(b.total_s == 0 && b.leaving == 0);
}

/* Draw below bound, each number once. */
static void draw(uint64_t token, uint64_t stream, int bound, int count, int *numbers_out)
{
    for (int i = 0; i < count; i++)
        numbers_out[i] = (int)ash_rng_permute(token, stream, (uint64_t)i, (uint64_t)bound);
}

/* Domains other than the first that tokens go to in the mean, by drawing them: group_choices of the groups of experts,
 * then eight of 256 experts in these. */
static double drawn_copies(int domains, int groups, int group_choices)
{
    const int tokens = 4000, choices = 8;
    int chosen[64], experts[8], copies = 0;

    for (int token = 0; token < tokens; token++) {
        int each = 256 / groups, home = (int)ash_rng_below((uint64_t)token, 3, 0, (uint64_t)domains);
        bool seen[64] = {false};

        draw((uint64_t)token, 1, groups, group_choices, chosen);
        draw((uint64_t)token, 2, each * group_choices, choices, experts);
        for (int c = 0; c < choices; c++)
            seen[(chosen[experts[c] / each] * each + experts[c] % each) * domains / 256] = true;
        for (int d = 0; d < domains; d++)
            copies += seen[d] && d != home;
    }
    return (double)copies / tokens;
}

/* What groups of experts save across domains is what drawn tokens say. */
static void test_groups_of_experts(void **state)
{
    static const struct {
        int domains, groups, choices;
    } cases[] = {{8, 8, 4}, {4, 8, 4}, {2, 8, 4}, {16, 8, 4}, {8, 8, 3}, {8, 8, 1}, {8, 1, 1}, {4, 4, 4}};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct ash_cluster cluster = cluster_of("32xhgx-h800");
        struct ash_dispatch dispatch = {.ranks = 8 * cases[i].domains,
                                        .tokens = 1,
                                        .hidden = 1,
                                        .choices = 8,
                                        .groups = cases[i].groups,
                                        .group_choices = cases[i].choices,
                                        .element_bytes = 1,
                                        .two_level = true,
                                        .imbalance = 1,
                                        .network_share = 1};
        double drawn = drawn_copies(cases[i].domains, cases[i].groups, cases[i].choices);
        struct ash_dispatch_time time;

        ash_dispatch_predict(&consts, &cluster, &dispatch, &time);
        if (fabs(time.outer_bytes / drawn - 1) > 0.06)
            fail_msg("%d domains, %d of %d groups: %.3f copies, drawn %.3f", cases[i].domains, cases[i].choices,
                     cases[i].groups, time.outer_bytes, drawn);
        assert_true(time.inner_bytes > 0);
    }
}

static void test_published_traffic(void **state)
{
    struct ash_dispatch_check check;
    double sum = 0;
    size_t count = 0;

    (void)state;
    for (; ash_dispatch_check_at(&consts, catalog, count, &check); count++) {
        double error = fabs(check.predicted / check.measured - 1);

        if (error > 0.5)
            fail_msg("%s, %s, %g ranks: %.3g, not %.3g", check.machine, check.what, check.ranks, check.predicted,
                     check.measured);
        sum += error;
    }
    assert_int_equal(count, 38);
    assert_true(sum / (double)count < 0.15);
}

static void test_imbalance(void **state)
{
    const double even[] = {5, 5, 5, 5, 5, 5, 5, 5}, odd[] = {9, 1, 1, 1, 1, 1, 1, 1}, none[8] = {0};

    (void)state;
    assert_true(ash_dispatch_imbalance(even, 8, 4) == 1);
    assert_true(fabs(ash_dispatch_imbalance(odd, 8, 4) - 10.0 / 4) < 1e-12);
    assert_true(fabs(ash_dispatch_imbalance(odd, 8, 8) - 9.0 / 2) < 1e-12);
    assert_true(ash_dispatch_imbalance(none, 8, 2) == 1);
}

static struct ash_audit_job deepseek(const char *cluster, const char *layout)
{
    struct ash_audit_job job = {.fits_share = 0.1};

    job.job = job_of("deepseek-v3", cluster, 512, 4096);
    job.job.dedup_dispatch = false;
    job.layout = layout_of(&job.job, layout);
    return job;
}

static void test_audit(void **state)
{
    struct ash_audit_job job = deepseek("32xp6-b300.48xlarge", "tp=1,pp=8,ep=32");
    struct ash_audit audit;
    struct ash_err err = {0};
    double fastest_s = 0;
    char text[256];

    (void)state;
    assert_int_equal(ash_audit_run(&consts, &job, &audit, &err), 0);
    assert_true(fabs(audit.now.layer.leaving - 0.75) < 1e-9);
    assert_true(audit.now.share > 0 && audit.now.share < 1 && audit.now.exposed_s < audit.now.step_s);
    assert_true(audit.degree_count >= 5);
    for (size_t i = 2; i < audit.degree_count; i++)
        assert_true(audit.degrees[i].share >= audit.degrees[i - 1].share - 0.02); /* traffic only grows with EP */
    for (size_t i = 0; i < audit.change_count; i++)
        if (strcmp(audit.changes[i].name, "two-level and fp8") == 0)
            assert_true(audit.changes[i].share < audit.now.share);
    for (size_t i = 0; i < audit.degree_count; i++)
        if (audit.degrees[i].layout.ep == audit.fastest) fastest_s = audit.degrees[i].step_s;
    for (size_t i = 0; i < audit.degree_count; i++)
        assert_true(!audit.degrees[i].fits || audit.degrees[i].step_s >= fastest_s);
    assert_true(fastest_s > 0 && audit.flip_bandwidth > 0);
    /* at the flip the share is what "fits" means */
    job.job.cluster.machine.net_bandwidth = audit.flip_bandwidth * job.job.cluster.machine.gpus;
    assert_int_equal(ash_audit_run(&consts, &job, &audit, &err), 0);
    assert_true(fabs(audit.now.share - 0.1) < 1e-3);
    assert_true(strlen(ash_audit_verdict(&job, &audit, text, sizeof(text))) > 10);
}

static void test_inside_a_rack_it_fits(void **state)
{
    struct ash_audit_job job = deepseek("4xu-p6e-gb200x72", "tp=1,pp=9,ep=32");
    struct ash_audit audit;
    struct ash_err err = {0};
    char text[256];

    (void)state;
    assert_int_equal(ash_audit_run(&consts, &job, &audit, &err), 0);
    assert_true(audit.now.layer.leaving == 0 && audit.now.outer_s == 0 && audit.flip_bandwidth == 0);
    assert_non_null(strstr(ash_audit_verdict(&job, &audit, text, sizeof(text)), "inside the NVLink domain"));
}

/* The verdict never advises a longer step: DeepSeek's own EP64 has a shorter one than EP8, whose share is smaller. */
static void test_step_time_decides(void **state)
{
    static const char *const layouts[] = {"tp=1,pp=16,ep=64", "tp=1,pp=16,ep=32", "tp=1,pp=16,ep=16"};
    struct ash_err err = {0};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(layouts); i++) {
        struct ash_audit_job job = deepseek("256xhgx-h800", layouts[i]);
        struct ash_audit audit;
        char text[256], advice[32];
        int ep = 0;

        job.two_level = job.fp8_dispatch = true;
        assert_int_equal(ash_audit_run(&consts, &job, &audit, &err), 0);
        ash_audit_verdict(&job, &audit, text, sizeof(text));
        assert_null(strstr(text, "fits if"));
        if (sscanf(text, "%31s EP%d:", advice, &ep) != 2) continue;
        for (size_t d = 0; d < audit.degree_count; d++)
            if (audit.degrees[d].layout.ep == ep)
                assert_true(audit.degrees[d].fits && audit.degrees[d].step_s < audit.now.step_s);
    }
}

static void test_dense_models_are_refused(void **state)
{
    struct ash_audit_job job = deepseek("32xp6-b300.48xlarge", "tp=1,pp=8,ep=32");
    struct ash_audit audit;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_shape_find("llama-3.1-70b", &job.job.shape, &err), 0);
    assert_true(ash_audit_run(&consts, &job, &audit, &err) < 0);
    assert_non_null(strstr(err.text, "no experts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_leaves_the_domain),
        cmocka_unit_test(test_kinds_of_dispatch),
        cmocka_unit_test(test_groups_of_experts),
        cmocka_unit_test(test_published_traffic),
        cmocka_unit_test(test_imbalance),
        cmocka_unit_test(test_audit),
        cmocka_unit_test(test_inside_a_rack_it_fits),
        cmocka_unit_test(test_step_time_decides),
        cmocka_unit_test(test_dense_models_are_refused),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
