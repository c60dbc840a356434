/* device_rounds - the rounds of calls over windows in a device's memory. In a round every rank fills a slot of its
 * window, says that it is ready, waits until all others are, reads their slots, and says that it is done. Slots take
 * turns, so a rank fills the next one while others still read the one before. All of it is enqueued; the host waits at
 * the end of the call. Private to collective/host. */
#ifndef ASH_COLLECTIVE_HOST_DEVICE_ROUNDS_H
#define ASH_COLLECTIVE_HOST_DEVICE_ROUNDS_H

#include "collective/host/device_calls.h"
#include "collective/host/window.h"

#define ASH_DEVICE_SLOTS 2
#define ASH_DEVICE_ALIGN ((size_t)256) /* of what lies in a slot */

struct ash_device_calls {
    struct ash_local *local;
    const struct ash_device_queue_ops *ops;
    struct ash_device_queue *queue;
    struct ash_window *window; /* NULL before the first call */
    size_t slot_bytes, slot_bytes_most;
    uint64_t round; /* rounds in this window so far */
};

/* Before a call's first round, which would like wanted_bytes of each slot, for some pieces of equal size: have a
 * window, and let the queue wait for the work that is on the device's own. Returns 0, -ENOTSUP on all ranks, or the
 * communicator's error. */
int ash_device_rounds_begin(struct ash_device_calls *calls, size_t wanted_bytes, size_t pieces, struct ash_err *err);
/* Wait for the queue. Returns 0, -EIO (the own device has failed), or the communicator's error. */
int ash_device_rounds_end(struct ash_device_calls *calls, struct ash_err *err);

/* A round is these three calls, and the work that is enqueued between them. A second round may begin before the first
 * is over. After the first call the own slot may be filled. Returns the round. */
uint64_t ash_device_round_fill(struct ash_device_calls *calls);
/* After the second call the slots of all ranks may be read. */
void ash_device_round_meet(struct ash_device_calls *calls, uint64_t round);
/* After the third call others may fill them. */
void ash_device_round_done(struct ash_device_calls *calls, uint64_t round);
/* A rank's slot of a round. */
char *ash_device_slot(const struct ash_device_calls *calls, uint64_t round, size_t rank);

#endif
