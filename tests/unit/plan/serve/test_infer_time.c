/* Serving: predictions against published measurements, and against what must be true whatever the constants. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plan/validate/infer_row.h"

#define ROWS_MAX 2000

struct fixture {
    struct ash_catalog *catalog;
    struct ash_csv *csv;
    struct ash_consts consts;
};

static int open_fixture(void **state)
{
    static struct fixture fixture;
    struct ash_err err = {0};

    if (ash_catalog_open(NULL, 0, &fixture.catalog, &err) < 0 ||
        ash_csv_load(TEST_DATA "/plan/inference.csv", &fixture.csv, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    fixture.consts = ash_consts_default();
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;

    ash_csv_close(fixture->csv);
    ash_catalog_close(fixture->catalog);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct errors {
    double value[ROWS_MAX];
    size_t count, unread;
};

static double quantile(struct errors *errors, double share)
{
    qsort(errors->value, errors->count, sizeof(errors->value[0]), by_value);
    return errors->value[(size_t)((double)(errors->count - 1) * share)];
}

/* Relative errors over the primary rows whose arch_type begins with type. */
static void predict_rows(struct fixture *fixture, const char *type, struct errors *errors)
{
    struct ash_err err = {0};

    memset(errors, 0, sizeof(*errors));
    for (size_t i = 0; i < ash_csv_rows(fixture->csv) && errors->count < ROWS_MAX; i++) {
        struct ash_infer_row row;

        if (strcmp(ash_csv_field(fixture->csv, i, "primary"), "1") != 0) continue;
        if (strncmp(ash_csv_field(fixture->csv, i, "arch_type"), type, strlen(type)) != 0) continue;
        if (ash_infer_row_read(fixture->catalog, fixture->csv, i, &row, &err) < 0) {
            errors->unread++;
            continue;
        }
        errors->value[errors->count++] = fabs(ash_infer_row_predict(&fixture->consts, &row) / row.measured - 1);
    }
}

static void test_published_rows(void **state)
{
    static struct errors errors;

    predict_rows(*state, "", &errors);
    assert_int_equal(errors.count, 745);
    assert_int_equal(errors.unread, 2); /* fleet averages without lengths */
    if (quantile(&errors, 0.5) > 0.10 || quantile(&errors, 0.9) > 0.35)
        fail_msg("median %.3f, 90th percentile %.3f", quantile(&errors, 0.5), quantile(&errors, 0.9));
    predict_rows(*state, "dense", &errors);
    if (quantile(&errors, 0.5) > 0.08 || quantile(&errors, 0.9) > 0.25)
        fail_msg("dense: median %.3f, 90th percentile %.3f", quantile(&errors, 0.5), quantile(&errors, 0.9));
}

/* Time between tokens was not what the rows are scored by, so it must come out by itself. */
static void test_published_latencies(void **state)
{
    struct fixture *fixture = *state;
    struct ash_err err = {0};
    static struct errors errors;

    errors.count = 0;
    for (size_t i = 0; i < ash_csv_rows(fixture->csv); i++) {
        double measured = ash_csv_number(fixture->csv, i, "tpot_ms_mean", 0) * 1e-3;
        struct ash_infer_row row;
        struct ash_infer_rate rate;

        if (measured <= 0 || ash_infer_row_read(fixture->catalog, fixture->csv, i, &row, &err) < 0) continue;
        if (row.load.arrivals_s <= 0 && row.load.concurrency <= 0) continue; /* all at once: no steady latency */
        ash_infer_predict(&fixture->consts, &row.infer, &row.load, &rate);
        if (!rate.saturated) errors.value[errors.count++] = fabs(rate.tpot_s / measured - 1);
    }
    assert_true(errors.count >= 40);
    if (quantile(&errors, 0.5) > 0.25) fail_msg("median error %.3f of %zu", quantile(&errors, 0.5), errors.count);
}

static struct ash_infer llama70(struct fixture *fixture, const char *cluster, int tp)
{
    struct ash_infer infer = {.tp = tp, .pp = 1, .ep = 1, .attn_dp = 1};
    struct ash_err err = {0};

