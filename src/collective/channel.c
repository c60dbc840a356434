/* Channels: the part common to all kinds, and messages in pieces. */
#include "collective/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "collective/core/channel_ops.h"
#include "collective/channel_priv.h"
#include "collective/group_priv.h"

#define SLOT_BYTES_MAX ((size_t)1 << 40)
#define SLOTS_MAX 4096

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* channel->fail. */
static int fail_group(struct ash_channel *channel, int code, const char *why, struct ash_err *err)
{
    return ash_group_fail(channel->group, code, channel->peer, why, err);
}

/* Who the ends are, and what leads from one to the other. */
static void set_ends(struct ash_channel *channel, struct ash_group *group, size_t from, size_t to)
{
    bool same_node = group->nodes.node[from] == group->nodes.node[to];
    size_t other = group->rank == from ? to : from;
    struct ash_group_member member = ash_group_get_member(group, other);

    channel->ops = same_node ? &ash_local_channel_ops : &ash_net_channel_ops;
    channel->comm = same_node ? (void *)group->local : group->net;
    channel->from = from;
    channel->to = to;
    channel->sends = group->rank == from;
    channel->own = group->members[group->rank];
    channel->peer = member.rank;
    channel->peer_place = group->nodes.place[other];
    snprintf(channel->peer_text, sizeof(channel->peer_text), "rank %zu (host %.64s, process %d)", member.rank,
             member.host, member.pid);
    channel->fail = fail_group;
    channel->group = group;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int check_ends(const struct ash_group *group, size_t from, size_t to, size_t slot_bytes, size_t slots,
                      struct ash_err *err)
{
    if (from >= group->size || to >= group->size || from == to)
        return ash_err_set(err, -EINVAL,
                           "a channel from rank %zu to rank %zu of %zu: two ranks of the group are needed", from, to,
                           group->size);
    if (group->rank != from && group->rank != to)
        return ash_err_set(err, -EINVAL, "a channel from rank %zu to rank %zu cannot be opened by rank %zu", from, to,
                           group->rank);
    if (slot_bytes == 0 || slot_bytes > SLOT_BYTES_MAX || slots == 0 || slots > SLOTS_MAX)
        return ash_err_set(err, -EINVAL, "a channel of %zu slots of %zu bytes: 1 to %d slots of up to 2^40 bytes",
                           slots, slot_bytes, SLOTS_MAX);
    return 0;
}

int ash_channel_open_in(struct ash_group *group, enum ash_channel_order order, size_t from, size_t to,
                        size_t slot_bytes, size_t slots, struct ash_channel **channel_out, struct ash_err *err)
{
    struct ash_channel *channel;
    int rc = check_ends(group, from, to, slot_bytes, slots, err);

    if (rc < 0) return rc;
    channel = calloc(1, sizeof(*channel));
    if (channel == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a channel");
    set_ends(channel, group, from, to);
    channel->slot_bytes = slot_bytes;
    channel->slots = slots;
    rc = channel->ops->open(channel, order, err);
    if (rc < 0) {
        ash_channel_close(channel);
        return rc;
    }
    *channel_out = channel;
    return 0;
}

int ash_channel_open(struct ash_group *group, size_t from, size_t to, size_t slot_bytes, size_t slots,
                     struct ash_channel **channel_out, struct ash_err *err)
{
    return ash_channel_open_in(group, ASH_CHANNEL_ORDER_OPENED, from, to, slot_bytes, slots, channel_out, err);
}

void ash_channel_close(struct ash_channel *channel)
{
    if (channel == NULL) return;
    channel->ops->close(channel);
    free(channel);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static int fill_slot(struct ash_channel *channel, void **slot_out, struct ash_err *err)
{
    int rc;

    ash_assert(channel->sends);
    rc = channel->ops->fill(channel, slot_out, err);
    channel->filling = rc == 0;
    return rc;
}

void *ash_channel_fill(struct ash_channel *channel, struct ash_err *err)
{
    void *slot = NULL;

    return fill_slot(channel, &slot, err) == 0 ? slot : NULL;
}

static int post_piece(struct ash_channel *channel, size_t size_bytes, size_t message_bytes, struct ash_err *err)
{
    int rc = channel->ops->post(channel, size_bytes, message_bytes, err);

    if (rc < 0) return rc;
    channel->filling = false;
    channel->posted++;
    return 0;
}

int ash_channel_post(struct ash_channel *channel, size_t size_bytes, struct ash_err *err)
{
    ash_assert(channel->sends && channel->filling);
    if (size_bytes > channel->slot_bytes)
        return ash_err_set(err, -EINVAL, "a message of %zu bytes in a slot of %zu", size_bytes, channel->slot_bytes);
    return post_piece(channel, size_bytes, size_bytes, err);
}

static int take_piece(struct ash_channel *channel, struct ash_channel_piece *piece_out, struct ash_err *err)
{
    int rc;

    ash_assert(!channel->sends);
    if (channel->taken - channel->released == channel->slots)
        return ash_err_set(err, -EINVAL, "all %zu slots of a channel are held: release one before taking the next",
                           channel->slots);
    rc = channel->ops->take(channel, piece_out, err);
    if (rc == 0) channel->taken++;
    return rc;
}

const void *ash_channel_take(struct ash_channel *channel, size_t *size_out, struct ash_err *err)
{
    struct ash_channel_piece piece;

    if (take_piece(channel, &piece, err) < 0) return NULL;
    *size_out = piece.size_bytes;
    return piece.data;
}

void ash_channel_release(struct ash_channel *channel)
{
    ash_assert(!channel->sends && channel->released < channel->taken);
    channel->released++;
    channel->ops->release(channel);
}

void ash_channel_set_name(struct ash_channel *channel, const char *name)
{
    size_t bytes = strlen(name);

    memset(channel->name, 0, sizeof(channel->name));
    memcpy(channel->name, name, bytes < sizeof(channel->name) ? bytes : sizeof(channel->name));
}

/* A message of a channel that has a name begins. Returns its record's number; *call_out is for its end. */
static uint64_t begin_message(struct ash_channel *channel, size_t size_bytes, struct ash_flight_call *call_out)
{
    *call_out = (struct ash_flight_call){.op = channel->sends ? ASH_FLIGHT_SEND : ASH_FLIGHT_RECV,
                                         .is_message = 1,
                                         .peer = (uint32_t)(channel->sends ? channel->to : channel->from),
                                         .bytes = size_bytes,
                                         .sequence = ++channel->messages};
    memcpy(call_out->name, channel->name, sizeof(call_out->name));
    return ash_group_record(channel->group, call_out);
}

static int send_pieces(struct ash_channel *channel, const void *data, size_t size_bytes, struct ash_err *err)
{
    size_t at = 0;

    ash_assert(channel->sends && !channel->filling && (data != NULL || size_bytes == 0));
    do { /* nothing is a message, too */
        size_t piece = size_bytes - at < channel->slot_bytes ? size_bytes - at : channel->slot_bytes;
        void *slot = NULL;
        int rc = fill_slot(channel, &slot, err);

        if (rc < 0) return rc;
        if (piece > 0) rc = ash_staging_copy(&channel->group->root->staging, slot, (const char *)data + at, piece, err);
        if (rc == 0) rc = post_piece(channel, piece, size_bytes, err);
        channel->filling = false; /* no peer has seen the slot: the next message fails by itself */
        if (rc < 0) return rc;
        at += piece;
    } while (at < size_bytes);
    return 0;
}

int ash_channel_send(struct ash_channel *channel, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct ash_flight_call call;
    uint64_t number;
    int rc;

    if (channel->name[0] == '\0') return send_pieces(channel, data, size_bytes, err);
    number = begin_message(channel, size_bytes, &call);
    rc = send_pieces(channel, data, size_bytes, err);
    ash_group_recorded(channel->group, number, &call, rc);
    return rc;
}

/* The two ranks have another message in mind: nothing that follows can be right. */
static int wrong_size(struct ash_channel *channel, size_t message_bytes, size_t size_bytes, struct ash_err *err)
{
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "message %llu: %s sends %zu bytes while rank %zu expects %zu",
             (unsigned long long)channel->taken, channel->peer_text, message_bytes, channel->own, size_bytes);
    return channel->fail(channel, -EPROTO, why, err);
}

static int recv_pieces(struct ash_channel *channel, void *data, size_t size_bytes, struct ash_err *err)
{
    size_t at = 0;

    ash_assert(channel->taken == channel->released);
    do {
        struct ash_channel_piece piece;
        int rc = take_piece(channel, &piece, err);

        if (rc < 0) return rc;
        if (piece.message_bytes != size_bytes || piece.size_bytes > size_bytes - at)
            return wrong_size(channel, piece.message_bytes, size_bytes, err);
        if (piece.size_bytes > 0)
            rc = ash_staging_copy(&channel->group->root->staging, (char *)data + at, piece.data, piece.size_bytes, err);
        at += piece.size_bytes;
        ash_channel_release(channel);
        if (rc < 0) return rc;
    } while (at < size_bytes);
    return 0;
}

int ash_channel_recv(struct ash_channel *channel, void *data, size_t size_bytes, struct ash_err *err)
{
    struct ash_flight_call call;
    uint64_t number;
    int rc;

    if (channel->name[0] == '\0') return recv_pieces(channel, data, size_bytes, err);
    number = begin_message(channel, size_bytes, &call);
    rc = recv_pieces(channel, data, size_bytes, err);
    ash_group_recorded(channel->group, number, &call, rc);
    return rc;
}
