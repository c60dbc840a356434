/* run_priv - the parts of a run, shared by its start (run_start.c), its loop (run.c) and what it says (run_text.c). */
#ifndef ASH_TRAIN_RUN_PRIV_H
#define ASH_TRAIN_RUN_PRIV_H

#include <limits.h>
#include "train/run/live.h"
#include "train/run/run.h"
#include "train/run/runlog.h"
#include "train/trainer.h"

struct run {
    const struct ash_job *job;
    const struct ash_run_opts *opts;
    char checkpoints[PATH_MAX], model[PATH_MAX], report[PATH_MAX], log_path[PATH_MAX];
    bool leads; /* the first rank: the only one that writes files and speaks */
    int lock_fd;
    char *job_yaml;
    struct ash_trainer *trainer;
    struct ash_trainer_facts facts;
    struct ash_runlog *log;
    struct ash_live live;
    uint64_t start_ns, start_step;   /* of this part of the run */
    double earlier_s;                /* time spent in earlier parts */
    double valid_loss;               /* the last one measured; NaN: none */
    uint64_t saved_step;             /* newest good checkpoint; UINT64_MAX: none */
    uint64_t state_hash;             /* of the last step that was hashed */
    uint64_t report_ns;              /* when the report was last written */
    double spent_s[ASH_METER_KINDS]; /* of this part of the run, by kind */
    uint64_t spent_steps;
    bool log_failing, report_failing; /* told once, not every step */
};

/* Make and lock the folder, find what to resume, build the trainer, open the log. On error run is for run_close all the
 * same. */
int ash_run_start(struct run *run, struct ash_err *err);

/* Seconds that the run took so far, over all its parts. */
double ash_run_elapsed_s(const struct run *run);
/* What will be trained; what happened; what to type next. */
void ash_run_print_start(struct run *run);
void ash_run_print_end(struct run *run, bool stopped);
/* A warning between live lines. */
void ash_run_warn(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Write DIR/report.html. status: "running", "finished", "stopped". A failure is a warning, once. */
void ash_run_report(struct run *run, const char *status);

#endif
