/* restore - the newest checkpoint that verifies, out of all places, for all ranks of a job, read in one pass: each rank
 * reads the pieces of the files that contain parts of its shard and verifies their checksums as they come. A piece that
 * is corrupted, or missing, in the folder that ranks load from is taken from the nearest other place that has it right,
 * and written to the folder again; if none has, the checkpoint before is tried. One owner thread; all ranks make the
 * same calls. */
#ifndef ASH_TRAIN_RESTORE_H
#define ASH_TRAIN_RESTORE_H

#include <limits.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "collective/group.h"
#include "storage/s3/s3.h"
#include "train/layout/stages.h"

struct ash_restore_opts {
    const char *root;          /* the folder that ranks load from; missing checkpoints are fetched to it */
    const char *const *others; /* [other_count] further places, nearest first */
    size_t other_count;
    const struct ash_s3_opts *s3; /* for places that are buckets */
    uint64_t run;                 /* checkpoints of other runs do not count; 0: all do */
    struct ash_group *group;      /* all ranks call it; NULL: alone */
};

/* The checkpoint found. Zero-initialise, free with ash_restored_fini. */
struct ash_restored {
    char dir[PATH_MAX]; /* the checkpoint's folder, until ash_restore_read ends where: */
    bool is_elsewhere;  /* this rank has it only in other places: the folder has small files and headers alone */
    uint64_t step;
    json_t *manifest;
};
/* Free the members. */
void ash_restored_fini(struct ash_restored *restored);

struct ash_restore;

/* Look for checkpoints. Borrows opts and its pointers until close. The caller owns *restore_out. Returns 0 or an
 * error. */
int ash_restore_open(const struct ash_restore_opts *opts, struct ash_restore **restore_out, struct ash_err *err);
/* The newest checkpoint, and in further calls the one before: its small files are right and its large ones are there.
 * One that is only in another place is fetched; on several nodes, that is left to ash_restore_read. Returns 0, -ENODATA
 * if there is no checkpoint at all, -ENOENT if none verifies (err has the newest one's error), -EBADE if a rank does
 * not see the first one's folder and nothing else is named, or the group's error; the same on all ranks. The caller
 * frees restored_out with ash_restored_fini. */
int ash_restore_next(struct ash_restore *restore, struct ash_restored *restored_out, struct ash_err *err);
/* Read its weights and moments into stages, which were opened blank; ash_checkpoint_load follows. Pieces that are only
 * in other places are read from there: this rank's own, no more. stages NULL: this rank is a spare. Returns 0, -EBADMSG
 * if a piece is wrong in all places (then the one before is next; err names the piece), or another error; the same on
 * all ranks. */
int ash_restore_read(struct ash_restore *restore, const struct ash_restored *restored, const struct ash_stages *stages,
                     const struct ash_model *outline, struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_restore_close(struct ash_restore *restore);
/* Checkpoints skipped so far, a sentence a line; NULL: none. The caller frees it. */
char *ash_restore_take_skipped(struct ash_restore *restore);

#endif
