/* fence - keeps a process that was left behind from the checkpoints of the remaining ranks. The first rank of a run
 * writes a new fencing token into the file that locks its folder; a new first rank makes a new file with another token.
 * Before a process makes, completes or removes a checkpoint it compares the token with the one that it started with.
 * This needs no lock of the file system, so it works in shared folders. */
#ifndef ASH_TRAIN_FENCE_H
#define ASH_TRAIN_FENCE_H

#include <limits.h>
#include <stdint.h>
#include "ashlar/err.h"

/* Plain data: the first rank sends it to the others. A zeroed one lets everything pass. */
struct ash_fence {
    char path[PATH_MAX];
    uint64_t word; /* 0: none */
};

/* First rank: a fresh word into the file at path, which this process has locked and opened as fd. Returns 0 or a
 * negative errno. */
int ash_fence_set(const char *path, int fd, struct ash_fence *fence_out, struct ash_err *err);
/* Is the token unchanged? A file or folder that is not visible from here counts as unchanged. Any thread. Returns 0, or
 * -ESTALE with a sentence. */
int ash_fence_check(const struct ash_fence *fence, struct ash_err *err);

#endif
