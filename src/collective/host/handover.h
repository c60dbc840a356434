/* handover - every rank of a node gives every other one a descriptor, over Unix sockets without names in a file
 * system. Private to collective/host. */
#ifndef ASH_COLLECTIVE_HOST_HANDOVER_H
#define ASH_COLLECTIVE_HOST_HANDOVER_H

#include "collective/host/local.h"

struct ash_handover_ops {
    /* Send it over a connected socket. Returns 0 or a negative errno. */
    int (*send)(void *ctx, int socket, struct ash_err *err);
    /* Take that of a rank, which has been sent. */
    int (*receive)(void *ctx, size_t rank, int socket, struct ash_err *err);
};

/* All ranks call it. has_one: this rank has a descriptor to give; where one has none, nothing is given. Returns 0;
 * -ENOTSUP on all ranks where any could not give or take (err has this rank's own reason, or a general one); or the
 * communicator's error. */
int ash_handover(struct ash_local *local, const struct ash_handover_ops *ops, void *ctx, bool has_one,
                 struct ash_err *err);

#endif
