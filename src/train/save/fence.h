/* fence - keeps a process that was left behind from the checkpoints of those who continue. Whoever leads a run writes a
 * fresh word into the file that locks its folder; whoever takes over makes a new file with another word. A process
 * looks before it makes, completes or removes a checkpoint whether the word is still the one that it started with. No
 * lock of the file system is needed for that, so shared folders do. */
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
/* Is it still there? A file or folder that cannot be seen from here says nothing. Any thread. Returns 0, or -ESTALE
 * with a sentence. */
int ash_fence_check(const struct ash_fence *fence, struct ash_err *err);

#endif
