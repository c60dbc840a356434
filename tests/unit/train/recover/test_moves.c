/* Who gives what to whom, drawn: every rank gets every element that it needs, once, from one that has it, whatever the
 * ranges are. Missing ranges are named. The map of copies and the choice of a layout, which are pure, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/recover/copies.h"
#include "train/recover/moves.h"
#include "train/recover/range_index.h"
#include "train/recover/shape.h"

#define DRAWS 300
#define RANKS 6
#define PARAMS 3
#define ELEMENTS 40
#define LISTED 64

/* A drawn case: which elements each rank has and needs, as flags, and the same as lists. */
struct drawn {
    uint64_t seed, at;
    size_t ranks;
    bool has[RANKS][PARAMS][ELEMENTS], needs[RANKS][PARAMS][ELEMENTS];
    struct ash_patch_range have[RANKS * LISTED], need[RANKS * LISTED];
    size_t have_first[RANKS + 1], need_first[RANKS + 1];
    uint32_t nodes[RANKS];
};

static size_t draw(struct drawn *drawn, size_t first, size_t last)
{
    return first + (size_t)ash_rng_below(drawn->seed, 3, drawn->at++, last - first + 1);
}

/* Some disjoint ranges of each parameter. Constants (the last parameter) have no moments. */
static size_t draw_ranges(struct drawn *drawn, struct ash_patch_range *ranges, bool flags[PARAMS][ELEMENTS])
{
    size_t count = 0;

    for (size_t p = 0; p < PARAMS; p++)
        for (size_t at = draw(drawn, 0, 6); at < ELEMENTS;) {
            size_t length = draw(drawn, 1, 15);

            if (at + length > ELEMENTS) length = ELEMENTS - at;
            ranges[count++] = (struct ash_patch_range){(uint32_t)p, p + 1 < PARAMS, at, length};
            memset(flags[p] + at, 1, length);
            at += length + draw(drawn, 0, 9);
        }
    return count;
}

static void draw_case(struct drawn *drawn, uint64_t seed)
{
    memset(drawn, 0, sizeof(*drawn));
    drawn->seed = seed;
    drawn->ranks = draw(drawn, 1, RANKS);
    for (size_t r = 0; r < drawn->ranks; r++) {
        drawn->nodes[r] = (uint32_t)draw(drawn, 0, 2);
        drawn->have_first[r + 1] =
            drawn->have_first[r] + draw_ranges(drawn, drawn->have + drawn->have_first[r], drawn->has[r]);
        drawn->need_first[r + 1] =
            drawn->need_first[r] + draw_ranges(drawn, drawn->need + drawn->need_first[r], drawn->needs[r]);
    }
}

/* Is a range needed that no rank has? */
static bool is_short(const struct drawn *drawn)
{
    for (size_t r = 0; r < drawn->ranks; r++)
        for (size_t e = 0; e < PARAMS * ELEMENTS; e++) {
            bool found = false;

            for (size_t s = 0; s < drawn->ranks; s++)
                found = found || drawn->has[s][e / ELEMENTS][e % ELEMENTS];
            if (drawn->needs[r][e / ELEMENTS][e % ELEMENTS] && !found) return true;
        }
    return false;
}

static void check_moves(struct drawn *drawn, const struct ash_move *moves, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct ash_move *move = &moves[i];

        for (size_t e = 0; e < move->range.count; e++) {
            size_t at = (size_t)move->range.first + e;

            assert_true(drawn->has[move->from][move->range.param][at]);
            assert_true(drawn->needs[move->to][move->range.param][at]); /* and not twice */
            drawn->needs[move->to][move->range.param][at] = false;
            if (move->from != move->to) assert_false(drawn->has[move->to][move->range.param][at]);
        }
    }
    for (size_t r = 0; r < drawn->ranks; r++)
        for (size_t e = 0; e < PARAMS * ELEMENTS; e++)
            assert_false(drawn->needs[r][e / ELEMENTS][e % ELEMENTS]);
}

