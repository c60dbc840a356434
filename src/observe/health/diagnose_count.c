/* How many parts of a kind a node has, against before and against other nodes: missing parts have no series to
 * judge. */
#include "observe/health/diagnose_priv.h"

#include <stdio.h>

#include "base/assert.h"

/* How many series from the first on are of its node. */
static size_t node_run(const struct ash_series *series, size_t count)
{
    size_t run = 1;

    ash_assert(count > 0); /* there is a first series to compare with */
    while (run < count && ash_node_compare(series[run].node, series[0].node) == 0)
        run++;
    return run;
}

/* How many of the series, which are sorted by node, are of a node. */
static size_t count_of_node(const struct ash_series *series, size_t count, struct ash_node_name node)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ash_node_compare(series[middle].node, node) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count || ash_node_compare(series[low].node, node) != 0) return 0;
    return node_run(series + low, count - low);
}

/* The number of parts that most nodes have; of two that are as frequent, the larger. */
static size_t usual_count(const struct ash_series *series, size_t count, size_t *nodes_out)
{
    enum { PARTS_MAX = 256 };
    size_t nodes_with[PARTS_MAX] = {0}, usual = 0;

    *nodes_out = 0;
    for (size_t i = 0, run; i < count; i += run) {
        run = node_run(series + i, count - i);
        nodes_with[run < PARTS_MAX ? run : PARTS_MAX - 1]++;
        (*nodes_out)++;
    }
    for (size_t parts = 1; parts < PARTS_MAX; parts++) {
        if (nodes_with[parts] > 0 && nodes_with[parts] >= nodes_with[usual]) usual = parts;
    }
    return usual;
}

static int report_count(struct ash_diagnose *diagnose, const struct ash_rule *rule, struct ash_node_name node,
                        size_t found, size_t wanted, const char *when)
{
    struct ash_finding finding = ash_finding_of(rule);

    if (found >= wanted) return 0;
    finding.excess = (double)(wanted - found);
    snprintf(finding.where, sizeof(finding.where), "%.*s", node.bytes, node.text);
    snprintf(finding.value, sizeof(finding.value), "%zu, %s %zu", found, when, wanted);
    return ash_diagnose_report(diagnose, &finding);
}

/* Nodes with fewer parts than before, or else than most. Nodes without any are only missed if there were some. */
int ash_diagnose_judge_count(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *now,
                             size_t now_count, struct ash_check *check)
{
    size_t before_count, nodes, usual = usual_count(now, now_count, &nodes);
    const struct ash_series *before = ash_series_range(&diagnose->before, rule->metric, &before_count);
    int rc = 0;

    for (size_t i = 0, run; i < now_count && rc == 0; i += run) {
        size_t had = count_of_node(before, before_count, now[i].node);

        run = node_run(now + i, now_count - i);
        if (had > run)
            rc = report_count(diagnose, rule, now[i].node, run, had, "before");
        else
            rc = report_count(diagnose, rule, now[i].node, run, usual, "most nodes have");
    }
    for (size_t i = 0, run; i < before_count && rc == 0; i += run) {
        run = node_run(before + i, before_count - i);
        if (count_of_node(now, now_count, before[i].node) == 0)
            rc = report_count(diagnose, rule, before[i].node, 0, run, "before");
    }
    check->series = nodes > 1 || before_count > 0 ? now_count : 0;
    check->state = check->series > 0 ? ASH_CHECK_NORMAL : ASH_CHECK_PEERS;
    return rc;
}
