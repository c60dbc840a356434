/* Unit tests of placement: bytes of axes by hand, links that slow them, better orders, domains for waiting jobs. */
#include "../facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/place/place.h"

#define HOSTS 8

/* Two leaves of four hosts: n0 to n3, n4 to n7. */
static const char two_leaves[] = "SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\n";

static struct ash_topology *topology;

static void list_hosts(const char *text, int *hosts_out, int expected)
{
    int *hosts = NULL, count = 0;
    struct ash_err err = {0};

    if (ash_topology_hosts(topology, text, &hosts, &count, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(count, expected);
    memcpy(hosts_out, hosts, (size_t)count * sizeof(*hosts));
    free(hosts);
}

static int domain_of(const char *host)
{
    return topology->nodes[ash_topology_host(topology, host)].parent;
}

static struct ash_placement_job place_job(const char *model, const char *cluster, const char *layout, double share)
{
    struct ash_placement_job job = {
        .consts = &consts, .job = job_of(model, cluster, 1024, 4096), .uplink_share = share};

    job.layout = layout_of(&job.job, layout);
    return job;
}

static struct ash_placement measure(const struct ash_placement_job *job, const char *hosts)
{
    struct ash_placement place;
    int nodes[HOSTS];

    list_hosts(hosts, nodes, job->job.cluster.machines);
    assert_int_equal(ash_placement_measure(job, topology, nodes, &place), 0);
    return place;
}

#define IN_ORDER "n[0-7]"
#define ALTERNATING "n0 n4 n1 n5 n2 n6 n3 n7"

/* A ring of hosts in order crosses once each way; one that alternates, with every host. Half of an uplink of four hosts
 * is two hosts' rates: enough for one, and half of what four need. */
static void test_ring(void **state)
{
    struct ash_placement_job job = place_job("llama-3-8b", "8xp5.48xlarge", "tp=8", 0.5);
    struct ash_placement near = measure(&job, IN_ORDER), far = measure(&job, ALTERNATING);
    double sent = near.axis[ASH_PLACEMENT_DP].bytes;

    (void)state;
    assert_true(sent > 0);
    /* two bytes of each of 1/8 of the weights per GPU, gathered and scattered over 8 hosts */
    assert_true(fabs(sent / (2 * 2 * ash_shape_params(&job.job.shape) * 7 / 8) - 1) < 0.02);
    assert_true(fabs(near.layer_bytes[1] - 6 * sent) < 1 && fabs(near.layer_bytes[2] - 2 * sent) < 1);
    assert_true(fabs(far.layer_bytes[2] - 8 * sent) < 1 && far.layer_bytes[1] == 0);
    assert_true(near.axis[ASH_PLACEMENT_DP].net_share == 1);
    assert_true(fabs(far.axis[ASH_PLACEMENT_DP].net_share - 0.5) < 1e-9);
    assert_int_equal(far.axis[ASH_PLACEMENT_DP].hops_max, 3);
    assert_true(near.step.time.total == near.flat_s && far.step.time.total >= far.flat_s);
    assert_int_equal(near.axis[ASH_PLACEMENT_PP].hops_max, 0);
}

/* On an even network no order matters. */
static void test_full_uplinks(void **state)
{
    struct ash_placement_job job = place_job("deepseek-v3", "8xp5en.48xlarge", "ep=64", 1);
    struct ash_placement far = measure(&job, ALTERNATING);

    (void)state;
    assert_true(far.axis[ASH_PLACEMENT_EP].bytes > 0);
    assert_true(far.step.time.total == far.flat_s);
}

/* Groups of experts that fit below a leaf: the order decides whether they do. */
static void test_reorder_gains(void **state)
{
    struct ash_placement_job job = place_job("deepseek-v3", "8xp5en.48xlarge", "ep=32", 0.25);
    struct ash_placement far = measure(&job, ALTERNATING), best;
    int hosts[HOSTS], order[HOSTS];

    (void)state;
    list_hosts(ALTERNATING, hosts, HOSTS);
    assert_int_equal(ash_placement_reorder(&job, topology, hosts, order, &best), 0);
    assert_true(best.axis[ASH_PLACEMENT_EP].net_share == 1 && far.axis[ASH_PLACEMENT_EP].net_share < 0.5);
    assert_true(best.step.time.total < 0.9 * far.step.time.total);
    for (int i = 1; i < 4; i++)
        assert_int_equal(topology->nodes[order[i]].parent, topology->nodes[order[0]].parent);
}

/* The same for every order that is given: what is found is never slower. */
static void test_reorder_is_never_worse(void **state)
{
    static const char *const layouts[] = {"tp=8", "tp=8,pp=2", "tp=8,pp=4,vpp=2", "tp=4,cp=4", "tp=8,zero=3", "tp=16"};
    int hosts[HOSTS], order[HOSTS];

    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct ash_placement_job job = place_job("llama-3.1-70b", "8xp5.48xlarge", layouts[i], 0.1);
        struct ash_placement given = measure(&job, "n3 n4 n7 n0 n1 n6 n2 n5"), best;

        list_hosts("n3 n4 n7 n0 n1 n6 n2 n5", hosts, HOSTS);
        assert_int_equal(ash_placement_reorder(&job, topology, hosts, order, &best), 0);
        assert_true(isfinite(best.step.time.total) && best.step.time.total <= given.step.time.total);
    }
}

static void test_worst_link(void **state)
{
    struct ash_placement_job job = place_job("llama-3-8b", "8xp5.48xlarge", "tp=8", 0.5);
    struct ash_placement place = measure(&job, IN_ORDER);
    bool crossing[HOSTS];
    int hosts[HOSTS];

    (void)state;
    list_hosts(IN_ORDER, hosts, HOSTS);
    assert_int_equal(place.worst_link, domain_of("n0"));
    assert_true(place.worst_s > 0 && place.worst_bytes > 0);
    ash_placement_crossing(&job, topology, hosts, place.worst_link, crossing);
    for (int i = 0; i < HOSTS; i++) /* the ring's two ends in the leaf */
        assert_int_equal(crossing[i], i == 0 || i == 3);
}

static void test_racks_are_machines(void **state)
{
    struct ash_placement_job job = {.consts = &consts, .job = job_of("llama-3-8b", "8xp5.48xlarge", 1024, 4096)};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_placement_check(&job, &err), 0);
    job.job.cluster.machine.domain_gpus = 72;
    assert_true(ash_placement_check(&job, &err) < 0);
    assert_non_null(strstr(err.text, "rack"));
}

static int set_up(void **state)
{
    if (open_facts(state) < 0) return -1;
    return ash_topology_parse(two_leaves, sizeof(two_leaves) - 1, "two leaves", &topology, NULL);
}

static int tear_down(void **state)
{
    ash_topology_close(topology);
    return close_facts(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),          cmocka_unit_test(test_full_uplinks),
        cmocka_unit_test(test_reorder_gains), cmocka_unit_test(test_reorder_is_never_worse),
        cmocka_unit_test(test_worst_link),    cmocka_unit_test(test_racks_are_machines),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
