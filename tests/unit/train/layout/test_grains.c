/* The tree over grains against its recursive definition, to the bit, for every count up to 40. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/layout/grains.h"

#define LEAF 1003
#define SUM 1000
#define GRAINS_MAX 40

static float leaf_values[GRAINS_MAX][LEAF]; /* drawn once */

static float leaf_value(size_t grain, size_t i)
{
    return leaf_values[grain][i];
}

static int draw_leaves(void **state)
{
    (void)state;
    for (size_t g = 0; g < GRAINS_MAX; g++)
        for (size_t i = 0; i < LEAF; i++) /* so that the order of additions shows */
            leaf_values[g][i] = (float)ash_rng_normal(1, g, i) * (i % 3 == 0 ? 1e-4f : 1e3f);
    return 0;
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

static void check_sum(const float *sum, size_t size, size_t count)
{
    for (size_t i = 0; i < size; i++)
        assert_true(sum[i] == tree_sum(0, count, i));
}

static void run_once(struct ash_grains *grains, size_t count)
{
    double losses[GRAINS_MAX];

    ash_grains_reset(grains);
    for (size_t g = 0; g < count; g++) {
        float *leaf = ash_grains_begin(grains, 0, true);
        for (size_t i = 0; i < LEAF; i++) {
            assert_true(leaf[i] == 0.0f);
            leaf[i] = leaf_value(g, i);
        }
        ash_grains_end(grains, 0);
        losses[g] = tree_loss(g, 1);
    }
    assert_int_equal(ash_grains_reduce(grains, NULL, NULL), 0);
    check_sum(ash_grains_sum(grains), SUM, count);
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
        struct ash_grains_opts opts = {
            .exec = &exec, .grain_count = count, .strand_count = 1, .sum_size = SUM, .leaf_size = LEAF};
        assert_int_equal(ash_grains_init(&grains, &opts, NULL), 0);
        while (count >> (log2 + 1) != 0)
            log2++;
        assert_int_equal(grains.strands[0].buffer_count, log2 + 1);
        run_once(&grains, count);
        run_once(&grains, count); /* a second step starts from nothing */
        ash_grains_fini(&grains);
    }
    ash_exec_fini(&exec);
}

#define PIECES 3
#define ROUND 2 /* leaves of a lane that come at once */

/* The next leaves of a lane, piece by piece. */
static void put_round(struct ash_grains *grains, size_t strand, size_t first, size_t count)
{
    float values[ROUND][LEAF];
    const float *leaves[ROUND] = {values[0], values[1]};

    for (size_t p = 0, begin = 0; p < PIECES; p++) {
        size_t end = SUM * (p + 1) / PIECES;
        for (size_t g = 0; g < count; g++)
            for (size_t i = begin; i < end; i++)
                values[g][i - begin] = leaf_value(first + g, i);
        ash_grains_add(grains, strand, (struct ash_range){begin, end - begin}, leaves, count);
        begin = end;
    }
    ash_grains_advance(grains, strand, count);
}

static void test_lanes_and_pieces_change_nothing(void **state)
{
    struct ash_exec exec = {0};

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref", 1, NULL), 0);
    for (size_t count = 3; count <= 24; count++) {
        struct ash_grains_opts opts = {.exec = &exec,
                                       .grain_count = count,
                                       .strand_count = 3,
                                       .add_count = ROUND,
                                       .sum_size = SUM,
                                       .leaf_size = SUM};
        struct ash_grains grains;
        float sum[SUM];

        assert_int_equal(ash_grains_init(&grains, &opts, NULL), 0);
        for (size_t round = 0; round < count; round++) {
            for (size_t strand = 0; strand < opts.strand_count; strand++) {
                struct ash_range own = ash_grains_of(&grains, strand);
                size_t done = round * ROUND, left = own.count > done ? own.count - done : 0;
                put_round(&grains, strand, own.first + done, left < ROUND ? left : ROUND);
            }
        }
        assert_int_equal(ash_grains_reduce(&grains, sum, NULL), 0);
        check_sum(sum, SUM, count);
        ash_grains_fini(&grains);
    }
    ash_exec_fini(&exec);
}

