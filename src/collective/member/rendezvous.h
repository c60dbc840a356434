/* rendezvous - how the processes of a job find each other: each brings a payload and gets all payloads. The first rank
 * coordinates (it listens), the others connect to it. Every wait is bounded, and who did not come is named. One owner
 * thread. */
#ifndef ASH_COLLECTIVE_MEMBER_RENDEZVOUS_H
#define ASH_COLLECTIVE_MEMBER_RENDEZVOUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/socket.h"

#define ASH_RENDEZVOUS_PAYLOAD_MAX ((size_t)64 * 1024)

/* Caller's storage; fill the first part, zero the rest. */
struct ash_rendezvous {
    uint64_t job; /* processes of another job, or of another epoch, are refused */
    uint32_t epoch;
    size_t rank, size;
    const char *host; /* where the first rank listens */
    int port;
    double timeout_s;                        /* for all ranks to come */
    int fd;                                  /* listening (first rank), or connected to the first rank */
    char own_address[ASH_SOCKET_ADDR_BYTES]; /* under which the first rank's network knows this host */
    char met_address[ASH_SOCKET_ADDR_BYTES]; /* first rank: the same, numeric, as other hosts connected to it */
    uint64_t deadline_ns;
    const atomic_bool *gives_up; /* ends all waits with -ECONNRESET once it is set; NULL: nothing does */
};

/* The first rank listens (or uses the listening socket listen_fd, if that is not -1); the others connect to it.
 * -EADDRINUSE, -ENOENT if host cannot be resolved, or -ETIMEDOUT without a coordinator. */
int ash_rendezvous_open(struct ash_rendezvous *rendezvous, int listen_fd, struct ash_err *err);
/* Bring payload[payload_bytes]; payloads_out[size * payload_bytes] gets those of all ranks, by rank. Returns 0, or
 * -ETIMEDOUT naming who is missing, -EINTR (a stop request, the same), -EEXIST (two processes claim one rank) or
 * -EPERM (refused by the first rank, with its reason). */
int ash_rendezvous_exchange(struct ash_rendezvous *rendezvous, const void *payload, size_t payload_bytes,
                            void *payloads_out, struct ash_err *err);
/* Close the connection, or the listening socket unless it was the caller's. Zeroed or failed: a no-op. */
void ash_rendezvous_close(struct ash_rendezvous *rendezvous);

#endif
