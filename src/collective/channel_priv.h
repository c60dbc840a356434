/* channel_priv - the inside of a channel: what every kind has, and what a kind does. */
#ifndef ASH_COLLECTIVE_CHANNEL_PRIV_H
#define ASH_COLLECTIVE_CHANNEL_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include "collective/channel.h"

/* Whose order of opens counts: the user's channels, or those behind ash_group_send. */
enum ash_channel_lane { ASH_LANE_OPENED, ASH_LANE_GROUP, ASH_LANES };

/* A piece of a message, as it arrives. */
struct ash_channel_piece {
    const void *data;
    size_t size_bytes;
    size_t message_bytes; /* of the whole message */
};

struct ash_channel_ops {
    /* Build channel->link, which close frees (also half-built, or NULL). */
    int (*open)(struct ash_channel *channel, enum ash_channel_lane lane, struct ash_err *err);
    void (*close)(struct ash_channel *channel);
    /* The slot of message number `posted` (from 0). */
    int (*fill)(struct ash_channel *channel, void **slot_out, struct ash_err *err);
    int (*post)(struct ash_channel *channel, size_t size_bytes, size_t message_bytes, struct ash_err *err);
    /* Message number `taken`. */
    int (*take)(struct ash_channel *channel, struct ash_channel_piece *piece_out, struct ash_err *err);
    /* Messages below number `released` are done with. */
    void (*release)(struct ash_channel *channel);
};

struct ash_channel {
    const struct ash_channel_ops *ops;
    struct ash_group *group;
    size_t from, to;
    size_t slot_bytes, slots;
    bool sends, filling;
    uint64_t posted;          /* sender: messages */
    uint64_t taken, released; /* receiver */
    void *link;               /* of the kind */
};

/* Through shared memory of a node (host/local_channel.c). */
extern const struct ash_channel_ops ash_local_channel_ops;
/* Between nodes (net/net_channel.c). */
extern const struct ash_channel_ops ash_net_channel_ops;

int ash_channel_open_lane(struct ash_group *group, enum ash_channel_lane lane, size_t from, size_t to,
                          size_t slot_bytes, size_t slots, struct ash_channel **channel_out, struct ash_err *err);
/* The other end, for messages: "rank 3 (host a, process 17)". */
const char *ash_channel_peer_text(const struct ash_channel *channel, char *buf, size_t buf_bytes);
/* This rank and the other one, in the root group. */
size_t ash_channel_own(const struct ash_channel *channel);
size_t ash_channel_peer(const struct ash_channel *channel);

#endif
