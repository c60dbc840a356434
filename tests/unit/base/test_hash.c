/* hash: known answers, slices add up, and no change goes unseen. */
#include "base/hash.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT 2500

static uint32_t words[COUNT];

static int fill(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        words[i] = i * 2654435761u;
    return 0;
}

static void test_known_answers(void **state)
{
    (void)state;
    assert_int_equal(ash_hash_mix(0), 0);
    assert_int_equal(ash_hash_mix(1), 0x5692161d100b05e5u);
    assert_int_equal(ash_hash_bytes("ashlar", 6, 0), 0x107587c5909cdde8u);
    assert_int_equal(ash_hash_str("ashlar"), 0x107587c5909cdde8u);
    assert_int_equal(ash_hash_bytes("", 0, 0), 0x2d06800538d394c2u); /* XXH3's own test vector */
    assert_int_equal(ash_hash_words(words, COUNT, 0, 0), 0x36a3f22639e709adu);
    assert_int_equal(ash_hash_words(words, COUNT, 0xfffffe00u, 9), 0x7f35a08807c6cd5cu);
    assert_int_equal(ash_hash_words(words, 0, 0, 0), 0);
    assert_int_equal(ash_hash_words(NULL, 0, 5, 5), 0);
}

/* Any cut gives the same total, also where the index passes 2^32. */
static void test_slices_add_up(void **state)
{
    static const uint64_t firsts[] = {0, 1, 77, 0xfffffff0u, 0xfffffffff0u};
    (void)state;

    for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
        uint64_t whole = ash_hash_words(words, COUNT, firsts[f], 3);
        for (size_t cut = 0; cut <= COUNT; cut += 61) {
            uint64_t sum =
                ash_hash_words(words, cut, firsts[f], 3) + ash_hash_words(words + cut, COUNT - cut, firsts[f] + cut, 3);
            assert_int_equal(sum, whole);
        }
    }
}

static void test_every_bit_counts(void **state)
{
    uint64_t whole = ash_hash_words(words, COUNT, 0, 1);
    (void)state;

    for (uint32_t i = 0; i < COUNT; i += 13) {
        for (int bit = 0; bit < 32; bit++) {
            words[i] ^= (uint32_t)1 << bit;
            assert_int_not_equal(ash_hash_words(words, COUNT, 0, 1), whole);
            words[i] ^= (uint32_t)1 << bit;
        }
    }
    assert_int_equal(ash_hash_words(words, COUNT, 0, 1), whole);
    assert_int_not_equal(ash_hash_words(words, COUNT, 1, 1), whole);
    assert_int_not_equal(ash_hash_words(words, COUNT, 0, 2), whole);
    assert_int_not_equal(ash_hash_words(words, COUNT, (uint64_t)1 << 32, 1), whole);
}

static void test_swaps_are_seen(void **state)
{
    uint64_t whole = ash_hash_words(words, COUNT, 0, 1);
    (void)state;

    for (uint32_t i = 0; i + 1 < COUNT; i++) {
        uint32_t j = i * 7 % COUNT, held = words[i];
        if (words[i] == words[j]) continue;
        words[i] = words[j], words[j] = held;
        assert_int_not_equal(ash_hash_words(words, COUNT, 0, 1), whole);
        held = words[i], words[i] = words[j], words[j] = held;
    }
}

/* Shares of all-zero tensors differ by place: lengths and shifts are told apart. */
static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void test_zeros_of_all_lengths_differ(void **state)
{
    static uint32_t zeros[COUNT];
    static uint64_t sums[COUNT + 1];
    (void)state;

    for (size_t n = 0; n <= COUNT; n++)
        sums[n] = ash_hash_words(zeros, n, 0, 0);
    qsort(sums, COUNT + 1, sizeof(sums[0]), compare);
    for (size_t n = 0; n < COUNT; n++)
        assert_int_not_equal(sums[n], sums[n + 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_slices_add_up),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_swaps_are_seen),
        cmocka_unit_test(test_zeros_of_all_lengths_differ),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