#define KEPT_DRAWS 3 /* of every count */

/* Some subtrees of count grains, drawn: each grain is the first of one, or of none. Returns how many; *sums their
 * sums. */
static size_t draw_kept(uint64_t seed, size_t count, struct ash_range *spans, float (*sums)[SUM])
{
    size_t kept = 0;

    for (size_t g = 0; g < count;) {
        struct ash_range cover[ASH_TREE_COVER_MAX], some = {g, 1 + (size_t)ash_rng_below(seed, 1, g, count - g)};

        if (ash_rng_below(seed, 2, g, 2) == 0) {
            g++;
            continue;
        }
        ash_tree_cover(count, some, cover);
        for (size_t i = 0; i < SUM; i++) /* a subtree is the tree over its own grains */
            sums[kept][i] = tree_sum(g, cover[0].count, i);
        spans[kept++] = cover[0];
        g += cover[0].count;
    }
    return kept;
}

/* A step that knows some subtrees computes the other grains, and has the same sum; so has the next, which knows
 * nothing. What is complete can be had until it is reduced. */
static void test_kept_sums_change_nothing(void **state)
{
    static float sums[GRAINS_MAX][SUM];
    const float *values[GRAINS_MAX], *finished[ASH_GRAINS_DEPTH_MAX];
    struct ash_exec exec = {0};

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref", 1, NULL), 0);
    for (size_t g = 0; g < GRAINS_MAX; g++)
        values[g] = sums[g];
    for (size_t n = KEPT_DRAWS; n < KEPT_DRAWS * GRAINS_MAX; n++) {
        size_t count = n / KEPT_DRAWS;
        struct ash_grains_opts opts = {
            .exec = &exec, .grain_count = count, .strand_count = 1, .sum_size = SUM, .leaf_size = LEAF};
        struct ash_range spans[GRAINS_MAX], all = {0, count}, done[ASH_GRAINS_DEPTH_MAX];
        struct ash_grains_kept kept = {&all, spans, draw_kept(n, count, spans, sums)};
        struct ash_grains grains;

        assert_int_equal(ash_grains_init(&grains, &opts, NULL), 0);
        assert_true(ash_grains_can_keep(&grains, &kept));
        assert_int_equal(ash_grains_make_room(&grains, &kept, NULL), 0);
        ash_grains_reset(&grains);
        ash_grains_keep(&grains, &kept, values);
        for (size_t g = 0, at = 0; g < count;) {
            if (at < kept.count && spans[at].first == g) {
                g += spans[at++].count;
                continue;
            }
            float *leaf = ash_grains_begin(&grains, 0, true);
            for (size_t i = 0; i < SUM; i++)
                leaf[i] = leaf_value(g, i);
            ash_grains_end(&grains, 0);
            g++;
        }
        assert_int_equal(ash_grains_finished(&grains, done, finished), 1);
        assert_true(done[0].first == 0 && done[0].count == count);
        assert_int_equal(ash_grains_reduce(&grains, NULL, NULL), 0);
        check_sum(ash_grains_sum(&grains), SUM, count);
        assert_int_equal(ash_grains_finished(&grains, done, finished), 0);
        if (n % KEPT_DRAWS == 0) run_once(&grains, count);
        ash_grains_fini(&grains);
    }
    ash_exec_fini(&exec);
}

/* The last leaf comes by ranges, each of which is reduced at once: the sum is right, and so is what was there before.
 * */
