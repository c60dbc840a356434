/* links - the links between the nodes of an allocation, measured: all pairs, or by halves if there are too many. */
#ifndef ASH_PROBE_LINKS_H
#define ASH_PROBE_LINKS_H

#include <stddef.h>
#include "collective/group.h"

enum ash_links_way { ASH_LINKS_AUTO, ASH_LINKS_PAIRS, ASH_LINKS_HALVES };

/* Caller's storage. */
struct ash_cluster_links {
    struct ash_group *group; /* borrowed: a rank on every node */
    size_t rank, size;       /* of the group */
    double slow_share;
    double *rates; /* [size][size] bytes per second; 0: not measured; negative: disturbed by other work, not judged */
    double *most;  /* [size][size]: upper bounds of the rates without that work */
    char *piece;
    size_t rounds; /* that it took */
    size_t uneven; /* groups whose halves are far from each other as a whole */
    bool is_halves;
};

/* Memory for the links of a group. 0 or -ENOMEM. */
int ash_cluster_links_init(struct ash_cluster_links *links, struct ash_group *group, double slow_share,
                           struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_cluster_links_fini(struct ash_cluster_links *links);
/* Measure: all ranks call it. Slow links are measured again, alone; all ranks then have all rates. AUTO: all pairs of
 * up to 64 nodes. */
int ash_cluster_links_measure(struct ash_cluster_links *links, enum ash_links_way way, struct ash_err *err);
/* How many links other work disturbed so much that they may be slow or not. */
size_t ash_cluster_links_unjudged(const struct ash_cluster_links *links);
/* How many links have a rate. */
size_t ash_cluster_links_measured(const struct ash_cluster_links *links);

#endif
