/* run - a whole training run in a folder: start or resume, step, validate, save, log, report, and a clean end in all
 * cases.
 *
 *     DIR/job.yaml                    the effective job
 *     DIR/log.jsonl                   one object per step
 *     DIR/checkpoints/step-NNNNNN/    states to resume from
 *     DIR/report.html                 curves
 *     DIR/run.json                    status for other programs (train/run/control.h)
 *     DIR/model/                      the finished model, a Hugging Face folder */
#ifndef ASH_TRAIN_RUN_H
#define ASH_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "ashlar/err.h"
#include "collective/group.h"
#include "train/job/job.h"
#include "train/trainer.h"

struct ash_run_opts {
    const char *dir;     /* made when missing; one run at a time may write to it */
    bool resume;         /* continue from the newest checkpoint (from the beginning if there is none) */
    bool allow_change;   /* resume although the job changed in something that changes bits */
    FILE *screen;        /* for people; NULL: silent */
    bool terminal;       /* screen is a terminal: one live line */
    bool (*stop)(void);  /* called after each step; true: end early, saved; NULL: never */
    const char *profile; /* file for a trace of the ops of all steps, on the first rank; NULL: none */
    const char *pages;   /* folder for the ring of this rank's steps (record/step_ring.h); NULL or "": none */
    const char *labels;  /* of the ring: job, rank, run */
    double peak_flops;   /* of one rank's device, per second; 0: the catalog's, if it lists the device */
    const struct ash_trainer_parts *parts; /* what takes the place of data.train (train/trainer.h); NULL: nothing */
    /* the ranks that run the job together, of which the first writes the folder; when ranks are lost or join it is
     * replaced by the new group (NULL: none), which the caller closes. NULL: alone */
    struct ash_group **group;
    /* This process is no rank yet: once it is ready to work it calls this, which waits until the job admits it and sets
     * *group_out. Returns 0, -ESTALE (the job is over, or needs no rank) or a negative errno. NULL: *group is there. */
    int (*join)(void *ctx, struct ash_group **group_out, struct ash_err *err);
    void *join_ctx;
    size_t here; /* with join: processes of the job on this machine */
};

struct ash_run_result {
    uint64_t step, state_hash, skipped;
    bool stopped;     /* by opts->stop or by a request (train/run/control.h) before the last step */
    bool is_uncopied; /* the last checkpoint is in its folder, and not in all buckets of save.to */
    bool has_left;    /* only this rank has stopped: the others continue */
};

/* The error of a start, as a supervisor needs it: -EBADE where the same settings fail again another time (a path that
 * is not there, a setting that does not fit), else rc. */
int ash_run_judge_start(int rc);
/* Run a resolved job (borrowed) to its end. All ranks of *opts->group call it. Returns 0 when it got there or was
 * stopped and saved, and then sets *result_out. When ranks are lost the others continue (recover.*);
 * ranks that get a stop request leave at a step boundary, and joining ranks are admitted there. A
 * refused start (-EBADE: settings that no other start will accept, ranks with different jobs), a guard that gave up,
 * damaged data, too few ranks or a failed last save is an error; the state is saved before it if possible. */
int ash_run_job(const struct ash_job *job, const struct ash_run_opts *opts, struct ash_run_result *result_out,
                struct ash_err *err);

#endif
