/* cluster - the nodes of an allocation, each by itself and against each other: clocks over the shortest of some round
 * trips, facts, disks, and links (probe/links.h). One rank on every node. Nothing is printed here. */
#ifndef ASH_PROBE_CLUSTER_H
#define ASH_PROBE_CLUSTER_H

#include <stdbool.h>
#include "observe/check/cluster.h"
#include "probe/links.h"

struct ash_cluster_check {
    const struct ash_check_opts *node;
    const char *disk; /* folder whose disk is measured; NULL: none */
    double slow_share;
    enum ash_links_way links_way;
    bool is_deep;
};

/* Caller's storage. */
struct ash_cluster_probe {
    const struct ash_cluster_check *check; /* borrowed */
    struct ash_group *group;               /* borrowed */
    size_t rank, size;
    struct ash_node_card *cards; /* [size]; all of them on the first rank */
    struct ash_cluster_links links;
    struct ash_cluster_report *report; /* on the first rank */
};

/* Memory for the nodes of a group of at most 1,024. Returns 0, -EINVAL or -ENOMEM. */
int ash_cluster_probe_init(struct ash_cluster_probe *probe, const struct ash_cluster_check *check,
                           struct ash_group *group, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_cluster_probe_fini(struct ash_cluster_probe *probe);
/* Measure and judge: all ranks call it. Returns 0 (all alike and fit), 1 (an outlier) or a negative errno. */
int ash_cluster_probe_run(struct ash_cluster_probe *probe, struct ash_err *err);
/* The rate of a node's slowest link, either way, in bytes per second; 0: none was measured. */
double ash_cluster_probe_least_rate(const struct ash_cluster_probe *probe, size_t node);

#endif
