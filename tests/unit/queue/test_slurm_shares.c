/* Fair tree and the classic formula held to Slurm's own: accounts and users with what sshare of a real Slurm 22.05 and
 * its database printed after drawn jobs. Usage, levels and factors agree to the digits that it prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster.h"
#include "queue/policy/share.h"

#define NODES_MAX 64
#define DEPTH_MAX 8
#define PRINTED 1e-6 /* digits of sshare */

struct tree {
    struct ash_share_node nodes[NODES_MAX];
    double effective[NODES_MAX], factor[NODES_MAX], level[NODES_MAX]; /* as printed; level < 0: none */
    char names[NODES_MAX][64];
    int count;
};

/* Lines `depth,account,user,shares,usage,factor,level`; parents first. Usage is a share of what is used above. */
static void read_tree(const char *name, struct tree *tree)
{
    char path[512], line[256], account[32], user[32], factor[32], level[32];
    int above[DEPTH_MAX + 1] = {0}, depth;
    double shares, whole[NODES_MAX];
    FILE *file;

    *tree = (struct tree){0};
    snprintf(path, sizeof(path), TEST_DATA "/plan/queue/%s", name);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        int at = tree->count, parent;

        if (sscanf(line, "%d,%31[^,],%31[^,],%lf,%lf,%31[^,],%31[^,\n]", &depth, account, user, &shares,
                   &tree->effective[at], factor, level) != 7)
            continue; /* the header */
        assert_in_range(depth, 0, DEPTH_MAX);
        parent = depth > 0 ? above[depth - 1] : -1;
        above[depth] = at;
        whole[at] = (parent >= 0 ? whole[parent] : 1) * tree->effective[at];
        tree->nodes[at] = (struct ash_share_node){
            .parent = parent, .shares = shares, .usage = whole[at], .is_user = strcmp(user, "-") != 0};
        tree->factor[at] = strtod(factor, NULL);
        tree->level[at] = strtod(level, NULL);
        snprintf(tree->names[at], sizeof(tree->names[0]), "%.30s/%.30s", account, user);
        assert_true(++tree->count < NODES_MAX);
    }
    fclose(file);
    assert_true(tree->count > 10);
}

static void compare(const struct tree *tree, int at, const char *what, double expected, double found, double slack)
{
    if (isinf(expected) && isinf(found)) return;
    if (!(fabs(expected - found) <= slack))
        fail_msg("%s of %s: Slurm says %.9g, found %.9g", what, tree->names[at], expected, found);
}

static void fair_tree_is_slurms(void **state)
{
    static struct tree tree;

    (void)state;
    read_tree("slurm_fair_tree.csv", &tree);
    assert_int_equal(ash_share_fair_tree(tree.nodes, tree.count), 0);
    for (int i = 1; i < tree.count; i++) {
        const struct ash_share_node *node = &tree.nodes[i];

        compare(&tree, i, "usage", tree.effective[i], node->effective_usage, 2 * PRINTED);
        /* the level divides by a usage of six digits */
        if (!isinf(node->level_fs))
            compare(&tree, i, "level", tree.level[i], node->level_fs,
                    PRINTED + 2 * PRINTED * node->level_fs / node->effective_usage);
        if (node->is_user) compare(&tree, i, "factor", tree.factor[i], node->factor, PRINTED);
    }
}

/* Lines `depth,account,user,shares,share of all,usage of all,effective usage,factor` of sshare with NO_FAIR_TREE. Usage
 * was printed to six digits, and the factor is 2 to the power of it by the share: its slack is that of these digits. */
static void classic_is_slurms(const char *name, double damping)
{
    struct ash_share_node nodes[NODES_MAX] = {{0}};
    double printed[NODES_MAX][4]; /* share, usage, effective usage, factor */
    char path[512], line[256], account[32], user[32];
    int above[DEPTH_MAX + 1] = {0}, depth, count = 0;
    FILE *file;

    snprintf(path, sizeof(path), TEST_DATA "/plan/queue/%s", name);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        double *row = printed[count];

        if (sscanf(line, "%d,%31[^,],%31[^,],%lf,%lf,%lf,%lf,%lf", &depth, account, user, &nodes[count].shares, &row[0],
                   &row[1], &row[2], &row[3]) != 8)
            continue; /* the header */
        assert_in_range(depth, 0, DEPTH_MAX);
        nodes[count].parent = depth > 0 ? above[depth - 1] : -1;
        nodes[count].is_user = strcmp(user, "-") != 0;
        nodes[count].usage = row[1];
        above[depth] = count;
        assert_true(++count < NODES_MAX);
    }
    fclose(file);
    assert_true(count > 10);
    ash_share_multifactor(nodes, count, damping);
    for (int i = 1; i < count; i++) {
        double slack = 3 * PRINTED, share = nodes[i].norm_shares;

        if (fabs(share - printed[i][0]) > PRINTED || fabs(nodes[i].norm_usage - printed[i][1]) > slack ||
            fabs(nodes[i].effective_usage - printed[i][2]) > slack ||
            fabs(nodes[i].factor - printed[i][3]) > PRINTED + slack * nodes[i].factor / share / damping)
            fail_msg("%s, line %d: share %.9g, usage %.9g, %.9g, factor %.9g", name, i + 2, share, nodes[i].norm_usage,
                     nodes[i].effective_usage, nodes[i].factor);
    }
}

static void test_classic_as_sshare(void **state)
{
    (void)state;
    classic_is_slurms("slurm_multifactor.csv", 1);
    classic_is_slurms("slurm_multifactor_3.csv", 3); /* FairShareDampeningFactor */
}

/* What sprio -n of a real Slurm 22.05 printed for jobs of 1 to 4 nodes on four nodes of four processors, one processor
 * a node: the size factor to seven digits. With PriorityWeightJobSize=10000 these are 1562, 3125, 4688 and 6250. */
static void test_job_size_as_sprio(void **state)
{
    static const double printed[] = {0.1562500, 0.3125000, 0.4687500, 0.6250000};
    struct cluster *c = open_cluster("SwitchName=s Nodes=n[0-3]\n", 4,
                                     "preset: slurm\nweights: {size: 10000, class: 0, age: 1000, fair_share: 0}\n");

    (void)state;
    submit(c, job_of(c, 'x', NULL, 4, 4), 0);
    assert_pass(c, 0, "+x");
    for (int nodes = 1; nodes <= 4; nodes++)
        submit(c, job_of(c, (char)('a' + nodes), NULL, nodes, 1), 0);
    assert_int_equal(ash_policy_pass(c->policy, 302400), 0); /* half of the week after which age counts no more */
    for (int nodes = 1; nodes <= 4; nodes++) {
        struct ash_policy_priority priority = ash_policy_priority_of(c->policy, c->number['a' + nodes]);

        assert_true(fabs(priority.size - 10000 * printed[nodes - 1]) < 1e-6);
        assert_true(fabs(priority.age - 500) < 1e-6);
        assert_true(fabs(priority.sum - priority.size - priority.age - priority.class - priority.fair_share) < 1e-9);
    }
    close_cluster(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fair_tree_is_slurms),
        cmocka_unit_test(test_classic_as_sshare),
        cmocka_unit_test(test_job_size_as_sprio),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
