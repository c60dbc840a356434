/* Ops are measured between two steps of the run; rings are on anyway and are copied before they wrap. */
#include "train/run/run_trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/file.h"
#include "base/number.h"
#include "compute/profile/profile.h"
#include "record/flight.h"
#include "record/ring_file.h"

void ash_run_trace_begin(struct ash_run *run)
{
    uint64_t first, last, next = run->progress.last.step + 1;
    struct ash_err err = {0};

    if (run->job->train.trace == NULL || run->progress.trace != NULL || run->opts->profile != NULL) return;
    if (ash_number_range(run->job->train.trace, &first, &last) < 0 || next < first || next > last) return;
    if (ash_profile_start(ash_trainer_exec(run->trainer), &run->progress.trace, &err) < 0)
        ash_run_warn(run, "%s; ops are not traced", err.text);
    run->progress.trace_last = last;
}

/* DIR/trace/rank-N.KIND in buf. */
static const char *name_file(const struct ash_run *run, const char *kind, char *buf, size_t buf_bytes)
{
    size_t rank = ash_group_rank(run->group);

    snprintf(buf, buf_bytes, "%s/trace/rank-%zu.%s", run->opts->dir, rank, kind);
    return buf;
}

void ash_run_trace_close(struct ash_run *run)
{
    char path[PATH_MAX];
    struct ash_err err = {0};
    int rc;

    if (run->progress.trace == NULL) return;
    snprintf(path, sizeof(path), "%s/trace", run->opts->dir);
    rc = ash_dir_make(path, &err);
    if (rc < 0) ash_run_warn(run, "%s; the trace is lost", err.text);
    if (ash_profile_finish(run->progress.trace, rc < 0 ? "/dev/null" : name_file(run, "ops.json", path, sizeof(path)),
                           NULL, &err) < 0)
        ash_run_warn(run, "%s", err.text);
    run->progress.trace = NULL;
    if (rc < 0) return;
    if (run->progress.rank_steps == NULL)
        rc = ash_err_set(&err, -ENOENT, "ranks publish nothing (--pages): the trace has ops alone");
    else
        rc = ash_ring_copy(run->progress.rank_steps, name_file(run, "steps", path, sizeof(path)), &err);
    if (rc == 0) rc = ash_flight_copy(name_file(run, "flight", path, sizeof(path)), &err);
    if (rc < 0) ash_run_warn(run, "%s", err.text);
}

void ash_run_trace_end(struct ash_run *run)
{
    if (run->progress.trace != NULL && run->progress.last.step >= run->progress.trace_last) ash_run_trace_close(run);
}
