/* run_health - findings from a run's folder: log.jsonl (the time of each step) and ledger.json (the wall time). Parts
 * of a step are compared with the run's own beginning. */
#ifndef ASH_OBSERVE_HEALTH_RUN_HEALTH_H
#define ASH_OBSERVE_HEALTH_RUN_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "observe/health/diagnose.h"
#include "observe/health/rank_health.h"

/* Where a step's time continued the first rank, in seconds. */
struct ash_run_step {
    uint64_t step;
    double compute_s, comm_s, data_s, idle_s;
    double shared_s; /* of comm_s: common to all ranks; the log has the first rank only */
};

/* Zero-initialise. One owner thread. */
struct ash_run_record {
    char name[128];
    struct ash_run_step *steps; /* the last ones, ascending */
    size_t count, capacity;
    uint64_t skipped;  /* of all steps */
    uint64_t lossless; /* last steps whose loss is no number */
    bool has_ledger;
    double wall_s, save_s, lost_s; /* of the ledger; lost: detecting, reforming, moving state, doing again */
    uint64_t recoveries;
    double end_s;        /* when the log was last written, since 1970 */
    struct ash_str rest; /* a line without an end */
};

/* Read a run's folder. Without a log the folder is no run: -ENOENT. A ledger may be missing. */
int ash_run_record_read(struct ash_run_record *record, const char *dir, struct ash_err *err);
/* Take text of a log. Lines that are no steps are passed over. Returns 0 or -ENOMEM. */
int ash_run_record_take(struct ash_run_record *record, const char *text, size_t size_bytes);
/* Compute from the run's ranks the wait common to all of them in each step: a straggler waits least, and then the
 * network is not to blame. */
void ash_run_record_share(struct ash_run_record *record, const struct ash_rank_list *ranks);
/* Report what is abnormal. Call it after the ranks of the run were judged: a straggler explains that others wait.
 * Returns 0 or -ENOMEM. */
int ash_run_record_judge(const struct ash_run_record *record, struct ash_diagnose *diagnose);
/* Free it. A zeroed record is fine. */
void ash_run_record_fini(struct ash_run_record *record);

#endif
