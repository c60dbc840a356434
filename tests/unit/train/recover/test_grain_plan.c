/* Which finished grains are kept, and which rank computes the others, drawn: every grain is once in some rank's part,
 * no kept subtree is cut, no rank has more to do than in any other step, and no more than it must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "collective/core/sum.h"
#include "train/layout/grains.h"
#include "train/recover/grain_plan.h"

#define DRAWS 2000
#define GRAINS_MAX 40
#define OFFERS_MAX (2 * GRAINS_MAX)

struct drawn {
    uint64_t seed, at;
    size_t grains, ranks, count;
    struct ash_grain_offer offers[OFFERS_MAX];
};

static size_t draw(struct drawn *drawn, size_t first, size_t last)
{
    return first + (size_t)ash_rng_below(drawn->seed, 5, drawn->at++, last - first + 1);
}

/* What ranks of an old mesh have finished: of each the first of its grains, as subtrees. Some may be there twice. */
static void draw_case(struct drawn *drawn, uint64_t seed)
{
    size_t old_ranks;

    memset(drawn, 0, sizeof(*drawn));
    drawn->seed = seed;
    drawn->grains = draw(drawn, 1, GRAINS_MAX);
    drawn->ranks = draw(drawn, 1, drawn->grains < 9 ? drawn->grains : 9);
    old_ranks = draw(drawn, 1, drawn->grains < 9 ? drawn->grains : 9);
    for (size_t r = 0; r < old_ranks; r++) {
        struct ash_range own = ash_grains_partition(drawn->grains, r, old_ranks), cover[ASH_TREE_COVER_MAX];
        size_t count;

        own.count = draw(drawn, 0, own.count);
        count = own.count > 0 ? ash_tree_cover(drawn->grains, own, cover) : 0;
        for (size_t i = 0; i < count && drawn->count < OFFERS_MAX; i++)
            drawn->offers[drawn->count++] =
                (struct ash_grain_offer){cover[i], draw(drawn, 0, 4) > 0 ? draw(drawn, 0, drawn->ranks - 1) : SIZE_MAX};
        if (count > 0 && draw(drawn, 0, 9) == 0 && drawn->count < OFFERS_MAX)
            drawn->offers[drawn->count++] = (struct ash_grain_offer){{own.first, 1}, SIZE_MAX};
    }
}

static bool is_offered(const struct drawn *drawn, struct ash_range span)
{
    bool found = false;

    for (size_t i = 0; i < drawn->count; i++)
        found = found || (drawn->offers[i].span.first == span.first && drawn->offers[i].span.count == span.count);
    return found;
}

static void check_plan(const struct drawn *drawn, const struct ash_grain_plan *plan)
{
    size_t at = 0, kept = 0, end = 0, total = 0, most = 0;

    for (size_t r = 0; r < drawn->ranks; r++) {
        struct ash_range part = plan->parts[r];
        size_t todo = part.count;

        assert_int_equal(part.first, end);
        assert_true(part.count > 0);
        end = ash_range_end(part);
        for (; at < plan->kept_count && plan->kept[at].span.first < end; at++) {
            struct ash_range span = plan->kept[at].span;

            assert_true(is_offered(drawn, span));
            assert_true(ash_range_overlap(span, part).count == span.count);
            todo -= span.count;
            kept += span.count;
        }
        assert_true(todo <= ash_grains_partition(drawn->grains, r, drawn->ranks).count);
        most = todo > most ? todo : most;
        total += todo;
    }
    assert_int_equal(end, drawn->grains);
    assert_int_equal(at, plan->kept_count);
    assert_int_equal(kept, plan->kept_grains);
    assert_int_equal(total + kept, drawn->grains);
    assert_int_equal(most, plan->most);
    if (drawn->grains % drawn->ranks == 0) assert_int_equal(most, (total + drawn->ranks - 1) / drawn->ranks);
}

static void test_drawn_plans_keep_what_they_can(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= DRAWS; seed++) {
        static struct drawn drawn;
        struct ash_grain_plan plan;
        size_t offered = 0, end = 0;

        draw_case(&drawn, seed);
        assert_int_equal(ash_grain_plan_make(&plan, drawn.offers, drawn.count, drawn.grains, drawn.ranks), 0);
        check_plan(&drawn, &plan);
        for (size_t i = 0; i < drawn.count; i++) /* sorted now, the larger first */
            if (drawn.offers[i].span.first >= end) {
                offered += drawn.offers[i].span.count;
                end = ash_range_end(drawn.offers[i].span);
            }
        /* with fewer pieces than ranks something has to be given up */
        if (drawn.ranks <= 2 || drawn.grains - offered >= drawn.ranks)
            assert_true(plan.kept_grains == offered || plan.kept_count + drawn.grains - offered < drawn.ranks);
        ash_grain_plan_fini(&plan);
    }
}

/* Four ranks of three grains each. The second is lost, and another process has its place: each of three computes one.
 * */
static void test_what_is_missing_is_shared(void **state)
{
    struct ash_grain_offer offers[] = {{{0, 2}, 0}, {{2, 1}, 0}, {{6, 2}, 2}, {{8, 1}, 2}, {{9, 1}, 3}, {{10, 2}, 3}};
    const struct ash_range parts[] = {{0, 4}, {4, 1}, {5, 4}, {9, 3}};
    struct ash_grain_plan plan;

    (void)state;
    assert_int_equal(ash_grain_plan_make(&plan, offers, 6, 12, 4), 0);
    assert_int_equal(plan.kept_grains, 9);
    assert_int_equal(plan.most, 1);
    assert_memory_equal(plan.parts, parts, sizeof(parts));
    ash_grain_plan_fini(&plan);
}

/* One subtree that cannot be shared: it is given up. */
static void test_every_rank_has_a_part(void **state)
{
    struct ash_grain_offer offers[] = {{{0, 4}, 0}};
    struct ash_grain_plan plan;

    (void)state;
    assert_int_equal(ash_grain_plan_make(&plan, offers, 1, 4, 2), 0);
    assert_int_equal(plan.kept_grains, 0);
    assert_int_equal(plan.most, 2);
    ash_grain_plan_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_plans_keep_what_they_can),
        cmocka_unit_test(test_what_is_missing_is_shared),
        cmocka_unit_test(test_every_rank_has_a_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
