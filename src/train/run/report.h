/* report - a run as one self-contained page: facts, where its time went, and curves of loss, validation, learning rate,
 * gradient norm and speed. No network, no other file. Long runs are drawn from the smallest, largest and mean value of
 * each of a bounded number of buckets. */
#ifndef ASH_TRAIN_REPORT_H
#define ASH_TRAIN_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "train/run/ledger.h"
#include "train/run/runlog.h"

struct ash_report_fact {
    const char *label, *value;
};

struct ash_report {
    const char *title;  /* of the run */
    const char *status; /* "running", "finished", "stopped" */
    bool running;       /* the page reloads itself */
    uint64_t total_steps;
    const struct ash_report_fact *facts;
    size_t fact_count;
    const struct ash_ledger *ledger;      /* NULL: nothing */
    const struct ash_log_record *records; /* ascending steps */
    size_t record_count;
    /* Borrowed; NULL: nothing. {"curves": [{"title", "step": [...], "mean": [...]}, ...], "answers": [{"step",
     * "rows": [[prompt, answer, wanted, reward], ...]}, ...]} */
    json_t *more;
};

/* Write the page to path, replacing an older one in one step. Any thread that owns the arguments may call. */
int ash_report_write(const char *path, const struct ash_report *report, struct ash_err *err);

#endif
