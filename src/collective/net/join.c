/* A second rendezvous, of jobs on several nodes only: those on one need no endpoint, which takes a moment to open. */
#include "collective/net/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "collective/member/rendezvous.h"

static int exchange(const struct ash_net_join_opts *join, const struct ash_net_endpoint *endpoint,
                    struct ash_net_endpoint *endpoints, struct ash_err *err)
{
    struct ash_rendezvous meeting = {.job = join->job,
                                     .epoch = join->epoch,
                                     .rank = join->rank,
                                     .size = join->size,
                                     .host = join->host,
                                     .port = join->port,
                                     .timeout_s = join->timeout_s,
                                     .gives_up = join->gives_up,
                                     .fd = -1};
    int rc = ash_rendezvous_open(&meeting, join->listen_fd, err);

    if (rc < 0) return rc;
    rc = ash_rendezvous_exchange(&meeting, endpoint, sizeof(*endpoint), endpoints, err);
    ash_rendezvous_close(&meeting);
    return rc;
}

static int open_mailboxes(struct ash_progress *progress, size_t rank, size_t size, struct ash_net_mailboxes *mailboxes,
                          struct ash_net_address *address_out, struct ash_err *err)
{
    uint32_t *members = calloc(size, sizeof(*members));
    int rc;

    ash_assert(rank < size);
    if (members == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
    for (size_t r = 0; r < size; r++)
        members[r] = (uint32_t)r;
    rc = ash_net_mailboxes_open(progress, rank, size, members, mailboxes, address_out, err);
    free(members);
    return rc;
}

static int connect_all(const struct ash_net_join_opts *join, struct ash_progress *progress,
                       const struct ash_net_endpoint *endpoints, struct ash_net_address *addresses, struct ash_err *err)
{
    int rc = 0;

    for (size_t r = 0; r < join->size && rc == 0; r++) {
        addresses[r] = endpoints[r].mailboxes;
        if (r != join->rank) rc = ash_progress_connect(progress, (uint32_t)r, &endpoints[r].addr, err);
    }
    return rc < 0 ? ash_err_prefix(err, rc, "rank %zu cannot reach the other nodes", join->rank) : 0;
}

int ash_net_join(const struct ash_net_join_opts *join, struct ash_progress **progress_out,
                 struct ash_net_mailboxes *mailboxes_out, struct ash_net_address **addresses_out, struct ash_err *err)
{
    struct ash_net_endpoint own, *endpoints = calloc(join->size, sizeof(*endpoints));
    struct ash_net_address *addresses = calloc(join->size, sizeof(*addresses));
    struct ash_progress *progress = join->progress;
    struct ash_net_mailboxes mailboxes = {{NULL}};
    int rc = -ENOMEM;

    ash_assert(join->rank < join->size);
    memset(&own, 0, sizeof(own));
    if (endpoints == NULL || addresses == NULL) {
        ash_err_set(err, rc, "out of memory for %zu ranks", join->size);
        goto fail;
    }
    rc = progress == NULL ? ash_progress_open(join->fabric, join->node, join->address, &progress, err) : 0;
    if (rc < 0) goto fail;
    rc = open_mailboxes(progress, join->rank, join->size, &mailboxes, &own.mailboxes, err);
    if (rc < 0) goto fail;
    ash_progress_get_addr(progress, &own.addr);
    /* The same endpoints may have other numbers now. They are forgotten before any rank can send in this epoch: else
     * messages are taken for another rank's. */
    for (size_t r = 0; r < join->known; r++)
        ash_progress_disconnect(progress, (uint32_t)r);
    rc = exchange(join, &own, endpoints, err);
    if (rc < 0) goto fail;
    rc = connect_all(join, progress, endpoints, addresses, err);
    if (rc < 0) goto fail;
    free(endpoints);
    *progress_out = progress;
    *mailboxes_out = mailboxes;
    *addresses_out = addresses;
    return 0;

fail:
    free(endpoints);
    free(addresses);
    ash_net_mailboxes_close(&mailboxes);
    if (join->progress == NULL) ash_progress_close(progress);
    return rc;
}
