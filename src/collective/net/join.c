/* A second meeting, of jobs on several nodes only: those on one need no endpoint, which takes a moment to open. */
#include "collective/net/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collective/member/rendezvous.h"

static int meet(const struct ash_net_join *join, const struct ash_net_card *card, struct ash_net_card *cards,
                struct ash_err *err)
{
    struct ash_rendezvous meeting = {.job = join->job,
                                     .epoch = join->epoch,
                                     .rank = join->rank,
                                     .size = join->size,
                                     .host = join->host,
                                     .port = join->port,
                                     .timeout_s = join->timeout_s,
                                     .fd = -1};
    int rc = ash_rendezvous_open(&meeting, join->door_fd, err);

    if (rc == 0) rc = ash_rendezvous_meet(&meeting, card, sizeof(*card), cards, err);
    ash_rendezvous_close(&meeting);
    return rc;
}

static int open_docks(struct ash_harbor *harbor, size_t rank, size_t size, struct ash_net_docks *docks,
                      struct ash_net_address *address_out, struct ash_err *err)
{
    uint32_t *members = calloc(size, sizeof(*members));
    int rc;

    if (members == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
    for (size_t r = 0; r < size; r++)
        members[r] = (uint32_t)r;
    rc = ash_net_docks_open(harbor, rank, size, members, docks, address_out, err);
    free(members);
    return rc;
}

static int connect_all(const struct ash_net_join *join, struct ash_harbor *harbor, const struct ash_net_card *cards,
                       struct ash_net_address *addresses, struct ash_err *err)
{
    int rc = 0;

    for (size_t r = 0; r < join->known; r++)
        ash_harbor_disconnect(harbor, (uint32_t)r); /* the same endpoints may have other numbers now */
    for (size_t r = 0; r < join->size && rc == 0; r++) {
        addresses[r] = cards[r].docks;
        if (r != join->rank) rc = ash_harbor_connect(harbor, (uint32_t)r, &cards[r].addr, err);
    }
    return rc < 0 ? ash_err_prefix(err, rc, "rank %zu cannot reach the other nodes", join->rank) : 0;
}

int ash_net_join(const struct ash_net_join *join, struct ash_harbor **harbor_out, struct ash_net_docks *docks_out,
                 struct ash_net_address **addresses_out, struct ash_err *err)
{
    struct ash_net_card card, *cards = calloc(join->size, sizeof(*cards));
    struct ash_net_address *addresses = calloc(join->size, sizeof(*addresses));
    struct ash_harbor *harbor = join->harbor;
    struct ash_net_docks docks = {{NULL}};
    int rc =
        cards != NULL && addresses != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", join->size);

    memset(&card, 0, sizeof(card));
    if (rc == 0 && harbor == NULL) rc = ash_harbor_open(join->fabric, join->node, join->address, &harbor, err);
    if (rc == 0) rc = open_docks(harbor, join->rank, join->size, &docks, &card.docks, err);
    if (rc == 0) {
        ash_harbor_addr(harbor, &card.addr);
        rc = meet(join, &card, cards, err);
    }
    if (rc == 0) rc = connect_all(join, harbor, cards, addresses, err);
    free(cards);
    if (rc < 0) {
        free(addresses);
        ash_net_docks_close(&docks);
        if (join->harbor == NULL) ash_harbor_close(harbor);
        return rc;
    }
    *harbor_out = harbor;
    *docks_out = docks;
    *addresses_out = addresses;
    return 0;
}
