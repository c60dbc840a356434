/* dock - where the messages of one group come in and go out. For every other rank there is a lane in each direction: a
 * queue of slots in the receiver's registered memory, which the sender writes (ash_fabric_write) and then tells
 * (notify). The receiver reads a message where it lies and gives the slot back. Messages of a lane keep their order.
 * One thread sends and one (the same or another) receives; the events come from whoever polls the harbor. */
#ifndef ASH_COLLECTIVE_DOCK_H
#define ASH_COLLECTIVE_DOCK_H

#include "collective/net/harbor.h"

#define ASH_DOCK_SLOTS 4 /* of a lane of a group's calls */
#define ASH_DOCK_SLOT_BYTES ((size_t)65536)
#define ASH_DOCK_HEAD_BYTES ((size_t)64) /* in front of a message, for the user: which call it belongs to */
#define ASH_DOCK_BODY_BYTES (ASH_DOCK_SLOT_BYTES - ASH_DOCK_HEAD_BYTES)

/* What the other ranks need to send to a dock. Plain data: may be sent. */
struct ash_dock_card {
    uint32_t handle, reserved;
    struct ash_fabric_key key;
};

struct ash_dock;

struct ash_dock_opts {
    struct ash_harbor *harbor;
    size_t rank, size;        /* this process among those that send to each other */
    const uint32_t *members;  /* [size] their numbers in the harbor */
    size_t slot_bytes, slots; /* of a lane; slot_bytes is a multiple of 64 */
    size_t give_back;         /* so many free slots are told at once: what a sender can use is give_back - 1 fewer */
};

int ash_dock_open(const struct ash_dock_opts *opts, struct ash_dock **dock_out, struct ash_err *err);
void ash_dock_card(const struct ash_dock *dock, struct ash_dock_card *card_out);
/* All ranks have opened theirs: cards[r] is rank r's. */
int ash_dock_connect(struct ash_dock *dock, const struct ash_dock_card *cards, struct ash_err *err);
/* Peers hear that nothing more will come. NULL is a no-op. */
void ash_dock_close(struct ash_dock *dock);

/* Waits of a dock ask this from time to time: 0 to go on, or the negative errno to return. rank is who is waited for;
 * gone: 0, or why nothing will come from it (negative errno; -EPIPE: it has closed its dock); then waited_ns counts
 * from when that was noticed. */
typedef int (*ash_dock_ask_fn)(void *ctx, size_t rank, uint64_t waited_ns, int gone);

struct ash_dock_wait {
    ash_dock_ask_fn ask;
    void *ctx;
};

/* A buffer of slot_bytes to write a message into, head first. It is this process's until it has been sent to the last
 * receiver. */
int ash_dock_buffer(struct ash_dock *dock, const struct ash_dock_wait *wait, size_t *buffer_out, uint8_t **data_out);
/* Send the first size_bytes of a buffer to a rank, when its lane has room. May be repeated for other ranks. */
int ash_dock_send(struct ash_dock *dock, size_t buffer, size_t rank, size_t size_bytes,
                  const struct ash_dock_wait *wait);
/* The oldest message of a rank that has not been given back, or one so many messages after it; as long as a slot. */
int ash_dock_receive(struct ash_dock *dock, size_t rank, size_t ahead, const struct ash_dock_wait *wait,
                     const uint8_t **data_out);
/* The same without waiting: NULL where there is none. */
const uint8_t *ash_dock_peek(const struct ash_dock *dock, size_t rank);
/* Give its slot back. */
int ash_dock_release(struct ash_dock *dock, size_t rank, const struct ash_dock_wait *wait);
/* Messages that have come from a rank so far: who is furthest behind is to blame. */
uint64_t ash_dock_arrived(const struct ash_dock *dock, size_t rank);

/* For the harbor: an event of its endpoint. */
void ash_dock_event(struct ash_harbor *harbor, const struct ash_fabric_event *event);

#endif
