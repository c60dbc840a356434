/* join - how the ranks of a root group exchange the addresses of their endpoints. */
#ifndef ASH_COLLECTIVE_NET_JOIN_H
#define ASH_COLLECTIVE_NET_JOIN_H

#include <stdatomic.h>
#include "collective/net/net.h"

/* The endpoint of a rank, as it is exchanged. Plain data. */
struct ash_net_endpoint {
    struct ash_fabric_addr addr;
    struct ash_net_address mailboxes; /* of the root group */
};

struct ash_net_join_opts {
    const struct ash_fabric_opts *fabric; /* may be NULL */
    const char *node, *address;           /* this rank's node; its own address, numeric; NULL: not known */
    uint64_t job;
    uint32_t epoch;
    size_t rank, size;
    const char *host; /* where the first rank listens, and its descriptor there (others: -1) */
    int port, listen_fd;
    double timeout_s;
    const atomic_bool *gives_up;   /* ends the exchange; may be NULL */
    struct ash_progress *progress; /* from an earlier epoch; NULL: a new one is opened */
    size_t known;                  /* ranks 0 ... that it knew there, to be forgotten */
};

/* Exchange addresses and make all ranks known to the progress engine. On 0 the caller owns *progress_out
 * (join->progress if there was one), *mailboxes_out and *addresses_out ([size], to be freed). */
int ash_net_join(const struct ash_net_join_opts *join, struct ash_progress **progress_out,
                 struct ash_net_mailboxes *mailboxes_out, struct ash_net_address **addresses_out, struct ash_err *err);

#endif
