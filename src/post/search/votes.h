/* votes - which of several answers counts, and what their right ones say about a model. Pure functions. */
#ifndef ASH_POST_SEARCH_VOTES_H
#define ASH_POST_SEARCH_VOTES_H

#include <stdbool.h>
#include <stddef.h>

/* How one of n answers is chosen. */
enum ash_strategy {
    ASH_STRATEGY_GREEDY,   /* one answer, the most likely tokens */
    ASH_STRATEGY_BEST,     /* a right one, if there is one: what a perfect checker would choose */
    ASH_STRATEGY_MAJORITY, /* the most frequent one */
    ASH_STRATEGY_WEIGHTED, /* the one with the largest sum of weights */
};
extern const char *const ash_strategy_names[];

/* One answer. */
struct ash_vote {
    const char *text;
    double weight; /* of its vote: a score, a probability; >= 0 */
    bool is_right;
};
/* The answer that counts of votes [count > 0]: an index. Ties go to the first. Equal texts are one answer. */
size_t ash_votes_choose(const struct ash_vote *votes, size_t count, enum ash_strategy strategy);

/* The chance that at least one of k answers is right where `right` of n were: 1 - C(n - right, k) / C(n, k), the
 * unbiased estimate. 0 < k <= n, right <= n. */
double ash_pass_at(size_t n, size_t right, size_t k);

struct ash_share_interval {
    double low, high;
};
/* Where a share of right ones out of n lies with 95 %: Wilson's score interval, honest near 0 and 1. [0, 1] for n 0. */
struct ash_share_interval ash_wilson(double right, double n);

#endif
