/* The cost model: the cheaper algorithm is taken, lines are found again from points on them, and files are read and
 * refused. / */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/core/cost.h"

static void test_choose(void **state)
{
    const struct ash_cost cost = {
        .intra_node = {{.latency_s = 1e-6, .bytes_per_s = 1e9}, {.latency_s = 3e-6, .bytes_per_s = 1e9}}};

    (void)state;
    assert_int_equal(ash_cost_choose_intra_node(&cost, 2, 0), ASH_COST_ONE_SHOT);
    assert_int_equal(ash_cost_choose_intra_node(&cost, 2, 1999),
                     ASH_COST_ONE_SHOT); /* 1 us + 2 * 2000 ns against 3 us + 2000 ns */
    assert_int_equal(ash_cost_choose_intra_node(&cost, 2, 2001), ASH_COST_TWO_SHOT);
    assert_int_equal(ash_cost_choose_intra_node(&cost, 5, 501), ASH_COST_TWO_SHOT);
    assert_int_equal(ash_cost_choose_intra_node(&ash_cost_default, 2, 100), ASH_COST_ONE_SHOT);
    assert_int_equal(ash_cost_choose_intra_node(&ash_cost_default, 2, 100000), ASH_COST_TWO_SHOT);
}

/* Four ranks on two nodes of two: bytes that leave a node. */
static void test_inter_node(void **state)
{
    const struct ash_cost_shape shape = {.ranks = 4, .nodes = 2, .here = 2, .pieces = 1};
    struct ash_cost cost = ash_cost_default;

    (void)state;
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_REDUCE, ASH_COST_FLAT, &shape, 100) == 400);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_REDUCE, ASH_COST_HIERARCHICAL, &shape, 100) == 100);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_REDUCE, ASH_COST_FLAT_TWO_SHOT, &shape, 100) == 200);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_REDUCE, ASH_COST_HIERARCHICAL_TWO_SHOT, &shape, 100) == 100);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_REDUCE_SCATTER, ASH_COST_FLAT, &shape, 100) == 100);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_REDUCE_SCATTER, ASH_COST_HIERARCHICAL, &shape, 100) == 50);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_GATHER, ASH_COST_FLAT, &shape, 100) == 400);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_GATHER, ASH_COST_HIERARCHICAL, &shape, 100) == 200);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_BROADCAST, ASH_COST_FLAT, &shape, 100) == 200);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_BROADCAST, ASH_COST_HIERARCHICAL, &shape, 100) == 100);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_TO_ALL, ASH_COST_FLAT, &shape, 100) == 100);
    assert_true(ash_cost_inter_node_bytes(ASH_COST_ALL_TO_ALL, ASH_COST_HIERARCHICAL, &shape, 100) == 100);
    for (int algorithm = 0; algorithm < ASH_COST_INTER_NODE_COUNT; algorithm++) {
        for (int other = 0; other < ASH_COST_INTER_NODE_COUNT; other++)
            cost.inter_node[ASH_COST_ALL_REDUCE][other].latency_s = other == algorithm ? 1e-6 : 1;
        assert_int_equal(ash_cost_choose_inter_node(&cost, ASH_COST_ALL_REDUCE, &shape, 1000), algorithm);
    }
    cost.inter_node[ASH_COST_BROADCAST][ASH_COST_FLAT] = (struct ash_cost_line){.latency_s = 1e-6, .bytes_per_s = 1e9};
    cost.inter_node[ASH_COST_BROADCAST][ASH_COST_HIERARCHICAL] =
        (struct ash_cost_line){.latency_s = 2e-6, .bytes_per_s = 1e9};
    assert_int_equal(ash_cost_choose_inter_node(&cost, ASH_COST_BROADCAST, &shape, 999), ASH_COST_FLAT);
    assert_int_equal(ash_cost_choose_inter_node(&cost, ASH_COST_BROADCAST, &shape, 1001), ASH_COST_HIERARCHICAL);
}

