/* The tree over grains against its recursive definition, to the bit, for every count up to 40. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/grains.h"

#define LEAF 1003
#define SUM 1000
#define GRAINS_MAX 40

static float leaf_value(size_t grain, size_t i)
{
    return (float)ash_rng_normal(1, grain, i) * (i % 3 == 0 ? 1e-4f : 1e3f); /* so that the order of additions shows */
}

/* The definition: split at the largest power of two below n. */
static float tree_sum(size_t first, size_t count, size_t i)
{
    size_t half = 1;

    if (count == 1) return leaf_value(first, i);
    while (2 * half < count)
        half *= 2;
    return tree_sum(first, half, i) + tree_sum(first + half, count - half, i);
}

static double tree_loss(size_t first, size_t count)
{
    size_t half = 1;

    if (count == 1) return ash_rng_normal(2, first, 0) * 1e6;
    while (2 * half < count)
        half *= 2;
    return tree_loss(first, half) + tree_loss(first + half, count - half);
}

static void run_once(struct ash_grains *grains, size_t count)
{
    double losses[GRAINS_MAX];
    float *sum = NULL;

    ash_grains_reset(grains);
    for (size_t g = 0; g < count; g++) {
        float *leaf = ash_grains_begin(grains);
        for (size_t i = 0; i < LEAF; i++) {
            assert_true(leaf[i] == 0.0f);
            leaf[i] = leaf_value(g, i);
        }
        ash_grains_end(grains);
        losses[g] = tree_loss(g, 1);
    }
    assert_int_equal(ash_grains_finish(grains, &sum, NULL), 0);
    for (size_t i = 0; i < SUM; i++)
        assert_true(sum[i] == tree_sum(0, count, i));
    assert_true(ash_grains_fold(losses, count) == tree_loss(0, count));
}

static void test_every_count_follows_the_definition(void **state)
{
    struct ash_exec exec = {0};

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref", 2, NULL), 0);
    for (size_t count = 1; count <= GRAINS_MAX; count++) {
        struct ash_grains grains;
        size_t log2 = 0;
        assert_int_equal(ash_grains_init(&grains, &exec, NULL, LEAF, SUM, count, NULL), 0);
        while (count >> (log2 + 1) != 0)
            log2++;
        assert_int_equal(grains.buffer_count, log2 + 1);
        run_once(&grains, count);
        run_once(&grains, count); /* a second step starts from nothing */
        ash_grains_fini(&grains);
    }
    ash_exec_fini(&exec);
}

static void test_senseless_sizes_are_refused(void **state)
{
    struct ash_exec exec = {.memory = &ash_memory_host};
    struct ash_grains grains;

    (void)state;
    assert_true(ash_grains_init(&grains, &exec, NULL, 10, 10, 0, NULL) < 0);
    assert_true(ash_grains_init(&grains, &exec, NULL, 10, 11, 1, NULL) < 0);
    assert_true(ash_grains_init(&grains, &exec, NULL, 10, 10, (size_t)1 << 40, NULL) < 0);
    ash_grains_fini(&grains);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_count_follows_the_definition),
        cmocka_unit_test(test_senseless_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
