/* halves - which links of a large cluster to measure, if all pairs would be too many. Every node is paired with three
 * others. Nodes that are not slow then exchange in groups of 4, 8, 16 and so on, all groups of a size at once. A group
 * that is slow though its halves are not has a slow link between them: quarters corner it, and the last pairs are
 * measured. So a cluster takes rounds by the logarithm of its size. A link that no three meetings had is seen once it
 * holds up the exchange of its group: if it is slower than the others of its ends together.
 * Nothing is measured here. All ranks run it on the same numbers, and get the same rounds. */
#ifndef ASH_OBSERVE_CHECK_HALVES_H
#define ASH_OBSERVE_CHECK_HALVES_H

#include <stddef.h>
#include "ashlar/err.h"

struct ash_halves_ops {
    /* Measure the links of pairs both ways, all pairs at once, into the rates. partner[i] is i's; SIZE_MAX: none. */
    int (*pairs)(void *ctx, const size_t *partner, struct ash_err *err);
    /* In all groups at once every member sends as much to every other. group[i] is i's; SIZE_MAX: none. rates_out[g]:
     * bytes per second that each member of g sends. */
    int (*groups)(void *ctx, const size_t *group, size_t groups, double *rates_out, struct ash_err *err);
};

struct ash_halves {
    size_t count;        /* of nodes */
    double slow_share;   /* below this share of the usual rate a rate is slow */
    const double *rates; /* [count][count]: what pairs have measured, bytes per second; 0: nothing yet */
    const struct ash_halves_ops *ops;
    void *ctx;
    size_t rounds; /* out: that it took */
    size_t uneven; /* out: groups whose halves are far from each other as a whole: switches, no single link */
};

/* A node's partner in a round of a round-robin tournament of `seats`, an even number: all others once in seats - 1
 * rounds. May be seats - 1 if only that many play: no partner. */
size_t ash_halves_partner(size_t node, size_t round, size_t seats);
/* Measure until the slow links are found. Returns 0, -ENOMEM or an op's error. */
int ash_halves_run(struct ash_halves *halves, struct ash_err *err);

#endif