static void test_fit(void **state)
{
    double bytes[] = {100, 1000, 50000, 1000000}, seconds[4];
    struct ash_cost_line line;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        seconds[i] = 2e-6 + bytes[i] / 5e9;
    line = ash_cost_fit(bytes, seconds, 4);
    assert_true(line.latency_s > 1.999e-6 && line.latency_s < 2.001e-6);
    assert_true(line.bytes_per_s > 4.999e9 && line.bytes_per_s < 5.001e9);
    for (size_t i = 0; i < 4; i++) /* a line that would begin below nothing */
        seconds[i] = bytes[i] * bytes[i] / 1e15 + 1e-9;
    line = ash_cost_fit(bytes, seconds, 4);
    assert_true(line.latency_s >= 0 && line.bytes_per_s > 0);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#define LINE "{\"latency_us\":3,\"gb_per_s\":2}"
#define INSIDE "{\"all_reduce\":{\"one_shot\":" LINE ",\"two_shot\":" LINE "}"

#define BOTH "{\"flat\":" LINE ",\"hierarchical\":" LINE
#define OLDER                                                                                                          \
    "{\"all_reduce\":" BOTH ",\"flat_two_shot\":" LINE ",\"hierarchical_two_shot\":" LINE "},\"reduce_scatter\":" BOTH \
    "},\"all_gather\":" BOTH "},\"broadcast\":" BOTH "}}"

static void test_file(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"all_reduce\":{}}",
                                      "{\"all_reduce\":{\"one_shot\":{\"latency_us\":1}}}",
                                      "{\"all_reduce\":{\"one_shot\":{\"latency_us\":-1,\"gb_per_s\":2}}}",
                                      "{\"all_reduce\":{\"one_shot\":{\"latency_us\":1,\"gb_per_s\":0}}}",
                                      INSIDE ",\"inter_node\":{}}",
                                      INSIDE ",\"inter_node\":{\"all_reduce\":{\"flat\":{\"latency_us\":1}}}}"};
    char path[] = "/tmp/ashlar-test-cost-XXXXXX";
    struct ash_cost cost = {0}, kept = {0};
    struct ash_err err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ash_cost_save(path, &ash_cost_default, &err), 0);
    assert_int_equal(ash_cost_load(path, &cost, &err), 0);
    for (int algorithm = 0; algorithm < ASH_COST_INTRA_NODE_COUNT; algorithm++) {
        double ratio = cost.intra_node[algorithm].bytes_per_s / ash_cost_default.intra_node[algorithm].bytes_per_s;

        assert_true(ratio > 0.999 && ratio < 1.001);
    }
    for (int algorithm = 0; algorithm < ASH_COST_INTER_NODE_COUNT; algorithm++) {
        double ratio =
            cost.inter_node[0][algorithm].bytes_per_s / ash_cost_default.inter_node[0][algorithm].bytes_per_s;

        assert_true(ratio > 0.999 && ratio < 1.001);
    }
    cost.intra_node[0] =
        ash_cost_fit((const double[]){1, 2}, (const double[]){2e-6, 1e-6}, 2); /* more bytes, less time */
    assert_int_equal(ash_cost_save(path, &cost, &err), 0);
    assert_int_equal(ash_cost_load(path, &cost, &err), 0);
    write_text(path, INSIDE "}"); /* without lines between nodes: those stay as they were */
    assert_int_equal(ash_cost_load(path, &cost, &err), 0);
    assert_true(cost.intra_node[0].bytes_per_s == 2e9);
    assert_memory_equal(&cost.inter_node, &ash_cost_default.inter_node, sizeof(cost.inter_node));
    write_text(path, INSIDE ",\"inter_node\":" OLDER "}"); /* written before all-to-all had a choice */
    assert_int_equal(ash_cost_load(path, &cost, &err), 0);
    assert_true(cost.inter_node[ASH_COST_BROADCAST][ASH_COST_FLAT].bytes_per_s == 2e9);
    assert_memory_equal(&cost.inter_node[ASH_COST_ALL_TO_ALL], &ash_cost_default.inter_node[ASH_COST_ALL_TO_ALL],
                        sizeof(cost.inter_node[0]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_text(path, bad[i]);
        assert_int_equal(ash_cost_load(path, &kept, &err), -EINVAL);
        assert_non_null(strstr(err.text, path));
        assert_true(kept.intra_node[0].bytes_per_s == 0); /* untouched */
    }
    unlink(path);
    assert_int_equal(ash_cost_load(path, &kept, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choose), cmocka_unit_test(test_inter_node),
                                       cmocka_unit_test(test_fit), cmocka_unit_test(test_file)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