static void test_everyone_gets_what_it_needs(void **state)
{
    size_t shorts = 0;

    (void)state;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct drawn drawn;
        struct ash_move *moves = NULL;
        struct ash_patch_range missing = {0};
        size_t count = 0;
        int rc;

        draw_case(&drawn, seed);
        struct ash_moves_opts opts = {.ranks = drawn.ranks,
                                      .nodes = drawn.nodes,
                                      .have = {drawn.have, drawn.have_first},
                                      .need = {drawn.need, drawn.need_first}};
        rc = ash_moves_plan(&opts, &moves, &count, &missing);
        assert_int_equal(rc, is_short(&drawn) ? -ENODATA : 0);
        shorts += rc < 0;
        if (rc < 0) {
            for (size_t r = 0; r < drawn.ranks; r++)
                assert_false(drawn.has[r][missing.param][missing.first]);
            continue;
        }
        check_moves(&drawn, moves, count);
        free(moves);
    }
    assert_in_range(shorts, DRAWS / 20, DRAWS * 19 / 20); /* both kinds have been drawn */
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

#define INDEXED 200

/* Which ranges were found, in their order. */
struct found {
    size_t ids[INDEXED], count;
};

static void note(void *ctx, const struct ash_range_entry *entry)
{
    struct found *found = ctx;

    assert_true(found->count < INDEXED);
    found->ids[found->count++] = entry->id;
}

/* The plain search: look at all of them. */
static size_t count_holding(const struct ash_patch_range *ranges, size_t count, const struct ash_patch_range *asked,
                            bool *holds)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        holds[i] = ranges[i].param == asked->param && ranges[i].has_moments >= asked->has_moments &&
                   ranges[i].first <= asked->first && ranges[i].first + ranges[i].count >= asked->first + asked->count;
        found += holds[i];
    }
    return found;
}

static struct ash_patch_range draw_range(struct drawn *drawn, size_t longest)
{
    size_t first = draw(drawn, 0, ELEMENTS - 1);

    return (struct ash_patch_range){(uint32_t)draw(drawn, 0, PARAMS - 1), (uint32_t)draw(drawn, 0, 1), first,
                                    draw(drawn, 1, longest)};
}

/* Where ranges of a parameter begin, by looking at all of them. */
static void check_at(const struct ash_range_index *index, const struct ash_patch_range *asked)
{
    size_t at = ash_range_index_at(index, asked->param, asked->first);

    for (size_t i = 0; i < index->count; i++) {
        const struct ash_patch_range *range = &index->entries[i].range;
        bool is_before = range->param < asked->param || (range->param == asked->param && range->first < asked->first);

        assert_int_equal(is_before, i < at);
    }
}

