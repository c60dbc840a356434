/* restore - the newest checkpoint that verifies, out of all places, for all ranks of a job. Ranks share the reading:
 * each holds its part of the pieces to their sums. A piece that is damaged, or missing, in the folder that ranks load
 * from is written there again from the nearest other place that has it right; where none has, the checkpoint before is
 * tried. */
#ifndef ASH_TRAIN_RESTORE_H
#define ASH_TRAIN_RESTORE_H

#include <limits.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "collective/group.h"
#include "storage/s3/s3.h"

struct ash_restore_opts {
    const char *root;          /* the folder that ranks load from; missing checkpoints are fetched to it */
    const char *const *others; /* [other_count] further places, nearest first */
    size_t other_count;
    const struct ash_s3_opts *s3; /* for places that are buckets */
    struct ash_group *group;      /* all ranks call it; NULL: alone */
};

/* What was found. Zero-initialise, free with ash_restored_fini. */
struct ash_restored {
    char dir[PATH_MAX]; /* the checkpoint's folder */
    uint64_t step;
    json_t *manifest;
    char *skipped; /* a sentence a line for each newer one that was passed over; NULL: none */
};
/* Free what it holds. */
void ash_restored_fini(struct ash_restored *restored);

/* Find and mend. Returns 0, -ENODATA where there is no checkpoint at all, -ENOENT where none verifies (err says what is
 * wrong with the newest), -EBADE where a rank does not see the first one's folder and nothing else is named, or the
 * group's error; the same on all ranks. */
int ash_restore(const struct ash_restore_opts *opts, struct ash_restored *restored_out, struct ash_err *err);

#endif
