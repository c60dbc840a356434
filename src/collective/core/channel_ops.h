/* channel_ops - the inside of a channel: what every kind has, and what a kind does. */
#ifndef ASH_COLLECTIVE_CORE_CHANNEL_OPS_H
#define ASH_COLLECTIVE_CORE_CHANNEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "record/flight.h"

struct ash_channel;

/* Whose order of opens counts: the user's channels, or those of ash_group_send. */
enum ash_channel_order { ASH_CHANNEL_ORDER_OPENED, ASH_CHANNEL_ORDER_GROUP, ASH_CHANNEL_ORDERS };

/* A piece of a message, as it arrives. */
struct ash_channel_piece {
    const void *data;
    size_t size_bytes;
    size_t message_bytes; /* of the whole message */
};

struct ash_channel_ops {
    size_t size; /* of this struct */
    /* Build channel->link, which close frees (also half-built, or NULL). */
    int (*open)(struct ash_channel *channel, enum ash_channel_order order, struct ash_err *err);
    void (*close)(struct ash_channel *channel);
    /* The slot of message number `posted` (from 0). */
    int (*fill)(struct ash_channel *channel, void **slot_out, struct ash_err *err);
    /* Send size_bytes of the filled slot, a piece of a message of message_bytes. */
    int (*post)(struct ash_channel *channel, size_t size_bytes, size_t message_bytes, struct ash_err *err);
    /* Message number `taken`. */
    int (*take)(struct ash_channel *channel, struct ash_channel_piece *piece_out, struct ash_err *err);
    /* Messages below number `released` are done with. */
    void (*release)(struct ash_channel *channel);
};

#define ASH_CHANNEL_PEER_BYTES 160

struct ash_channel {
    const struct ash_channel_ops *ops;
    void *comm;                             /* what the kind works on: struct ash_local or struct ash_net */
    size_t from, to;                        /* in the group */
    size_t own, peer;                       /* this rank and the other one, in the root group */
    size_t peer_place;                      /* the other among the ranks of its node */
    char peer_text[ASH_CHANNEL_PEER_BYTES]; /* "rank 3 (host a, process 17)" */
    size_t slot_bytes, slots;
    bool sends, filling;
    uint64_t posted;          /* sender: messages */
    uint64_t taken, released; /* receiver */
    void *link;               /* of the kind */
    /* The channel's group is over because of the other rank. Returns the group's first error, with its sentence. */
    int (*fail)(struct ash_channel *channel, int code, const char *why, struct ash_err *err);
    struct ash_group *group;
    char name[ASH_FLIGHT_NAME_BYTES]; /* for the flight recorder, zero-padded; empty: it is not recorded */
    uint64_t messages;                /* recorded so far */
};

#endif
