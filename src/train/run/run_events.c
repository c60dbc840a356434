/* run: TensorBoard's events of a run, from the records of its log. */
#include <math.h>

#include "base/assert.h"
#include "base/clock.h"
#include "train/run/run_priv.h"

static int add(struct ash_event_file *events, const struct ash_log_record *record, double wall_s, struct ash_err *err)
{
    const struct ash_event_scalar scalars[] = {
        {"loss", record->loss},
        {"grad_norm", record->grad_norm},
        {"learning_rate", record->lr},
        {"tokens_per_second", record->tokens_per_s},
        {"time/compute", record->compute_s},
        {"time/communication", record->comm_s},
        {"time/data", record->data_s},
        {"time/idle", record->idle_s},
        {"valid/loss", record->valid_loss},
        {"valid/accuracy", (float)record->pairs.accuracy},
        {"valid/chosen_reward", (float)record->pairs.chosen},
        {"valid/rejected_reward", (float)record->pairs.rejected},
    };

    return ash_event_file_add(events, record->step, wall_s, scalars, ASH_COUNT(scalars), err);
}

/* The records of earlier parts of the run; a time of the run plus shift_s is one since 1970. */
static int add_earlier(struct ash_run *run, double shift_s, struct ash_err *err)
{
    const struct ash_log_record *records = ash_runlog_records(run->files.log);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ash_runlog_count(run->files.log); i++)
        rc = add(run->files.events, &records[i], shift_s + records[i].time_s, err);
    return rc;
}

/* If earlier parts of the run wrote no events, their steps are added, as if the run had begun without a pause. */
int ash_run_open_events(struct ash_run *run, struct ash_err *err)
{
    const char *dir = run->job->log.tensorboard;
    bool has_earlier = dir != NULL && ash_event_file_exists(dir);
    size_t count = ash_runlog_count(run->files.log);
    const struct ash_log_record *last = count > 0 ? &ash_runlog_records(run->files.log)[count - 1] : NULL;
    double now_s = ash_clock_wall_s(), start_s = last != NULL ? now_s - last->time_s : now_s;
    int rc;

    if (dir == NULL) return 0;
    ash_event_file_close(run->files.events);
    run->files.events = NULL;
    if (has_earlier)
        rc = ash_event_file_open(dir, last != NULL ? last->step + 1 : 0, now_s, &run->files.events, err);
    else
        rc = ash_event_file_open(dir, 0, start_s, &run->files.events, err);
    if (rc == 0 && !has_earlier) rc = add_earlier(run, start_s, err);
    return rc < 0 ? ash_err_prefix(err, rc, "log.tensorboard") : 0;
}

void ash_run_add_events(struct ash_run *run, const struct ash_log_record *record)
{
    struct ash_err err = {0};

    if (run->files.events == NULL) return;
    if (add(run->files.events, record, ash_clock_wall_s(), &err) == 0) {
        run->files.events_failing = false;
    } else if (!run->files.events_failing) {
        run->files.events_failing = true;
        ash_run_warn(run, "TensorBoard's events cannot be written now, they wait in memory: %s", err.text);
    }
}
