/* channel_priv - channels of a kind of their own, for the other files of this folder. */
#ifndef ASH_COLLECTIVE_CHANNEL_PRIV_H
#define ASH_COLLECTIVE_CHANNEL_PRIV_H

#include "collective/channel.h"
#include "collective/core/channel_ops.h"

/* ash_channel_open in another order of opens. */
int ash_channel_open_in(struct ash_group *group, enum ash_channel_order order, size_t from, size_t to,
                        size_t slot_bytes, size_t slots, struct ash_channel **channel_out, struct ash_err *err);

#endif
