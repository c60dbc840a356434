/* join - how the ranks of a root group come to know each other's endpoints. */
#ifndef ASH_COLLECTIVE_JOIN_H
#define ASH_COLLECTIVE_JOIN_H

#include "collective/net/net.h"

/* What a rank says of its endpoint. Plain data. */
struct ash_net_card {
    struct ash_fabric_addr addr;
    struct ash_net_address docks; /* of the root group */
};

struct ash_net_join {
    const struct ash_fabric_opts *fabric; /* may be NULL */
    const char *node, *address;           /* this rank's node; an address of its own, numeric; NULL: not known */
    uint64_t job;
    uint32_t epoch;
    size_t rank, size;
    const char *host; /* the first rank's door, and its descriptor there (others: -1) */
    int port, door_fd;
    double timeout_s;
    struct ash_harbor *harbor; /* from an earlier epoch; NULL: a new one is opened */
    size_t known;              /* ranks 0 ... that it knew there, to be forgotten */
};

/* Exchange addresses and make all ranks known to the harbor. On 0 the caller owns *harbor_out (join->harbor where there
 * was one), *docks_out and *addresses_out ([size], to be freed). */
int ash_net_join(const struct ash_net_join *join, struct ash_harbor **harbor_out, struct ash_net_docks *docks_out,
                 struct ash_net_address **addresses_out, struct ash_err *err);

#endif
