/* control - a run seen and told things from outside, through files of its folder: DIR/run.json says what it is at, and
 * DIR/request.json what somebody wants. The first rank looks for a request at the edges of steps and takes it away. */
#ifndef ASH_TRAIN_RUN_CONTROL_H
#define ASH_TRAIN_RUN_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_RUN_RANKS_MAX 65536
#define ASH_RUN_PASSES_MAX 1000000
#define ASH_RUN_FLIPS 4 /* kinds of memory that a bit can change in */

/* What a run is at. It is written when that changes; the newest step is in the log. */
struct ash_run_status {
    char state[16];            /* "running", "finished", "stopped", "failed" */
    char mesh[128];            /* the layout */
    char host[64];             /* of the first rank */
    char run[20];              /* which run it is, as its checkpoints say; "": they do not */
    int64_t process;           /* its id there */
    int64_t steps;             /* of the whole run */
    int64_t ranks, mesh_ranks; /* ranks beyond the mesh are spares */
    int64_t wanted_ranks;      /* what the last resize asked for; 0: none has */
    int64_t resizes;           /* how many there were */
    int64_t is_uncopied;       /* at its end: the last checkpoint is not in all buckets of save.to */
    int64_t epoch;             /* how often ranks have changed */
};

/* What somebody wants of a run. All zero: nothing. */
struct ash_run_request {
    bool stop;     /* save and end */
    int64_t ranks; /* how many, spares too; 0: as they are */
    /* change a bit in a rank's memory, to see it found (ashlar chaos): 1 + ASH_RUN_FLIPS times the rank
     * + which (enum ash_trainer_flip; of what is sent, every rank changes one); 0: none */
    int64_t flip;
    int64_t slow; /* the same: this rank, counted from 1, pauses in each step; 0: none */
    /* the same: 1 + ASH_FAULT_POINTS times the rank + where (base/fault_point.h); 0: nobody does. A rank that is not
     * there yet: when it is fed */
    int64_t die;
    int64_t passes; /* times that it gets beyond that place before */
    bool doom;      /* the same: whoever is last in the mesh dies in the next step, each time that it is tried */
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
/* Has nobody taken the last one yet? */
bool ash_run_has_request(const char *dir);
/* Take it away: 1 where there was one that makes sense, else 0. */
int ash_run_request_take(const char *dir, struct ash_run_request *request_out);
/* The text of such a file. Returns 0 or -EINVAL. */
int ash_run_request_decode(const char *text, size_t size_bytes, struct ash_run_request *request_out,
                           struct ash_err *err);

/* The newest step in a run's log; 0: none. *loss_out and *speed_out (tokens a second; both may be NULL) are set where
 * there is one. */
uint64_t ash_run_newest_step(const char *dir, double *loss_out, double *speed_out);
/* Does a process train into this folder now? */
bool ash_run_is_going(const char *dir);

#endif
