/* Examples: written, read, packed. */
#include "unit/sanitized.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/data/examples_priv.h"

#define COUNT 300
#define SEQ 64

/* Best fit, longest first: bins hold no more than they can, and few rows are empty. */
static void test_plan(void **state)
{
    size_t lengths[COUNT], bin_of[COUNT], other[COUNT], used[COUNT] = {0}, rows, large;
    uint64_t rank[COUNT];
    ssize_t bins;

    (void)state;
    for (size_t seed = 1; seed < 20; seed++) {
        rows = large = 0;
        memset(used, 0, sizeof(used));
        for (size_t i = 0; i < COUNT; i++) {
            lengths[i] = 1 + ash_rng_below(seed, 1, i, SEQ);
            rank[i] = ash_rng_permute(seed, 2, i, COUNT);
            rows += lengths[i];
            large += lengths[i] > SEQ / 2; /* no two of these share a bin */
        }
        bins = ash_pack_plan(lengths, rank, COUNT, SEQ, bin_of);
        assert_true(bins > 0);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(bin_of[i] < (size_t)bins);
            used[bin_of[i]] += lengths[i];
        }
        for (ssize_t b = 0; b < bins; b++)
            assert_true(used[b] > 0 && used[b] <= SEQ);
        assert_true((size_t)bins <= 2 + (size_t)(1.05 * (double)(large * SEQ > rows ? large : rows / SEQ)));
        for (size_t i = 0; i < COUNT; i++)
            rank[i] = ash_rng_permute(seed, 3, i, COUNT); /* another epoch: as many bins */
        assert_int_equal(ash_pack_plan(lengths, rank, COUNT, SEQ, other), bins);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
