/* saver_priv - between the calls of a saver (saver.c, saver_agree.c) and its thread (saver_write.c). */
#ifndef ASH_TRAIN_SAVER_PRIV_H
#define ASH_TRAIN_SAVER_PRIV_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include "storage/commit/commit.h"
#include "storage/io/piece_writer.h"
#include "train/layout/holdings.h"
#include "train/save/save_plan.h"
#include "train/save/saver.h"

/* Writers of a save. */
enum ash_save_mode {
    ASH_SAVE_SHARED,   /* all ranks, each its ranges */
    ASH_SAVE_ALONE,    /* the first rank, which holds everything */
    ASH_SAVE_GATHERED, /* the first rank, what others send it */
};

/* Where a chunk's values were when a save began: updates of node replicas go elsewhere. */
struct ash_save_source {
    const float *kinds[ASH_HOLDING_KINDS];
};

#define ASH_SAVER_UNDER_WAY_MAX 4 /* saves that are being written, or wait for it, at a time */

/* A save that is under way. */
struct ash_save {
    struct ash_save *next;     /* a later one */
    struct ash_save_opts opts; /* its pointers are to the save's copies, below */
    char dir[PATH_MAX], tokenizer_dir[PATH_MAX];
    json_t *state;
    struct ash_commit *commit; /* of an export, with the first rank */
    enum ash_save_mode mode;
    size_t file_count;               /* weights, or moments too */
    struct ash_save_source *sources; /* [chunks] */
    uint64_t began_ns;
    struct ash_pieces pieces[ASH_SAVE_FILES]; /* sums: of this rank, then of all */
    struct ash_piece_set *set;                /* the thread's: copied, and on the way to the disk */
    bool is_copied, is_written;               /* by this rank; under the saver's mutex */
    bool is_agreed;                           /* all ranks have written; the same */
    int rc;
    struct ash_err err;
};

struct ash_saver {
    struct ash_stages *stages;
    struct ash_group *group;
    size_t rank;
    bool is_shared; /* all ranks see the folder */
    bool is_whole;  /* each rank holds everything */
    struct ash_holdings *holdings;
    struct ash_save_plan plan;
    struct ash_piece_writer *writer;
    struct ash_fence fence;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_giving_up; /* the thread stops writing as soon as it can */
    pthread_mutex_t mutex;    /* over all below */
    pthread_cond_t changed;
    struct ash_save *saves; /* oldest first; the first rank's until the manifest is there or the folder is gone */
    struct ash_save_result results[2 * ASH_SAVER_UNDER_WAY_MAX]; /* not taken yet, oldest first */
    size_t result_count;
    bool is_stopping;
};

/* Copy all that this rank has to write, and send it on its way to the disk. Sets is_copied. In the thread, or in the
 * caller of begin where the host cannot read the state. */
int ash_save_copy(struct ash_saver *saver, struct ash_save *save, struct ash_err *err);
/* Wait until it is on the disk, and write the small files. rc: what copy returned, for which err has the sentence. */
int ash_save_settle(struct ash_saver *saver, struct ash_save *save, int rc, struct ash_err *err);
/* Do other ranks agree before a save is complete? */
bool ash_save_has_company(const struct ash_saver *saver, const struct ash_save *save);
/* First rank: what all ranks send it, in the caller of begin. All ranks call it. Returns 0 or the group's error;
 * that of writing is in save->rc. */
int ash_save_gather(struct ash_saver *saver, struct ash_save *save, struct ash_err *err);
/* First rank: everything is on disk; write the manifest. Or, if save->rc is an error, remove the partial save. */
void ash_save_commit(struct ash_saver *saver, struct ash_save *save);
/* The thread. */
void *ash_saver_main(void *arg);
/* Remove what there is of a save, unless the folder belongs to others by now. */
void ash_save_discard(const struct ash_saver *saver, const struct ash_save *save);
/* Free a save; NULL is a no-op. */
void ash_save_free(struct ash_save *save);

#endif
