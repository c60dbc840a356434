/* shares: pass@k, intervals. */
#include "post/search/shares.h"

#include <math.h>

#include "base/assert.h"

#define WILSON_Z 1.959964 /* 95 % */

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