static void test_the_index_finds_what_a_search_finds(void **state)
{
    size_t all = 0;

    (void)state;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct drawn drawn = {.seed = seed};
        size_t count = draw(&drawn, 0, INDEXED), longest = draw(&drawn, 1, ELEMENTS);
        struct ash_patch_range ranges[INDEXED];
        struct ash_range_index index;

        for (size_t i = 0; i < count; i++)
            ranges[i] = draw_range(&drawn, longest);
        assert_int_equal(ash_range_index_init(&index, ranges, count, sizeof(ranges[0])), 0);
        for (size_t q = 0; q < 20; q++) {
            struct ash_patch_range asked = draw_range(&drawn, longest);
            struct found found = {0};
            bool holds[INDEXED];

            ash_range_index_find(&index, &asked, note, &found);
            assert_int_equal(found.count, count_holding(ranges, count, &asked, holds));
            for (size_t i = 0; i < found.count; i++) {
                assert_true(holds[found.ids[i]]);
                holds[found.ids[i]] = false; /* not twice */
            }
            all += found.count;
            check_at(&index, &asked);
        }
        ash_range_index_fini(&index);
    }
    assert_true(all > DRAWS);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static void test_copies_are_elsewhere(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct drawn drawn = {.seed = seed};
        size_t ranks = draw(&drawn, 1, 12), copies = draw(&drawn, 1, 3), nodes = draw(&drawn, 1, 4),
               slices = draw(&drawn, 1, ranks), loads[12] = {0}, most = 0, sum = 0;
        uint32_t node[12], slice[12];
        struct ash_copies_map map;

        for (size_t r = 0; r < ranks; r++) {
            node[r] = (uint32_t)(r * nodes / ranks);
            slice[r] = (uint32_t)(r % slices);
        }
        assert_int_equal(ash_copies_map_init(&map, ranks, copies, node, slice), 0);
        for (size_t r = 0; r < ranks; r++) {
            bool elsewhere = false, possible = false;

            for (size_t k = 0; k < copies; k++) {
                uint32_t holder = map.holders[r * copies + k];

                if (holder == ASH_COPIES_NOBODY) continue;
                assert_true(holder < ranks && holder != r && slice[holder] != slice[r]);
                for (size_t j = 0; j < k; j++)
                    assert_true(map.holders[r * copies + j] != holder);
                elsewhere = elsewhere || node[holder] != node[r];
                loads[holder]++;
                sum++;
            }
            for (size_t q = 0; q < ranks; q++) {
                possible = possible || (node[q] != node[r] && slice[q] != slice[r]);
                elsewhere = elsewhere || (slice[q] == slice[r] && node[q] != node[r]); /* a replica: free */
            }
            if (possible) assert_true(elsewhere);
        }
        for (size_t r = 0; r < ranks; r++)
            most = loads[r] > most ? loads[r] : most;
        if (slices == ranks && ranks % nodes == 0) assert_true(most <= sum / ranks + copies);
        ash_copies_map_fini(&map);
    }
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static void check_shape(struct ash_job_mesh wanted, size_t ranks, struct ash_job_mesh expected)
{
    struct ash_job job = {
        .mesh = wanted, .train = {.global_batch = 64, .grains = 64, .micro_batch = 1}, .data = {.seq_tokens = 256}};
    struct ash_model_config config = {
        .layers = 8, .hidden = 64, .heads = 8, .kv_heads = 8, .head_dim = 8, .ffn = 256, .vocab = 512};
    struct ash_job_mesh mesh = {0};

    job.mesh.zero = expected.zero = 3;
    job.mesh.interleave = expected.interleave = 1;
    assert_int_equal(ash_shape_choose(&job, &config, ranks, &mesh, NULL), 0);
    assert_memory_equal(&mesh, &expected, sizeof(mesh));
}

#define MESH(d, f, t, p, c) ((struct ash_job_mesh){.dp = d, .fsdp = f, .tp = t, .pp = p, .cp = c, .ep = 1})

static void test_data_axes_shrink_first(void **state)
{
    (void)state;
    check_shape(MESH(4, 1, 1, 1, 1), 4, MESH(4, 1, 1, 1, 1));
    check_shape(MESH(4, 1, 1, 1, 1), 9, MESH(4, 1, 1, 1, 1));
    check_shape(MESH(4, 1, 1, 1, 1), 3, MESH(3, 1, 1, 1, 1));
    check_shape(MESH(1, 4, 1, 1, 1), 3, MESH(1, 3, 1, 1, 1));
    check_shape(MESH(2, 2, 1, 1, 1), 3, MESH(1, 3, 1, 1, 1));
    check_shape(MESH(2, 1, 2, 1, 1), 3, MESH(1, 1, 2, 1, 1));
    check_shape(MESH(4, 1, 2, 2, 1), 13, MESH(3, 1, 2, 2, 1));
    check_shape(MESH(1, 1, 2, 2, 1), 3, MESH(1, 1, 2, 1, 1));
    check_shape(MESH(1, 1, 4, 1, 1), 3, MESH(1, 1, 2, 1, 1));
    check_shape(MESH(1, 1, 2, 2, 1), 1, MESH(1, 1, 1, 1, 1));
    check_shape(MESH(2, 1, 1, 1, 2), 3, MESH(1, 1, 1, 1, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everyone_gets_what_it_needs),
        cmocka_unit_test(test_the_index_finds_what_a_search_finds),
        cmocka_unit_test(test_copies_are_elsewhere),
        cmocka_unit_test(test_data_axes_shrink_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
