/* mailbox - where the messages of one group arrive and leave. For every other rank there is a queue pair: queues of
 * slots in the receiver's registered memory, which the sender writes (ash_fabric_write) and then notifies. The receiver
 * reads a message in place and returns the slot as a credit. Messages of a queue keep their order. One thread
 * sends and one (the same or another) receives; the events come from the thread that polls the progress engine. */
#ifndef ASH_COLLECTIVE_NET_MAILBOX_H
#define ASH_COLLECTIVE_NET_MAILBOX_H

#include "collective/net/progress.h"

#define ASH_MAILBOX_SLOTS 4 /* of a queue of a group's calls */
#define ASH_MAILBOX_SLOT_BYTES ((size_t)65536)
#define ASH_MAILBOX_HEAD_BYTES ((size_t)64) /* in front of a message, for the user: which call it belongs to */
#define ASH_MAILBOX_BODY_BYTES (ASH_MAILBOX_SLOT_BYTES - ASH_MAILBOX_HEAD_BYTES)

/* What the other ranks need to send to a mailbox. Plain data: may be sent. */
struct ash_mailbox_address {
    uint32_t handle, reserved;
    struct ash_fabric_key key;
};

struct ash_mailbox;

struct ash_mailbox_opts {
    struct ash_progress *progress;
    size_t rank, size;        /* this process among those that send to each other */
    const uint32_t *members;  /* [size] their numbers in the root group */
    size_t slot_bytes, slots; /* of a queue; slot_bytes is a multiple of 64 */
    size_t credit_batch;      /* credits that are returned together: a sender can use credit_batch - 1 slots fewer */
};

/* Open queues to and from all ranks. Returns 0, -ENOMEM or the fabric's error; on 0 the caller owns *mailbox_out. */
int ash_mailbox_open(const struct ash_mailbox_opts *opts, struct ash_mailbox **mailbox_out, struct ash_err *err);
/* What the other ranks need to send to it. */
void ash_mailbox_get_address(const struct ash_mailbox *mailbox, struct ash_mailbox_address *address_out);
/* All ranks have opened theirs: addresses[r] is rank r's. Returns 0 or the fabric's error. */
int ash_mailbox_connect(struct ash_mailbox *mailbox, const struct ash_mailbox_address *addresses, struct ash_err *err);
/* An error has ended this rank's calls: peers shall not take the coming close for an end in good order, but wait for
 * the error. NULL is a no-op. */
void ash_mailbox_fail(struct ash_mailbox *mailbox);
/* Wait, a moment at most, until sent messages have left, and notify the peers. NULL is a no-op. */
void ash_mailbox_close(struct ash_mailbox *mailbox);

/* Timeout callback of a wait, called from time to time: 0 to keep waiting, or the negative errno to return. rank is
 * waited for; gone: 0, or why nothing will come from it (negative errno; -EPIPE: it has closed its mailbox;
 * -ECONNABORTED: so, after an error that is still to come); then waited_ns counts from when that was noticed. */
typedef int (*ash_mailbox_timeout_fn)(void *ctx, size_t rank, uint64_t waited_ns, int gone);

struct ash_mailbox_wait {
    ash_mailbox_timeout_fn on_timeout;
    void *ctx;
};

/* A buffer of slot_bytes to write a message into, head first. It is this process's until it has been sent to the last
 * receiver. Returns 0 or what on_timeout returned. */
int ash_mailbox_buffer(struct ash_mailbox *mailbox, const struct ash_mailbox_wait *wait, size_t *buffer_out,
                       uint8_t **data_out);
/* Send the first size_bytes of a buffer to a rank, when its queue has a credit. May be repeated for other ranks.
 * Returns 0 or what on_timeout returned. */
int ash_mailbox_send(struct ash_mailbox *mailbox, size_t buffer, size_t rank, size_t size_bytes,
                     const struct ash_mailbox_wait *wait);
/* The oldest message of a rank that has not been released, or the one `ahead` messages after it; as long as a slot.
 * Returns 0 or what on_timeout returned. */
int ash_mailbox_receive(struct ash_mailbox *mailbox, size_t rank, size_t ahead, const struct ash_mailbox_wait *wait,
                        const uint8_t **data_out);
/* The same without waiting: NULL if there is none. */
const uint8_t *ash_mailbox_peek(const struct ash_mailbox *mailbox, size_t rank);
/* Release the oldest message of a rank: its slot goes back as a credit. Returns 0 or what on_timeout returned. */
int ash_mailbox_release(struct ash_mailbox *mailbox, size_t rank, const struct ash_mailbox_wait *wait);
/* Messages that have arrived from a rank so far; the rank with the fewest delays the others. */
uint64_t ash_mailbox_arrived(const struct ash_mailbox *mailbox, size_t rank);

/* For the progress engine, which holds its lock: an event of its endpoint. */
void ash_mailbox_event(struct ash_progress *progress, const struct ash_fabric_event *event);

#endif
