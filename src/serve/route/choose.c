/* The choice: a cost for each replica. */
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

/* The cost of a replica, in blocks. */
static double cost_of(enum ash_route_policy policy, const struct ash_route_candidate *candidate, double limit)
{
    double load = (double)candidate->in_flight;

    if (policy == ASH_ROUTE_ROUND_ROBIN) return 0;
    if (policy == ASH_ROUTE_LEAST_LOADED) return load;
    return ASH_ROUTE_REQUEST_BLOCKS * load - (load <= limit ? (double)candidate->known_blocks : 0);
}

size_t ash_route_choose(enum ash_route_policy policy, const struct ash_route_candidate *candidates, size_t count)
{
    double limit = load_limit(candidates, count), best_cost = 0;
    size_t best = ASH_ROUTE_NONE;

    ash_assert(candidates != NULL || count == 0);
    for (size_t i = 0; i < count; i++) {
        double cost;

        if (!candidates[i].is_usable) continue;
        cost = cost_of(policy, &candidates[i], limit);
        if (best != ASH_ROUTE_NONE && cost > best_cost) continue;
        if (best != ASH_ROUTE_NONE && cost >= best_cost && candidates[i].turn >= candidates[best].turn) continue;
        best = i;
        best_cost = cost;
    }
    return best;
}
