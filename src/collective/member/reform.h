/* reform - how the survivors of a loss form a group again, with processes that replace lost ones. The lowest surviving
 * rank coordinates: the others know its address from before, and the new ones connect to the job's address, where it
 * listens again. Every wait is bounded. One owner thread. */
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
    const char *host;                       /* the job's address */
    int port;
    double wait_s;         /* for new ones, once all survivors have come */
    double timeout_s;      /* for everything */
    size_t address_offset; /* of this host's address in a payload: a replacement learns it here */
    uint32_t new_epoch;    /* the result: */
    size_t new_rank, new_size;
};

/* Bring payload[payload_bytes], get everyone's by new rank: *payloads_out is the caller's to free. Places that stay
 * empty are left out and those after them move down; ranks on hosts that do not answer are not waited for. Returns
 * 0, -ETIMEDOUT, -EEXIST (two take one place), -EHOSTUNREACH (most of those who may live are on the other side of a
 * cut network) or -EPERM (the coordinator has got one of these, or is gone). */
int ash_reform_exchange(struct ash_reform *reform, const void *payload, size_t payload_bytes, void **payloads_out,
                        struct ash_err *err);

#endif
