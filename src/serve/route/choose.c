/* The choice: a score for each replica, compared part by part. */
#include "serve/route/choose.h"

#include "base/assert.h"

/* The load up to which a known prefix counts. */
static double load_limit(const struct ash_route_candidate *candidates, size_t count)
{
    double load = 0, usable = 0;

    for (size_t i = 0; i < count; i++) {
        if (!candidates[i].is_usable) continue;
        load += (double)candidates[i].in_flight;
        usable++;
    }
    return usable > 0 ? load / usable * ASH_ROUTE_LOAD_FACTOR + ASH_ROUTE_LOAD_SLACK : 0;
}

/* The known part of the prompt, as far as it counts. */
static size_t prefix_of(const struct ash_route_candidate *candidate, double limit)
{
    return (double)candidate->in_flight <= limit ? candidate->known_blocks : 0;
}

size_t ash_route_choose(enum ash_route_policy policy, const struct ash_route_candidate *candidates, size_t count)
{
    double limit = policy == ASH_ROUTE_PREFIX ? load_limit(candidates, count) : -1;
    size_t best = ASH_ROUTE_NONE;

    ash_assert(candidates != NULL || count == 0);
    for (size_t i = 0; i < count; i++) {
        const struct ash_route_candidate *one = &candidates[i], *other;
        size_t known, other_known;

        if (!one->is_usable) continue;
        if (best == ASH_ROUTE_NONE) {
            best = i;
            continue;
        }
        other = &candidates[best];
        known = prefix_of(one, limit);
        other_known = prefix_of(other, limit);
        if (known != other_known) {
            if (known > other_known) best = i;
        } else if (policy != ASH_ROUTE_ROUND_ROBIN && one->in_flight != other->in_flight) {
            if (one->in_flight < other->in_flight) best = i;
        } else if (one->turn < other->turn) {
            best = i;
        }
    }
    return best;
}
