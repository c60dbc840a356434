/* helper - a rank other than the first sends its share of the checkpoints that the first one copies to buckets, in a
 * thread (place_help.c). It is never waited for: the first rank sends the pieces that are missing. */
#ifndef ASH_TRAIN_HELPER_H
#define ASH_TRAIN_HELPER_H

#include "train/save/places.h"

#define ASH_HELPERS_MAX 8 /* ranks that share an upload, with the first one */

struct ash_helper;

/* Start the thread of rank `index` of `count` that share. Borrows places until close. The caller owns *helper_out.
 * Returns 0, -ENOMEM or -EAGAIN. */
int ash_helper_open(const struct ash_places *places, size_t index, size_t count, struct ash_helper **helper_out,
                    struct ash_err *err);
/* Checkpoint `step` is being saved in place `from`, and will be copied. An older one is left to the first rank. */
void ash_helper_add(struct ash_helper *helper, size_t from, uint64_t step);
/* Stop within a piece, and free. NULL is a no-op. */
void ash_helper_close(struct ash_helper *helper);

#endif