static void test_a_leaf_by_ranges_leaves_the_others(void **state)
{
    struct ash_exec exec = {0};

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref", 1, NULL), 0);
    for (size_t count = 1; count <= GRAINS_MAX; count++) {
        struct ash_grains_opts opts = {.exec = &exec,
                                       .grain_count = count,
                                       .strand_count = 1,
                                       .sum_size = SUM,
                                       .leaf_size = LEAF,
                                       .range_count = PIECES};
        struct ash_range spans[ASH_GRAINS_DEPTH_MAX];
        const float *sums[ASH_GRAINS_DEPTH_MAX];
        struct ash_grains grains;

        assert_int_equal(ash_grains_init(&grains, &opts, NULL), 0);
        for (size_t g = 0; g < count; g++) {
            float *leaf = ash_grains_begin(&grains, 0, true);
            for (size_t i = 0; i < SUM; i++)
                leaf[i] = leaf_value(g, i);
            if (g + 1 < count) ash_grains_end(&grains, 0);
        }
        for (size_t p = PIECES; p-- > 0;) {
            struct ash_range run = {SUM * p / PIECES, SUM * (p + 1) / PIECES - SUM * p / PIECES};
            ash_grains_end_range(&grains, run);
            assert_int_equal(ash_grains_start_reduce(&grains, run, 0, NULL), 0);
        }
        ash_grains_advance(&grains, 0, 1);
        assert_int_equal(ash_grains_reduce(&grains, NULL, NULL), 0);
        check_sum(ash_grains_sum(&grains), SUM, count);
        for (size_t d = ash_grains_finished(&grains, spans, sums), end = count - 1; d-- > 0;) {
            assert_int_equal(ash_range_end(spans[d]), end);
            end = spans[d].first;
            for (size_t i = 0; i < SUM; i++)
                assert_true(sums[d][i] == tree_sum(spans[d].first, spans[d].count, i));
        }
        ash_grains_fini(&grains);
    }
    ash_exec_fini(&exec);
}

/* Floats that no leaf has are left alone: untouched memory costs nothing. */
static void test_unused_floats_stay(void **state)
{
    struct ash_exec exec = {0};
    struct ash_grains_opts opts = {
        .exec = &exec, .grain_count = 2, .strand_count = 1, .sum_size = 5, .leaf_size = 12, .unused = {5, 4}};
    struct ash_grains grains;

    (void)state;
    assert_int_equal(ash_exec_init(&exec, "ref", 1, NULL), 0);
    assert_int_equal(ash_grains_init(&grains, &opts, NULL), 0);
    for (size_t i = 0; i < 12; i++)
        ash_grains_sum(&grains)[i] = 7.0f;
    float *leaf = ash_grains_begin(&grains, 0, true);
    for (size_t i = 0; i < 12; i++)
        assert_true(leaf[i] == (i >= 5 && i < 9 ? 7.0f : 0.0f));
    assert_int_equal(ash_grains_bytes(&grains), (2 * 8 + 4) * sizeof(float));
    ash_grains_fini(&grains);
    ash_exec_fini(&exec);
}

static void refuse(size_t grain_count, size_t strand_count, size_t sum_size, struct ash_range unused)
{
    struct ash_exec exec = {.memory = &ash_memory_host};
    struct ash_grains_opts opts = {.exec = &exec,
                                   .grain_count = grain_count,
                                   .strand_count = strand_count,
                                   .sum_size = sum_size,
                                   .leaf_size = 10,
                                   .unused = unused};
    struct ash_grains grains;

    assert_true(ash_grains_init(&grains, &opts, NULL) < 0);
    ash_grains_fini(&grains);
}

static void test_senseless_sizes_are_refused(void **state)
{
    (void)state;
    refuse(0, 1, 10, (struct ash_range){0});
    refuse(1, 1, 11, (struct ash_range){0});
    refuse((size_t)1 << 40, 1, 10, (struct ash_range){0});
    refuse(2, 3, 10, (struct ash_range){0});
    refuse(2, 1, 5, (struct ash_range){4, 2});
    refuse(2, 1, 5, (struct ash_range){8, 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_count_follows_the_definition),
        cmocka_unit_test(test_lanes_and_pieces_change_nothing),
        cmocka_unit_test(test_kept_sums_change_nothing),
        cmocka_unit_test(test_a_leaf_by_ranges_leaves_the_others),
        cmocka_unit_test(test_unused_floats_stay),
        cmocka_unit_test(test_senseless_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, draw_leaves, NULL);
}
