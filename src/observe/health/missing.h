/* missing - parts that a machine must have and a scrape of it does not: missing parts have no series. */
#ifndef ASH_OBSERVE_HEALTH_MISSING_H
#define ASH_OBSERVE_HEALTH_MISSING_H

#include <stddef.h>
#include <stdint.h>
#include "observe/health/diagnose.h"

/* Expected parts of a machine; negative: unknown. */
struct ash_parts_wanted {
    int64_t gpus, network_devices;
};

struct ash_missing {
    enum ash_health_layer layer;
    const char *key, *metric, *means, *action;
    char evidence[64]; /* "7 of 8 GPUs" */
};

#define ASH_MISSING_MAX 2

/* Look for them in what an agent's sources answered. Returns how many of missing_out are filled. */
size_t ash_missing_find(const char *text, const struct ash_parts_wanted *wanted,
                        struct ash_missing missing_out[ASH_MISSING_MAX]);

#endif
