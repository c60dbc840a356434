/* Messages between any two ranks of a group: a channel for each pair and direction, opened when both first use it. */
#include <errno.h>
#include <stdlib.h>

#include "collective/call_priv.h"
#include "collective/channel_priv.h"
#include "collective/group_priv.h"

#define SLOT_BYTES ((size_t)64 * 1024)
#define SLOTS 8

static int get_channel(struct ash_group *group, size_t from, size_t to, struct ash_channel **channel_out,
                       struct ash_err *err)
{
    bool sends = group->rank == from;
    struct ash_channel ***all = sends ? &group->sends : &group->receives;
    size_t peer = sends ? to : from;
    int rc = 0;

    if (peer >= group->size || peer == group->rank)
        return ash_err_set(err, -EINVAL, "rank %zu of %zu exchanges a message with rank %zu", group->rank, group->size,
                           peer);
    if (*all == NULL) *all = calloc(group->size, sizeof(**all));
    if (*all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for messages between %zu ranks", group->size);
    if ((*all)[peer] == NULL)
        rc = ash_channel_open_in(group, ASH_CHANNEL_ORDER_GROUP, from, to, SLOT_BYTES, SLOTS, &(*all)[peer], err);
    if (rc < 0) return rc;
    *channel_out = (*all)[peer];
    return 0;
}

/* A rank that has left the group before it took or sent a message ends it for all, as one does that leaves others in a
 * call. */
static int settle(struct ash_group *group, size_t peer, int rc, const struct ash_err *cause, struct ash_err *err)
{
    if (rc == -EPIPE) return ash_group_fail(group, rc, group->members[peer], cause->text, err);
    return rc == 0 ? 0 : ash_err_set(err, rc, "%s", cause->text);
}

/* Messages arrive in order, so both ends give one the same number: they count by pair and direction. */
static struct ash_flight_call message(struct ash_group *group, enum ash_flight_op op, size_t peer, size_t size_bytes)
{
    uint64_t **counts = op == ASH_FLIGHT_SEND ? &group->sent : &group->received;
    struct ash_flight_call call = {.op = (uint16_t)op, .is_message = 1, .peer = (uint32_t)peer, .bytes = size_bytes};

    if (*counts == NULL) *counts = calloc(group->size, sizeof(**counts));
    if (*counts != NULL && peer < group->size) call.sequence = ++(*counts)[peer];
    return call;
}

int ash_group_send(struct ash_group *group, size_t to, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct ash_flight_call what = message(group, ASH_FLIGHT_SEND, to, size_bytes);
    struct ash_channel *channel = NULL;
    struct ash_err cause = {0};
    uint64_t number;
    int rc;

    ash_call_drain(group, ASH_NATURE_SEND);
    number = ash_group_record(group, &what);
    rc = get_channel(group, group->rank, to, &channel, &cause);
    if (rc == 0) rc = ash_channel_send(channel, data, size_bytes, &cause);
    ash_group_recorded(group, number, &what, rc);
    return settle(group, to, rc, &cause, err);
}

int ash_group_recv(struct ash_group *group, size_t from, void *data, size_t size_bytes, struct ash_err *err)
{
    struct ash_flight_call what = message(group, ASH_FLIGHT_RECV, from, size_bytes);
    struct ash_channel *channel = NULL;
    struct ash_err cause = {0};
    uint64_t number;
    int rc;

    ash_call_drain(group, ASH_NATURE_RECEIVE);
    number = ash_group_record(group, &what);
    rc = get_channel(group, from, group->rank, &channel, &cause);
    if (rc == 0) rc = ash_channel_recv(channel, data, size_bytes, &cause);
    ash_group_recorded(group, number, &what, rc);
    return settle(group, from, rc, &cause, err);
}

static void close_all(struct ash_channel **channels, size_t count)
{
    for (size_t r = 0; channels != NULL && r < count; r++)
        ash_channel_close(channels[r]);
    free(channels);
}

void ash_group_messages_fini(struct ash_group *group)
{
    close_all(group->sends, group->size);
    close_all(group->receives, group->size);
    group->sends = group->receives = NULL;
    free(group->sent);
    free(group->received);
    group->sent = group->received = NULL;
}
