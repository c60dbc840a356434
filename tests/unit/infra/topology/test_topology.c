/* Unit tests of topologies: all forms become the same tree, lists of hosts expand, and bad ones are refused with
 * a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "infra/topology/topology.h"

static struct ash_topology *read_tree(const char *text)
{
    struct ash_topology *topology = NULL;
    struct ash_err err = {0};

    if (ash_topology_parse(text, strlen(text), "tree", &topology, &err) < 0) fail_msg("%s", err.text);
    return topology;
}

static void assert_refused(const char *text, const char *words)
{
    struct ash_topology *topology = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_topology_parse(text, strlen(text), "tree", &topology, &err), -EINVAL);
    assert_null(topology);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' is not in '%s'", words, err.text);
}

static int hops(const struct ash_topology *topology, const char *a, const char *b)
{
    return ash_topology_hops(topology, ash_topology_host(topology, a), ash_topology_host(topology, b));
}

static void test_all_forms_make_one_tree(void **state)
{
    static const char *const texts[] = {
        "# tree\nSwitchName=l1 Nodes=n[1-2] LinkSpeed=400\nswitchname=l2 \\\n  nodes=n3\nSwitchName=l3 Nodes=n4\n"
        "SwitchName=s1 Switches=l[1-2]\nSwitchName=s2 Switches=l3\n",
        "{\"Instances\": [{\"InstanceId\": \"n1\", \"NetworkNodes\": [\"s1\", \"l1\"]},"
        "{\"InstanceId\": \"n2\", \"NetworkNodes\": [\"s1\", \"l1\"]},"
        "{\"InstanceId\": \"n3\", \"NetworkNodes\": [\"s1\", \"l2\"]},"
        "{\"InstanceId\": \"n4\", \"NetworkNodes\": [\"s2\", \"l3\"]}]}",
        "n1 s1/l1\nn2\ts1/l1 # near n1\n\nn3 s1/l2\r\nn4 s2/l3",
        "# two of them\n---\n- topology: flat\n  flat: true\n- topology: other\n  block:\n    block_sizes: [4]\n"
        "    blocks:\n      - block: b1\n        nodes: n[1-4]\n"
        "- topology: mine\n  cluster_default: true\n  tree:\n    switches:\n"
        "      - {switch: s1, children: 'l[1-2]'}\n      - {switch: s2, children: l3}\n"
        "      - {switch: l1, nodes: 'n[1-2]'}\n      - {switch: l2, nodes: n3}\n      - {switch: l3, nodes: n4}\n",
        "BlockName=l1 Nodes=n[1-2]\nBlockName=l2 Nodes=n3\nBlockName=l3 Nodes=n4\nBlockSizes=2,4\n",
        "{\"kind\": \"List\", \"items\": ["
        "{\"kind\": \"Node\", \"metadata\": {\"name\": \"n1\", \"labels\": {"
        "\"topology.k8s.aws/network-node-layer-2\": \"l1\", \"topology.k8s.aws/network-node-layer-1\": \"s1\"}}},"
        "{\"kind\": \"Node\", \"metadata\": {\"name\": \"n2\", \"labels\": {"
        "\"topology.k8s.aws/network-node-layer-1\": \"s1\", \"topology.k8s.aws/network-node-layer-2\": \"l1\"}}},"
        "{\"kind\": \"Node\", \"metadata\": {\"name\": \"n3\", \"labels\": {"
        "\"topology.k8s.aws/network-node-layer-1\": \"s1\", \"topology.k8s.aws/network-node-layer-2\": \"l2\"}}},"
        "{\"kind\": \"Node\", \"metadata\": {\"name\": \"n4\", \"labels\": {"
        "\"topology.k8s.aws/network-node-layer-1\": \"s2\", \"topology.k8s.aws/network-node-layer-2\": \"l3\"}}}]}",
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        struct ash_topology *t = read_tree(texts[i]);

        assert_int_equal(t->count, 1 + 4 + 5);
        assert_int_equal(t->nodes[0].hosts, 4);
        assert_int_equal(t->nodes[0].height, 3);
        assert_int_equal(hops(t, "n1", "n1"), 0);
        assert_int_equal(hops(t, "n1", "n2"), 1);
        assert_int_equal(hops(t, "n1", "n3"), 3);
        assert_int_equal(hops(t, "n1", "n4"), 5);
        assert_int_equal(ash_topology_host(t, "s1"), -1);
        ash_topology_close(t);
    }
}

/* HyperPod: instances by address; network nodes where they are given, else the group. */
static void test_hyperpod(void **state)
{
    struct ash_topology *t =
        read_tree("{\"ClusterConfig\": {}, \"InstanceGroups\": [{\"Name\": \"head\", \"Instances\": ["
                  "{\"InstanceName\": \"head-1\", \"CustomerIpAddress\": \"10.1.0.9\", \"InstanceId\": \"i-9\"}]},"
                  "{\"Name\": \"workers\", \"Instances\": ["
                  "{\"CustomerIpAddress\": \"10.1.0.1\", \"Topology\": {\"NetworkNodes\": [\"a\", \"b\"]}},"
                  "{\"InstanceId\": \"i-2\", \"NetworkNodes\": [\"a\", \"b\"], \"UltraServerId\": \"us-1\"}]}]}");

    (void)state;
    assert_int_equal(t->nodes[0].hosts, 3);
    assert_int_equal(hops(t, "ip-10-1-0-1", "i-2"), 2);
    assert_int_equal(hops(t, "ip-10-1-0-9", "i-2"), 5);
    ash_topology_close(t);
}

