/* channel - a one-way p2p channel from one rank of a group to another: between the stages of a pipeline, or for
 * pipelined reductions. The sender computes into a slot of the channel and posts it; the receiver takes it, uses it
 * in place and releases it. Up to `slots` messages are under way, in order.
 *
 * Every wait is bounded by the group's call_timeout and ends at once with the group's error when a rank is lost or
 * aborts; the error names rank, host, process, message and how long. A channel is independent of the group's calls:
 * it may be used while a call that was started runs. One owner thread at each end. Close all channels before their
 * group. / */
#ifndef ASH_COLLECTIVE_CHANNEL_H
#define ASH_COLLECTIVE_CHANNEL_H

#include <stddef.h>
#include "ashlar/err.h"
#include "collective/group.h"

struct ash_channel;

/* Called by ranks from and to of the group (no other), with equal arguments; where two ranks open several channels from
 * one to the other, both open them in the same order. The receiver waits for the sender, the sender does not wait
 * (until it is eight channels ahead): ranks in a ring open what they send into first. Between nodes the first fill
 * waits until the receiver has opened its end. Returns 0, -EINVAL, -ENOMEM, -EPROTO (the two disagree), or the group's
 * error. */
int ash_channel_open(struct ash_group *group, size_t from, size_t to, size_t slot_bytes, size_t slots,
                     struct ash_channel **channel_out, struct ash_err *err);
/* Messages that were posted can still be taken; a receiver that then waits for more gets -EPIPE. A sender waits until
 * the receiver has opened its end. NULL is a no-op. */
void ash_channel_close(struct ash_channel *channel);

/* Sender: the next slot to compute into, slot_bytes, 64-byte aligned. Waits for the receiver to release one. The same
 * slot again until it is posted. NULL on error. */
void *ash_channel_fill(struct ash_channel *channel, struct ash_err *err);
/* Sender: size_bytes of the filled slot go. */
int ash_channel_post(struct ash_channel *channel, size_t size_bytes, struct ash_err *err);
/* Receiver: the next message, for which it waits. Several may be held. NULL on error. */
const void *ash_channel_take(struct ash_channel *channel, size_t *size_out, struct ash_err *err);
/* Receiver: done with the oldest message that it holds. */
void ash_channel_release(struct ash_channel *channel);

/* From now on every message of ash_channel_send and ash_channel_recv is in the flight recorder, under this name of at
 * most 8 bytes: the same at both ends, and another for another channel between them. */
void ash_channel_set_name(struct ash_channel *channel, const char *name);
/* Copies; any size. A message longer than a slot is sent in pieces of a slot, which ash_channel_take receives one by
 * one. */
int ash_channel_send(struct ash_channel *channel, const void *data, size_t size_bytes, struct ash_err *err);
/* Exactly size_bytes. A message of another size is -EPROTO, naming both. No message may be held. */
int ash_channel_recv(struct ash_channel *channel, void *data, size_t size_bytes, struct ash_err *err);

#endif
