/* tier - write and read rates of a storage tier of the catalog, for its size and number of clients. */
#ifndef ASH_PLAN_TIER_H
#define ASH_PLAN_TIER_H

#include <stdbool.h>
#include "infra/catalog.h"

struct ash_tier_rate {
    double write_bytes_s, read_bytes_s;
    bool clients_limit; /* the machines' own connections are the limit, not the tier */
};

/* Rates of tib TiB of the tier called name (by its name in `ashlar catalog ls storage`) that the machines of a cluster
 * use together. -ENOENT lists the tiers; -EINVAL: the tier needs a size and tib is 0, or its rate is not published. */
int ash_tier_rate_of(const struct ash_catalog *catalog, const char *name, double tib, const struct ash_machine *machine,
                     double machines, struct ash_tier_rate *rate_out, struct ash_err *err);

#endif
