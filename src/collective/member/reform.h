/* reform - how what is left of a job meets again after a loss, with those that take the place of lost processes. The
 * lowest rank that is left keeps the door: the others know its address from before, and the new ones come to the job's
 * door, which it opens again. Every wait is bounded. One owner thread. */
#ifndef ASH_COLLECTIVE_MEMBER_REFORM_H
#define ASH_COLLECTIVE_MEMBER_REFORM_H

#include <stdbool.h>
#include "collective/member/watch.h"

/* Caller's storage. */
struct ash_reform {
    uint64_t job;
    uint32_t epoch;                         /* of the group that is over; who rejoins does not know it */
    size_t rank, size;                      /* there */
    size_t failed_rank;                     /* the rank whose loss ended it; SIZE_MAX: none */
    bool rejoins;                           /* this process takes the place of rank `rank` */
    const struct ash_watch_member *members; /* [size] of that group; who rejoins does not know them */
    int listen_fd;                          /* what members[rank].port leads to */
    const char *host;                       /* the job's door */
    int port;
    double wait_s;    /* for new ones, once all that are left have come */
    double timeout_s; /* for everything */
    size_t
        address_offset; /* where a payload has this host's address (ASH_SOCKET_ADDR_BYTES): who rejoins learns it here */
    uint32_t new_epoch; /* the result: */
    size_t new_rank, new_size;
};

/* Bring payload[payload_bytes], get everyone's by new rank: *payloads_out is the caller's to free. Places that stay empty are
 * left out and those after them move down; ranks on hosts that do not answer are not waited for. Returns 0, -ETIMEDOUT,
 * -EEXIST (two take one place), -EHOSTUNREACH (most of those who may live are on the other side of a cut network) or
 * -EPERM (the keeper of the door has heard one of these, or is gone). */
int ash_reform_exchange(struct ash_reform *reform, const void *payload, size_t payload_bytes, void **payloads_out,
                        struct ash_err *err);

#endif
