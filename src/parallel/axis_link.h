/* axis_link - a group of ranks as an axis of a pass (model/axis.h): collectives go to the group, messages through
 * channels that are opened when they are first used, shared memory is a window of the group. Trainer and server build
 * their axes with it. One owner thread. */
#ifndef ASH_PARALLEL_AXIS_LINK_H
#define ASH_PARALLEL_AXIS_LINK_H

#include <stddef.h>
#include "ashlar/err.h"
#include "collective/group.h"
#include "model/axis.h"
#include "record/meter.h"

struct ash_channel;

/* Caller's storage; zeroed is closed. */
struct ash_axis_link {
    struct ash_group *group;
    struct ash_meter *meter;         /* counts the time of every call as communication */
    size_t slot_bytes;               /* the largest message */
    struct ash_channel **to, **from; /* [size] */
};

/* Borrows group and meter until close. Returns 0 or -ENOMEM; what a failed open left may be closed. */
int ash_axis_link_open(struct ash_axis_link *link, struct ash_group *group, struct ash_meter *meter,
                       struct ash_err *err);
/* Close the channels; zeroed or half-open is fine. */
void ash_axis_link_close(struct ash_axis_link *link);
/* The axis, for messages of at most message_floats (0: as before). It borrows the link. */
struct ash_axis ash_axis_link_axis(struct ash_axis_link *link, size_t message_floats);

#endif
