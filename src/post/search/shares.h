/* shares - estimates from shares of right and wrong answers. Pure functions. */
#ifndef ASH_POST_SEARCH_SHARES_H
#define ASH_POST_SEARCH_SHARES_H

#include <stddef.h>

/* The chance that at least one of k answers is right where `right` of n were: 1 - C(n - right, k) / C(n, k), the
 * unbiased estimate. 0 < k <= n, right <= n. */
double ash_pass_at(size_t n, size_t right, size_t k);

struct ash_share_interval {
    double low, high;
};
/* Where a share of right ones out of n lies with 95 %: Wilson's score interval, honest near 0 and 1. [0, 1] for n 0. */
struct ash_share_interval ash_wilson(double right, double n);

#endif
