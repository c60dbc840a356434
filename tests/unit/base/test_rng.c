/* rng: known answers (a changed bit would change every model drawn from a seed), distributions, and permutations. */
#include "base/rng.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"

static void test_known_answers(void **state)
{
    static const struct {
        uint64_t seed, stream, counter, word;
        double uniform, normal;
        uint64_t below, image;
    } known[] = {
        {0, 0, 0, 0x112d541fd4565a1du, 0x1.12d541fd45658p-4, 0x1.74cc465c35f35p-5, 67098, 4343},
        {0, 0, 1, 0xa6d79dffd3f87e27u, 0x1.4daf3bffa7f0fp-1, -0x1.37d201201b058p-7, 651729, 6432},
        {1, 2, 3, 0x9e1bca31d3a33bbfu, 0x1.3c379463a7467p-1, -0x1.174723082bcbdp-1, 617613, 635},
        {42, 7, UINT64_MAX, 0x44a416c4a047dac1u, 0x1.12905b12811f6p-2, -0x1.8f78363baaba7p-1, 268129, 9335},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0xfde9ba7e8d5db33fu, 0x1.fbd374fd1abb6p-1, 0x1.13259b6d21386p+1, 991850,
         9652},
    };
    static const uint64_t ten[10] = {7, 0, 2, 3, 6, 1, 4, 8, 5, 9};
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(known); i++) {
        uint64_t seed = known[i].seed, stream = known[i].stream, counter = known[i].counter;
        double normal = ash_rng_normal(seed, stream, counter);
        assert_int_equal(ash_rng_u64(seed, stream, counter), known[i].word);
        assert_true(ash_rng_uniform(seed, stream, counter) == known[i].uniform);
        assert_memory_equal(&normal, &known[i].normal, sizeof(normal));
        assert_int_equal(ash_rng_below(seed, stream, counter, 1000003), known[i].below);
        assert_int_equal(ash_rng_permute(seed, stream, counter % 10007, 10007), known[i].image);
    }
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(ash_rng_permute(3, 4, i, 10), ten[i]);
}

static void test_uniform_and_below(void **state)
{
    enum { DRAWS = 100000 };
    int bins[16] = {0}, sevenths[7] = {0};
    (void)state;

    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = ash_rng_uniform(5, 6, i);
        uint64_t below = ash_rng_below(5, 7, i, 7);
        assert_true(u >= 0 && u < 1);
        assert_true(below < 7);
        bins[(int)(u * 16)]++;
        sevenths[below]++;
        assert_int_equal(ash_rng_below(i, 0, 0, 1), 0);
        assert_true(ash_rng_below(1, 1, i, UINT64_MAX) < UINT64_MAX);
    }
    for (int b = 0; b < 16; b++) /* within six standard deviations */
        assert_true(abs(bins[b] - DRAWS / 16) < 6 * 77);
    for (int b = 0; b < 7; b++)
        assert_true(abs(sevenths[b] - DRAWS / 7) < 6 * 111);
}

/* A bound just above half the range rejects half of all words: the worst case of the unbiased method. */
static void test_below_is_unbiased_for_large_bounds(void **state)
{
    const uint64_t bound = ((uint64_t)1 << 63) + 1;
    int low = 0;
    (void)state;

    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t x = ash_rng_below(8, 9, i, bound);
        assert_true(x < bound);
        low += x < bound / 2;
    }
    assert_true(abs(low - 10000) < 6 * 71);
}

static void test_normal(void **state)
{
    enum { DRAWS = 400000 };
    static double draws[DRAWS];
    double sum = 0, squares = 0, fourths = 0;
    int beyond_two = 0;
    (void)state;

    ash_rng_normals(1, 0, 0, draws, DRAWS);
    for (size_t i = 0; i < DRAWS; i++) {
        double x = draws[i];
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
        beyond_two += fabs(x) > 2;
    }
    assert_true(fabs(sum / DRAWS) < 6 * 0.0016);
    assert_true(fabs(squares / DRAWS - 1) < 6 * 0.0023);
    assert_true(fabs(fourths / DRAWS - 3) < 6 * 0.0155);
    assert_true(fabs((double)beyond_two / DRAWS - 0.0455) < 0.002);
}

/* A draw depends on its counter alone, not on how many are drawn with it or where the others begin. */
static void test_many_normals_are_the_same(void **state)
{
    enum { DRAWS = 100 };
    double all[DRAWS], some[DRAWS];
    (void)state;

    for (uint64_t i = 0; i < DRAWS; i++)
        all[i] = ash_rng_normal(3, 4, i);
    for (size_t first = 0; first < 20; first++) {
        for (size_t count = 0; count <= DRAWS - first; count++) {
            memset(some, 0, sizeof(some));
            ash_rng_normals(3, 4, first, some, count);
            assert_memory_equal(some, all + first, count * sizeof(*all));
            for (size_t i = count; i < DRAWS; i++)
                assert_true(some[i] == 0);
        }
    }
}

/* Consecutive streams, counters and seeds must not be related. */
static void test_neighbours_are_independent(void **state)
{
    enum { DRAWS = 100000 };
    double products[3] = {0};
    (void)state;

    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = ash_rng_normal(10, 20, i);
        products[0] += x * ash_rng_normal(10, 20, i + 1);
        products[1] += x * ash_rng_normal(10, 21, i);
        products[2] += x * ash_rng_normal(11, 20, i);
    }
    for (int k = 0; k < 3; k++)
        assert_true(fabs(products[k] / DRAWS) < 6 * 0.0032);
}

static void test_permutation_is_a_bijection(void **state)
{
    static const uint64_t counts[] = {1,  2,  3,   4,   5,   7,   15,   16,   17,   63,
                                      64, 65, 100, 255, 256, 257, 1000, 4096, 4097, 65537};
    static unsigned char seen[65537];
    (void)state;

    for (size_t c = 0; c < ASH_COUNT(counts); c++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t i = 0; i < counts[c]; i++) {
                uint64_t image = ash_rng_permute(seed, c, i, counts[c]);
                assert_true(image < counts[c]);
                assert_int_equal(seen[image]++, 0);
            }
        }
    }
}

static void test_permutation_of_huge_counts(void **state)
{
    static const uint64_t counts[] = {(uint64_t)1 << 32, ((uint64_t)1 << 62) + 1, UINT64_MAX};
    (void)state;

    for (size_t c = 0; c < ASH_COUNT(counts); c++)
        for (uint64_t i = 0; i < 1000; i++)
            assert_true(ash_rng_permute(1, 2, counts[c] - 1 - i, counts[c]) < counts[c]);
}

static void test_permutations_differ_and_shuffle(void **state)
{
    enum { COUNT = 10000 };
    int fixed = 0, same = 0;
    double correlation = 0;
    (void)state;

    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t a = ash_rng_permute(1, 0, i, COUNT), b = ash_rng_permute(1, 1, i, COUNT);
        fixed += a == i;
        same += a == b;
        correlation += ((double)a - COUNT / 2) * ((double)i - COUNT / 2);
    }
    assert_true(fixed < 12 && same < 12); /* about 1 each is expected */
    assert_true(fabs(correlation / ((double)COUNT * COUNT * COUNT / 12)) < 0.06);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_uniform_and_below),
        cmocka_unit_test(test_below_is_unbiased_for_large_bounds),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_many_normals_are_the_same),
        cmocka_unit_test(test_neighbours_are_independent),
        cmocka_unit_test(test_permutation_is_a_bijection),
        cmocka_unit_test(test_permutation_of_huge_counts),
        cmocka_unit_test(test_permutations_differ_and_shuffle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
