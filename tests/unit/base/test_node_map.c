/* Node maps: ranks in any order over nodes of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/node_map.h"

static void test_example(void **state)
{
    static const uint32_t labels[] = {7, 3, 7, 3, 3}, node[] = {0, 1, 0, 1, 1}, place[] = {0, 0, 1, 1, 2},
                          ranks[] = {0, 2, 1, 3, 4}, first[] = {0, 2, 5};
    struct ash_node_map map;

    (void)state;
    assert_int_equal(ash_node_map_init(&map, 5, labels), 0);
    assert_true(map.size == 5 && map.nodes == 2 && map.least == 2 && map.most == 3);
    assert_memory_equal(map.node, node, sizeof(node));
    assert_memory_equal(map.place, place, sizeof(place));
    assert_memory_equal(map.ranks, ranks, sizeof(ranks));
    assert_memory_equal(map.first, first, sizeof(first));
    assert_int_equal(ash_node_map_ranks_on(&map, 1), 3);
    assert_int_equal(ash_node_map_rank_at(&map, 1, 2), 4);
    ash_node_map_fini(&map);
    ash_node_map_fini(&map);
}

static void test_alone(void **state)
{
    struct ash_node_map map;

    (void)state;
    assert_int_equal(ash_node_map_init(&map, 3, NULL), 0);
    assert_true(map.nodes == 3 && map.least == 1 && map.most == 1);
    for (size_t r = 0; r < 3; r++) {
        assert_true(map.node[r] == r && map.place[r] == 0);
        assert_int_equal(ash_node_map_rank_at(&map, r, 0), r);
    }
    ash_node_map_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_example), cmocka_unit_test(test_alone)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
