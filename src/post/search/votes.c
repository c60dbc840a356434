/* votes: majority, weights, pass@k, intervals. */
#include "post/search/votes.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"

#define WILSON_Z 1.959964 /* 95 % */

const char *const ash_strategy_names[] = {"greedy", "best", "majority", "weighted", NULL};

size_t ash_votes_choose(const struct ash_vote *votes, size_t count, enum ash_strategy strategy)
{
    size_t best = 0;
    double most = -INFINITY;

    ash_assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        double sum = strategy == ASH_STRATEGY_BEST ? votes[i].is_right : 0.0;

        for (size_t k = 0; strategy >= ASH_STRATEGY_MAJORITY && k < count; k++)
            if (strcmp(votes[i].text, votes[k].text) == 0)
                sum += strategy == ASH_STRATEGY_WEIGHTED ? votes[k].weight : 1.0;
        if (sum <= most) continue;
        most = sum;
        best = i;
    }
    return best;
}

double ash_pass_at(size_t n, size_t right, size_t k)
{
    double none = 1.0;

    ash_assert(k > 0 && k <= n && right <= n);
    if (n - right < k) return 1.0;
    for (size_t i = n - right + 1; i <= n; i++) /* C(n - right, k) / C(n, k) as a product of shares */
        none *= 1.0 - (double)k / (double)i;
    return 1.0 - none;
}

struct ash_share_interval ash_wilson(double right, double n)
{
    double share, centre, half, scale;

    if (n <= 0) return (struct ash_share_interval){0.0, 1.0};
    share = right / n;
    scale = 1.0 / (1.0 + WILSON_Z * WILSON_Z / n);
    centre = (share + WILSON_Z * WILSON_Z / (2.0 * n)) * scale;
    half = WILSON_Z * scale * sqrt(share * (1.0 - share) / n + WILSON_Z * WILSON_Z / (4.0 * n * n));
    return (struct ash_share_interval){fmax(0.0, centre - half), fmin(1.0, centre + half)};
}