/* leaf1 of one spine is not leaf1 of another. */
static void test_paths_are_names(void **state)
{
    struct ash_topology *t = read_tree("a s1/leaf1\nb s2/leaf1\n");

    (void)state;
    assert_int_equal(hops(t, "a", "b"), 5);
    ash_topology_close(t);
}

static void test_bad_trees(void **state)
{
    (void)state;
    assert_refused("", "no hosts");
    assert_refused("host", "needs a path");
    assert_refused("host a/b c", "line 1: 'c' follows a host and its path; a topology is what");
    assert_refused("host a//b\nhost a/c", "hangs below");
    assert_refused("a x/y\na x/z\n", "one way up");
    assert_refused("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n1\n", "below itself");
    assert_refused("SwitchName=a Nodes=n[3-1]\n", "ranges");
    assert_refused("SwitchName=a Nodes=n[1\n", "not closed");
    assert_refused("SwitchName=a Nodes=n[0-9999999]\n", "ranges");
    assert_refused("Nodes=n1 SwitchName=a\n", "no SwitchName");
    assert_refused("{\"Instances\": 3}", "no list of Instances");
    assert_refused("{\"Instances\": [{\"InstanceId\": \"i-1\"}]}", "NetworkNodes");
    assert_refused("BlockName=a Nodes=n1\nBlockSizes=4,6\n", "multiple");
    assert_refused("BlockName=a Nodes=n1\nBlockSizes=4,x\n", "block sizes");
    assert_refused("- topology: a\n  flat: true\n", "`tree:` or `block:`");
    assert_refused("- topology: a\n  tree:\n    switches: [{nodes: n1}]\n", "name");
    assert_refused("{\"items\": [{\"kind\": \"Pod\"}]}", "is a Pod");
    assert_refused("{\"InstanceGroups\": [{}]}", "no Name");
    assert_refused("h 1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", "layers");
}

static void test_lists_of_hosts(void **state)
{
    struct ash_topology *t = read_tree("SwitchName=s Nodes=r[1-2]n[08-11],x\n");
    struct ash_err err = {0};
    int *hosts = NULL, count = 0;

    (void)state;
    assert_int_equal(t->nodes[0].hosts, 9);
    assert_int_equal(ash_topology_hosts(t, "x, r2n[09,11]\n# r1n08\nr1n10", &hosts, &count, &err), 0);
    assert_int_equal(count, 4);
    assert_string_equal(t->nodes[hosts[0]].name, "x");
    assert_string_equal(t->nodes[hosts[2]].name, "r2n11");
    free(hosts);
    hosts = NULL;
    assert_int_equal(ash_topology_hosts(t, "x,x", &hosts, &count, &err), -EINVAL);
    assert_non_null(strstr(err.text, "twice"));
    assert_int_equal(ash_topology_hosts(t, "r1n8", &hosts, &count, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'r1n8'"));
    assert_int_equal(ash_topology_hosts(t, " # none", &hosts, &count, &err), -EINVAL);
    assert_null(hosts);
    ash_topology_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_forms_make_one_tree), cmocka_unit_test(test_hyperpod),
        cmocka_unit_test(test_paths_are_names),         cmocka_unit_test(test_bad_trees),
        cmocka_unit_test(test_lists_of_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
