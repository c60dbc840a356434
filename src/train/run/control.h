/* control - status of and requests to a run through files of its folder: DIR/run.json has its status, and
 * DIR/request.json a request. The first rank reads and removes a request at step boundaries. */
#ifndef ASH_TRAIN_RUN_CONTROL_H
#define ASH_TRAIN_RUN_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_RUN_RANKS_MAX 65536
#define ASH_RUN_PASSES_MAX 1000000
#define ASH_RUN_MOST_RANKS                                                                                             \
    "ASHLAR_LAUNCH_RANKS" /* of the environment: how many processes a launcher starts, spares too */
#define ASH_RUN_FLIPS 4   /* kinds of memory that a bit can change in */

/* A run's status. It is written on changes; the newest step is in the log. */
struct ash_run_status {
    char state[16];            /* "running", "finished", "stopped", "failed" */
    char mesh[128];            /* the layout */
    char host[64];             /* of the first rank */
    char run[20];              /* the run's id from its checkpoints; "": unknown */
    int64_t process;           /* its id there */
    int64_t steps;             /* of the whole run */
    int64_t ranks, mesh_ranks; /* ranks beyond the mesh are spares */
    int64_t wanted_ranks;      /* of the last resize request; 0: none */
    int64_t resizes;           /* how many there were */
    int64_t is_uncopied;       /* at its end: the last checkpoint is not in all buckets of save.to */
    int64_t epoch;             /* how often ranks have changed */
    int64_t min_ranks;         /* fewer end the run */
    int64_t most_ranks;        /* processes that there can be; 0: not known */
};

/* A request to a run. All zero: none. */
struct ash_run_request {
    bool stop;     /* save and end */
    int64_t ranks; /* how many, spares too; 0: as they are */
    /* injected fault: change a bit in a rank's memory (ashlar chaos): 1 + ASH_RUN_FLIPS times the rank + which (enum
     * ash_trainer_flip; in a sent block, every rank changes one); 0: none */
    int64_t flip;
    int64_t slow; /* the same: this rank, counted from 1, pauses in each step; 0: none */
    /* the same: 1 + ASH_FAULT_POINTS times the rank + where (base/fault_point.h); 0: none. A joining rank: while it
     * receives the state */
    int64_t die;
    int64_t passes; /* times that it passes that point before */
    bool doom;      /* the same: the last rank of the mesh dies in the next step, each time that it is tried */
    int64_t err;    /* the same: this rank, counted from 1, computes wrongly once; negative: from now on */
};

/* Read DIR/run.json. Returns 0, -ENOENT (there is no run) or -EINVAL. */
int ash_run_status_read(const char *dir, struct ash_run_status *status_out, struct ash_err *err);
/* Write it. Returns 0 or a file's error. */
int ash_run_status_write(const char *dir, const struct ash_run_status *status, struct ash_err *err);
/* The text of such a file. Returns 0 or -EINVAL. */
int ash_run_status_decode(const char *text, size_t size_bytes, struct ash_run_status *status_out, struct ash_err *err);

/* Leave a request; one that has not been taken is replaced. Returns 0 or a file's error. */
int ash_run_request_write(const char *dir, const struct ash_run_request *request, struct ash_err *err);
/* Is a request pending? */
bool ash_run_has_request(const char *dir);
/* Remove it: 1 if there was a valid one, else 0. */
int ash_run_request_take(const char *dir, struct ash_run_request *request_out);
/* The text of such a file. Returns 0 or -EINVAL. */
int ash_run_request_decode(const char *text, size_t size_bytes, struct ash_run_request *request_out,
                           struct ash_err *err);

/* The newest step in a run's log; 0: none. *loss_out and *speed_out (tokens a second; both may be NULL) are set if
 * there is one. */
uint64_t ash_run_newest_step(const char *dir, double *loss_out, double *speed_out);
/* Does a process train into this folder now? */
bool ash_run_is_going(const char *dir);

#endif
