/* copier - copies of finished checkpoints to further places, in a thread: the newest first, each piece compared with
 * its checksum. A failure is reported, and retried with the next checkpoint. */
#ifndef ASH_TRAIN_COPIER_H
#define ASH_TRAIN_COPIER_H

#include <stdbool.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "train/save/fence.h"
#include "train/save/places.h"

struct ash_copier;

/* Start the thread. Borrows places until close. The caller owns *copier_out. Returns 0, -ENOMEM or -EAGAIN. */
int ash_copier_open(const struct ash_places *places, struct ash_copier **copier_out, struct ash_err *err);
/* Replace the fence; copied. Any thread. */
void ash_copier_set_fence(struct ash_copier *copier, const struct ash_fence *fence);
/* Stop after the file that is being copied, and free. NULL is a no-op. */
void ash_copier_close(struct ash_copier *copier);
/* Checkpoint `step` is complete in place `from`: copy it to all others, and prune them. Any thread. */
void ash_copier_add(struct ash_copier *copier, size_t from, uint64_t step);
/* The step that is being copied, or will be: it must not be removed. UINT64_MAX: none. Any thread. */
uint64_t ash_copier_pinned(struct ash_copier *copier);
/* The place that a copy is on its way to, or NULL. Borrowed from places. Any thread. */
const char *ash_copier_target(struct ash_copier *copier);
/* Has the last copy to a place failed? Any thread. */
bool ash_copier_has_failed(struct ash_copier *copier, size_t place);
/* Wait until all is copied, or has failed. waiting (may be NULL) is called about every second and returns false to give
 * up. Returns 0, or the last error with its sentence. */
int ash_copier_finish(struct ash_copier *copier, bool (*waiting)(void *ctx), void *ctx, struct ash_err *err);

#endif
