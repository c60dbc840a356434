/* price - what a machine costs, by the catalog. */
#ifndef ASH_PLAN_PRICE_H
#define ASH_PLAN_PRICE_H

#include <stdbool.h>
#include "infra/catalog.h"

struct ash_price {
    double usd_hour; /* of one machine; 0: unknown */
    bool reserved;   /* it is a capacity block's: on demand there is none */
};

/* On demand, or of a capacity block if there is no other offer. */
struct ash_price ash_price_of(const struct ash_machine *machine);
/* The same of one of its GPUs, in dollars per hour. */
double ash_price_gpu_hour(const struct ash_machine *machine);

#endif
