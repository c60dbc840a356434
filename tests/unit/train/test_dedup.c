/* Dedup: equal texts, nearly equal ones, and signatures against the share of runs that was counted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/data/dedup.h"

#define WORDS 400

/* A text of WORDS drawn words, of which one in `every` (0: none) is another. */
static size_t write_text(char *text, size_t bytes, uint64_t seed, uint64_t every, uint64_t change)
{
    size_t size = 0;

    for (uint64_t i = 0; i < WORDS; i++) {
        uint64_t drawn =
            every > 0 && i % every == change % every ? change * WORDS + i : ash_rng_below(seed, 1, i, 100000);

        size += (size_t)snprintf(text + size, bytes - size, "w%llu ", (unsigned long long)drawn);
    }
    return size;
}

static enum ash_dedup_verdict add(struct ash_dedup *dedup, const char *text, size_t *like)
{
    enum ash_dedup_verdict verdict = ASH_DEDUP_NEW;

    assert_int_equal(ash_dedup_add(dedup, text, strlen(text), &verdict, like), 0);
    return verdict;
}

static void test_equal_texts_are_found(void **state)
{
    struct ash_dedup *dedup = NULL;
    struct ash_err err = {0};
    size_t like = 0;

    (void)state;
    assert_int_equal(ash_dedup_open(&(struct ash_dedup_opts){0}, &dedup, &err), 0);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 5000; i++) {
            char text[32];

            snprintf(text, sizeof(text), "line %d", i);
            assert_int_equal(add(dedup, text, &like), pass == 0 ? ASH_DEDUP_NEW : ASH_DEDUP_EQUAL);
            if (pass == 1) assert_int_equal(like, i);
        }
    assert_int_equal(add(dedup, "Line 1", &like), ASH_DEDUP_NEW);
    ash_dedup_close(dedup);
}

static void test_near_texts_are_found_and_others_are_not(void **state)
{
    static char text[1 << 14];
    struct ash_dedup *dedup = NULL;
    struct ash_err err = {0};
    size_t like = 0;

    (void)state;
    assert_int_equal(ash_dedup_open(&(struct ash_dedup_opts){.near = 0.8}, &dedup, &err), 0);
    for (uint64_t seed = 0; seed < 50; seed++) {
        write_text(text, sizeof(text), seed, 0, 0);
        assert_int_equal(add(dedup, text, &like), ASH_DEDUP_NEW);
    }
    for (uint64_t seed = 0; seed < 50; seed++) {
        write_text(text, sizeof(text), seed, 100, 1000 + seed); /* about 0.9 of the runs */
        assert_int_equal(add(dedup, text, &like), ASH_DEDUP_NEAR);
        assert_int_equal(like, seed);
        write_text(text, sizeof(text), seed, 5, 2000 + seed); /* none */
        assert_int_equal(add(dedup, text, &like), ASH_DEDUP_NEW);
    }
    assert_int_equal(add(dedup, "two words", &like), ASH_DEDUP_NEW);
    assert_int_equal(add(dedup, "Two, WORDS!", &like), ASH_DEDUP_NEAR);
    assert_int_equal(add(dedup, "two sheep", &like), ASH_DEDUP_NEW);
    ash_dedup_close(dedup);
}

/* An estimate from 128 hashes has a deviation of at most 0.045. */
static void test_signatures_estimate_the_share_of_common_runs(void **state)
{
    uint32_t a[ASH_DEDUP_HASHES], b[ASH_DEDUP_HASHES];
    static char text[1 << 14];
    double worst = 0, sum = 0;

    (void)state;
    for (uint64_t draw = 1; draw <= 40; draw++) {
        uint64_t every = 200 / draw;
        double kept = WORDS - (double)WORDS / (double)every, same = 0, wanted;

        ash_dedup_sign(text, write_text(text, sizeof(text), draw, 0, 0), 1, a);
        ash_dedup_sign(text, write_text(text, sizeof(text), draw, every, draw), 1, b);
        wanted = kept / (2 * WORDS - kept); /* runs of one word, nearly all different */
        for (size_t k = 0; k < ASH_DEDUP_HASHES; k++)
            same += a[k] == b[k];
        worst = fmax(worst, fabs(same / ASH_DEDUP_HASHES - wanted));
        sum += (same / ASH_DEDUP_HASHES - wanted) / 40;
    }
    assert_true(worst < 0.2);
    assert_true(fabs(sum) < 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_texts_are_found),
        cmocka_unit_test(test_near_texts_are_found_and_others_are_not),
        cmocka_unit_test(test_signatures_estimate_the_share_of_common_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