    if (ash_shape_find("llama-3.1-70b", &infer.shape, &err) < 0 ||
        ash_cluster_parse(fixture->catalog, cluster, &infer.cluster, &err) < 0)
        fail_msg("%s", err.text);
    return infer;
}

static void test_memory(void **state)
{
    struct fixture *fixture = *state;
    struct ash_infer one = llama70(fixture, "p5.48xlarge", 1), eight = llama70(fixture, "p5.48xlarge", 8);

    assert_true(ash_infer_requests(&fixture->consts, &one, 4096) == 0); /* 141 GB do not fit into 80 */
    assert_true(fabs(ash_infer_weight_bytes(&eight) * 8 / 141.1e9 - 1) < 0.01);
    /* 2 * 80 layers * 8 heads * 128 * 2 bytes = 327,680 bytes a token over eight GPUs */
    assert_true(ash_infer_requests(&fixture->consts, &eight, 4096) > 250);
    assert_true(ash_infer_requests(&fixture->consts, &eight, 4096) < 400);
    assert_int_equal(ash_infer_gpus(&eight), 8);
    eight.cache = ASH_GPU_FP8;
    assert_true(ash_infer_requests(&fixture->consts, &eight, 4096) > 500);
}

static void test_passes(void **state)
{
    struct fixture *fixture = *state;
    struct ash_infer two = llama70(fixture, "p5en.48xlarge", 2), eight = llama70(fixture, "p5en.48xlarge", 8);
    struct ash_infer_time a, b;

    ash_infer_pass(&fixture->consts, &two, 1, 1, 1000, &a);
    assert_true(fabs(a.compute + a.memory + a.nvlink + a.network + a.host - a.total) < 1e-12);
    assert_true(a.memory > a.compute); /* one sequence: reading weights */
    assert_true(a.total > 141e9 / 2 / 4.8e12);
    ash_infer_pass(&fixture->consts, &eight, 1, 1, 1000, &b);
    assert_true(b.total < a.total && b.total > a.total / 4);
    ash_infer_pass(&fixture->consts, &two, 256, 1, 1000, &b);
    assert_true(b.total > a.total && b.total < 256 * a.total / 4);
    ash_infer_pass(&fixture->consts, &two, 1, 8192, 0, &a);
    assert_true(a.compute > a.memory);
    ash_infer_pass(&fixture->consts, &two, 1, 8192, 100000, &b);
    assert_true(b.total > 1.5 * a.total); /* a long history costs attention */
}

static void test_loads(void **state)
{
    struct fixture *fixture = *state;
    struct ash_infer infer = llama70(fixture, "p5en.48xlarge", 4);
    struct ash_infer_load load = {.in_tokens = 1000, .out_tokens = 500, .continuous = true};
    struct ash_infer_rate few, many, most, slow, flood;

    load.concurrency = 4;
    ash_infer_predict(&fixture->consts, &infer, &load, &few);
    load.concurrency = 64;
    ash_infer_predict(&fixture->consts, &infer, &load, &many);
    load.concurrency = 0;
    ash_infer_predict(&fixture->consts, &infer, &load, &most);
    assert_true(few.fits && few.tpot_s < many.tpot_s && few.out_tokens_s < many.out_tokens_s);
    assert_true(most.out_tokens_s > many.out_tokens_s && most.concurrency > 64);
    assert_true(fabs(many.requests_s * 500 / many.out_tokens_s - 1) < 1e-9);
    assert_true(fabs(many.out_tokens_s_gpu * 4 / many.out_tokens_s - 1) < 1e-9);
    load.arrivals_s = 1;
    ash_infer_predict(&fixture->consts, &infer, &load, &slow);
    assert_true(!slow.saturated && fabs(slow.out_tokens_s - 500) < 1e-6);
    load.arrivals_s = 1000;
    ash_infer_predict(&fixture->consts, &infer, &load, &flood);
    assert_true(flood.saturated && flood.out_tokens_s < 1.1 * most.out_tokens_s);
    infer = llama70(fixture, "p5.48xlarge", 1);
    ash_infer_predict(&fixture->consts, &infer, &load, &flood);
    assert_false(flood.fits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_rows), cmocka_unit_test(test_published_latencies),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_passes),
        cmocka_unit_test(test_loads),
    };

    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
