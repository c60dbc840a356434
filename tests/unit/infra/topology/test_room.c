/* Unit tests of free room: hosts come and go at random, and every answer is that of a count over all hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "infra/topology/room.h"

#define SEED 11
#define UNITS 8

static struct ash_topology *read_tree(const char *text)
{
    struct ash_topology *topology = NULL;
    struct ash_err err = {0};

    if (ash_topology_parse(text, strlen(text), "tree", &topology, &err) < 0) fail_msg("%s", err.text);
    return topology;
}

static struct ash_room *open_room(const struct ash_topology *topology, int units_max)
{
    struct ash_room *room = NULL;

    assert_int_equal(ash_room_open(topology, units_max, &room), 0);
    return room;
}

static int count_hosts(const struct ash_topology *topology, const int *units, int domain, int least)
{
    int count = 0;

    for (int node = 0; node < topology->count; node++)
        count += topology->nodes[node].is_host && units[node] >= least && ash_topology_holds(topology, domain, node);
    return count;
}

/* Hosts that were chosen are different, below the domain, and have the units. */
static void check_chosen(const struct ash_room *room, const struct ash_topology *topology, const int *hosts, int count,
                         int domain, int least)
{
    for (int i = 0; i < count; i++) {
        assert_true(topology->nodes[hosts[i]].is_host && ash_topology_holds(topology, domain, hosts[i]));
        assert_true(ash_room_units(room, hosts[i]) >= least);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(hosts[i], hosts[k]);
    }
}

static void check_groups(const struct ash_room *room, const struct ash_topology *topology, int least, int size)
{
    int groups = ash_room_group_count(room, 0, 1, least, size), hosts[64], expected = 0, count;
    const int *racks = ash_room_domains(room, 1, &count);

    for (int i = 0; i < count; i++)
        expected += ash_room_hosts(room, racks[i], least) / size;
    assert_int_equal(groups, expected);
    assert_int_equal(ash_room_choose_groups(room, 0, &(struct ash_room_groups){1, least, size, groups}, hosts), 0);
    check_chosen(room, topology, hosts, groups * size, 0, least);
    for (int i = 0; i < groups * size; i++)
        assert_int_equal(topology->nodes[hosts[i]].parent, topology->nodes[hosts[i / size * size]].parent);
}

static void test_counts_follow_events(void **state)
{
    struct ash_topology *topology =
        read_tree("SwitchName=a Nodes=n[0-5]\nSwitchName=b Nodes=n[6-9]\nSwitchName=c Nodes=n[10-17]\n"
                  "SwitchName=s Switches=a,b\nSwitchName=t Switches=c Nodes=n[18-19]\n");
    struct ash_room *room = open_room(topology, UNITS);
    int units[64] = {0}, hosts[64];

    (void)state;
    for (uint64_t step = 0; step < 3000; step++) {
        int node = (int)ash_rng_below(SEED, 0, step, (uint64_t)topology->count);
        int least = 1 + (int)ash_rng_below(SEED, 1, step, UNITS), wanted, host;

        if (!topology->nodes[node].is_host) {
            wanted = ash_room_hosts(room, node, least);
            assert_int_equal(wanted, count_hosts(topology, units, node, least));
            assert_int_equal(ash_room_choose(room, node, least, wanted, hosts), 0);
            check_chosen(room, topology, hosts, wanted, node, least);
            host = ash_room_tightest(room, node, least);
            assert_int_equal(host >= 0, wanted > 0);
            for (int i = 0; i < wanted; i++)
                assert_true(ash_room_units(room, host) <= ash_room_units(room, hosts[i]));
            check_groups(room, topology, least, 1 + (int)(step % 4));
            continue;
        }
        units[node] = (int)ash_rng_below(SEED, 2, step, UNITS + 1);
        ash_room_set(room, node, units[node]);
    }
    ash_room_close(room);
    ash_topology_close(topology);
}

/* Best fit takes the leaf that is fullest; what fits nowhere waits for the leaf that lacks least. */
static void test_domains(void **state)
{
    struct ash_topology *topology = read_tree("SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\n");
    struct ash_room *room = open_room(topology, 1);
    int a = topology->nodes[ash_topology_host(topology, "n0")].parent;
    int b = topology->nodes[ash_topology_host(topology, "n4")].parent, chosen[8], *hosts = NULL, count = 0;
    struct ash_room_domain now, best;

    (void)state;
    assert_int_equal(ash_topology_hosts(topology, "n[0-2],n[4-5]", &hosts, &count, NULL), 0);
    for (int i = 0; i < count; i++)
        ash_room_set(room, hosts[i], 1);
    free(hosts);
    ash_room_find(room, 2, &now, &best);
    assert_int_equal(now.domain, b);
    assert_int_equal(best.missing, 0);
    assert_int_equal(ash_room_fullest(room, 0, 1, 1, 2), b);
    assert_int_equal(ash_room_fullest(room, a, 1, 1, 2), a);
    assert_int_equal(ash_room_fullest(room, 0, 1, 1, 4), -1);
    ash_room_find(room, 4, &now, &best);
    assert_int_equal(now.domain, 0);
    assert_int_equal(best.domain, a);
    assert_int_equal(best.missing, 1);
    assert_int_equal(ash_room_choose(room, 0, 1, 4, chosen), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(topology->nodes[chosen[i]].parent, a);
    assert_int_equal(topology->nodes[chosen[3]].parent, b);
    ash_room_find(room, 8, &now, &best);
    assert_int_equal(now.domain, -1);
    assert_int_equal(best.missing, 3);
    ash_room_find(room, 9, &now, &best);
    assert_int_equal(best.domain, -1);
    ash_room_close(room);
    ash_topology_close(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_follow_events),
        cmocka_unit_test(test_domains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
