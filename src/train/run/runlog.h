/* runlog - one JSON object per step in log.jsonl, and the same numbers in memory for the report.
 * Each step is in the file once: opening for a resumed run drops the lines after the resumed step and a
 * line that a crash cut short. A full disk loses nothing: lines wait in memory and are written with the
 * next one. One owner thread. */
#ifndef ASH_TRAIN_RUNLOG_H
#define ASH_TRAIN_RUNLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "train/trainer.h"

struct ash_runlog;

struct ash_log_record {
    uint64_t step, tokens; /* both counted from the beginning of the run */
    double time_s;         /* spent in the run so far, over all its parts */
    float loss, grad_norm, lr, tokens_per_s;
    float compute_s, comm_s, data_s, idle_s; /* where the step's time went on the first rank */
    float valid_loss;                        /* NaN: not measured */
    struct ash_pair_figures pairs;           /* of that validation */
    bool skipped, hashed;
    uint64_t state_hash; /* where hashed */
};

/* Open path for a run that has done `step` steps: what an earlier part logged up to there is kept and read. */
int ash_runlog_open(const char *path, uint64_t step, struct ash_runlog **log_out, struct ash_err *err);
/* Tries once more to write what waits. NULL is a no-op. */
void ash_runlog_close(struct ash_runlog *log);

/* Append one step. -ENOSPC and the like: the line is kept and written later; the caller may warn and continue. */
int ash_runlog_add(struct ash_runlog *log, const struct ash_log_record *record, struct ash_err *err);
/* Write buffered lines. After an fsync of *fd_out (the log's, until close) all steps so far are on disk: required
 * before a checkpoint that contains them. Returns 0, or as ash_runlog_add. */
int ash_runlog_write(struct ash_runlog *log, int *fd_out, struct ash_err *err);

/* How many steps are logged so far. */
size_t ash_runlog_count(const struct ash_runlog *log);
/* All of them, ascending; borrowed until the next add. */
const struct ash_log_record *ash_runlog_records(const struct ash_runlog *log);

#endif
