/* run: the loop. A step is logged before it is saved. Whatever ends the run, the last good state is on disk first. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/interrupt.h"
#include "base/metrics.h"
#include "compute/profile/profile.h"
#include "train/run/rank_steps.h"
#include "train/run/run_trace.h"

#define PAUSE_NS 400000000    /* in a step of a rank that was asked to be slow */
#define REPORT_NS 5000000000u /* between two reports */

static const double step_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};

ASH_GAUGE(step_metric, "ashlar_train_step", "Steps done since the beginning of the run.");
ASH_GAUGE(loss_metric, "ashlar_train_loss", "Mean training loss of the last step.");
ASH_GAUGE(valid_metric, "ashlar_train_valid_loss", "Mean loss of the last validation.");
ASH_GAUGE(norm_metric, "ashlar_train_gradient_norm", "Gradient norm of the last step before clipping.");
ASH_GAUGE(lr_metric, "ashlar_train_learning_rate", "Learning rate of the last step.");
ASH_GAUGE(speed_metric, "ashlar_train_tokens_per_second", "Tokens per second of the last step.");
ASH_COUNTER(tokens_metric, "ashlar_train_tokens_total", "Tokens trained on by this process.");
ASH_COUNTER(skipped_metric, "ashlar_train_skipped_steps_total", "Steps that the guard left out.");
ASH_HISTOGRAM(time_metric, "ashlar_train_step_seconds", "Time of one step.", step_bounds);

/* What is due after a step. */
struct due {
    bool last, stop, valid, save, hash, check;
};

static bool every(int64_t interval, uint64_t step)
{
    return interval > 0 && step % (uint64_t)interval == 0;
}

static struct due what_is_due(const struct ash_run *run, const struct ash_step *step, int limit, bool stop)
{
    const struct ash_job_train *train = &run->job->train;
    struct due due = {.last = step->step >= (uint64_t)train->steps};

    due.stop = limit < 0 || (!due.last && stop);
    due.valid = run->facts.valid_sequences > 0 && (due.last || every(train->valid_every, step->step));
    due.save = due.last || due.stop || every(train->save_every, step->step);
    due.check = due.save || every(run->job->recover.check_every, step->step);
    due.hash = due.save || every(train->hash_every, step->step);
    due.save |= ash_run_save_is_overdue(run); /* when that is depends on the disk: it does not show in the log */
    return due;
}

/* ---- after a step ------------------------------------------------------------------------------------------------ */

static void count_metrics(struct ash_run *run, const struct ash_step *step, double step_s)
{
    ash_metric_set(&step_metric, (double)step->step);
    ash_metric_set(&loss_metric, step->loss);
    ash_metric_set(&norm_metric, step->norm);
    ash_metric_set(&lr_metric, step->lr);
    ash_metric_set(&speed_metric, (double)step->tokens / step_s);
    if (!isnan(run->valid_loss)) ash_metric_set(&valid_metric, run->valid_loss);
    ash_metric_add(&tokens_metric, (double)step->tokens);
    ash_run_count_flops(run, step);
    ash_metric_add(&skipped_metric, step->verdict != ASH_GUARD_OK);
    ash_metric_observe(&time_metric, step_s);
}

static void write_log(struct ash_run *run, const struct ash_step *step, const struct due *due, double step_s)
{
    struct ash_log_record record = {.step = step->step,
                                    .tokens = step->step * step->tokens,
                                    .time_s = ash_run_elapsed_s(run),
                                    .loss = (float)step->loss,
                                    .grad_norm = (float)step->norm,
                                    .lr = (float)step->lr,
                                    .compute_s = (float)step->meter.ns[ASH_METER_COMPUTE] * 1e-9f,
                                    .comm_s = (float)step->meter.ns[ASH_METER_COMM] * 1e-9f,
                                    .data_s = (float)step->meter.ns[ASH_METER_DATA] * 1e-9f,
                                    .idle_s = (float)step->meter.ns[ASH_METER_IDLE] * 1e-9f,
                                    .tokens_per_s = (float)((double)step->tokens / step_s),
                                    .valid_loss = due->valid ? (float)run->valid_loss : NAN,
                                    .pairs = due->valid ? run->pairs : ASH_NO_PAIRS,
                                    .skipped = step->verdict != ASH_GUARD_OK,
                                    .hashed = due->hash,
                                    .state_hash = run->state_hash};
    struct ash_err err = {0};

    if (ash_runlog_add(run->log, &record, &err) == 0) {
        run->log_failing = false;
    } else if (!run->log_failing) {
        run->log_failing = true;
        ash_run_warn(run, "the log cannot be written now, its lines wait in memory: %s", err.text);
    }
}

static void show(struct ash_run *run, const struct ash_step *step, const struct due *due, double step_s)
{
    uint64_t total = (uint64_t)run->job->train.steps, done = step->step - run->start_step;
    double part_s = ash_run_elapsed_s(run) - run->earlier_s;
    struct ash_live_view view = {.step = step->step,
                                 .total = total,
                                 .loss = step->loss,
                                 .lr = step->lr,
                                 .norm = step->norm,
                                 .tokens = step->tokens,
                                 .step_s = step_s,
                                 .valid_loss = run->valid_loss,
                                 .valid_accuracy = run->pairs.accuracy,
                                 .measured = due->valid,
                                 .left_s = part_s / (double)done * (double)(total - step->step)};

    ash_live_step(&run->live, &view);
}

/* Has the first rank, which is lost now, logged the step before others could follow it up? */
static bool is_logged(const struct ash_run *run, uint64_t step)
{
    size_t count = ash_runlog_count(run->log);

    return count > 0 && ash_runlog_records(run->log)[count - 1].step >= step;
}

/* The first rank's log, metrics and screen of a step. */
static void report_step(struct ash_run *run, const struct ash_step *step, const struct due *due, double step_s)
{
    if (!is_logged(run, step->step)) write_log(run, step, due, step_s);
    count_metrics(run, step, step_s);
    ash_run_warn_damaged(run, step->repeated, step->damaged_from, step->damaged_to);
    if (step->verdict != ASH_GUARD_OK) ash_run_warn(run, "step %" PRIu64 " skipped: %s", step->step, step->reason);
    show(run, step, due, step_s);
}

static void count_time(struct ash_run *run, const struct ash_step *step)
{
    for (int kind = 0; kind < ASH_METER_KINDS; kind++)
        run->spent_s[kind] += (double)step->meter.ns[kind] * 1e-9;
    run->spent_steps++;
}

/* Validation and hash, where they are due. */
static int measure(struct ash_run *run, const struct due *due, struct ash_err *err)
{
    int rc = 0;

    if (due->valid) rc = ash_trainer_validate(run->trainer, &run->valid_loss, &run->pairs, err);
    if (rc == 0 && due->check) rc = ash_trainer_check_copies(run->trainer, err);
    if (rc == -EILSEQ) rc = ash_run_tell_damage(run, err);
    if (rc == 0 && (due->hash || due->save)) rc = ash_run_hash(run, err);
    return rc;
}

void ash_run_write_ledger(struct ash_run *run)
{
    struct ash_err err = {0};

    ash_ledger_charge(&run->ledger, ASH_LEDGER_IDLE, ash_clock_ns());
    if (ash_ledger_write(&run->ledger, run->ledger_path, &err) < 0 && !run->report_failing)
        ash_run_warn(run, "the ledger was not written, training continues: %s", err.text);
}

/* In the middle of the run: a checkpoint and a report, where they are due. */
static int keep_records(struct ash_run *run, const struct due *due, struct ash_err *err)
{
    int rc;

    ash_ledger_charge(&run->ledger, ASH_LEDGER_IDLE, ash_clock_ns());
    rc = due->save ? ash_run_begin_save(run, err) : 0;
    if (due->save) ash_fault_point_meet(ASH_FAULT_SAVE);
    ash_ledger_charge(&run->ledger, ASH_LEDGER_SAVE, ash_clock_ns());
    if (rc == 0 && run->is_leader && (due->save || due->valid) && ash_clock_ns() - run->report_ns >= REPORT_NS) {
        ash_run_write_ledger(run);
        ash_run_report(run, "running");
    }
    return rc;
}

/* Ranks come and go at the edge that the run is at. Returns as follow_up. */
static int change_ranks(struct ash_run *run, const struct ash_run_edge *edge, struct ash_err *err)
{
    enum ash_spare_word word = edge->changes ? ASH_SPARE_CHANGE : edge->grows ? ASH_SPARE_GROW : ASH_SPARE_STEP;
    int rc = ash_run_tell_spares(run, word, err);

    if (rc < 0 || word == ASH_SPARE_STEP) return rc;
    run->grows = edge->grows;
    rc = ash_run_change(run, err);
    return rc < 0 ? rc : run->has_left;
}

/* Everything that follows from the last step. Returns 1 when the run is over for this rank, 0 when more steps
 * follow. */
static int follow_up(struct ash_run *run, struct due *due_out, struct ash_err *err)
{
    struct ash_guard_opts guard = ash_job_get_guard(run->job);
    const struct ash_step *step = &run->last;
    struct ash_run_edge edge;
    int limit, rc;

    limit = ash_guard_limit(&guard, &ash_trainer_state(run->trainer)->guard, step->verdict, err);
    rc = ash_run_meet_edge(run, &edge, err);
    if (rc == 0 && !edge.changes && !edge.grows) rc = ash_trainer_spread(run->trainer, err);
    if (rc == 0) rc = ash_run_watch_saves(run, err);
    if (rc < 0) return rc;
    struct due due = what_is_due(run, step, limit, edge.stop);
    rc = measure(run, &due, err);
    ash_ledger_charge(&run->ledger, ASH_LEDGER_PRODUCTIVE, ash_clock_ns());
    if (rc < 0) return rc;
    if (run->is_leader) report_step(run, step, &due, run->last_s);
    run->is_last_open = false;
    if (limit < 0) return limit;
    *due_out = due;
    if (due.last || due.stop) return 1;
    rc = keep_records(run, &due, err);
    if (rc == 0) rc = change_ranks(run, &edge, err);
    return rc != 0 ? rc : ash_run_flip_bit(run, err);
}

/* One step. */
static int step_once(struct ash_run *run, struct ash_err *err)
{
    uint64_t start_ns, before = run->last.step;
    int rc;

    ash_run_trace_begin(run); /* takes a moment, which is none of the step's */
    start_ns = ash_clock_ns();
    ash_ledger_charge(&run->ledger, ASH_LEDGER_IDLE, start_ns);
    ash_run_meet_doom(run);
    if (run->pauses) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    rc = ash_trainer_is_growing(run->trainer) ? ash_run_tell_spares(run, ASH_SPARE_FEED, err) : 0;
    if (rc == 0) rc = ash_trainer_step(run->trainer, &run->last, err);
    if (rc < 0) ash_ledger_charge_failed(&run->ledger, ash_clock_ns());
    if (rc == -EILSEQ) rc = ash_run_tell_damage(run, err);
    if (rc < 0 && run->last.step == before) return rc; /* not made, or not by all */
    ash_ledger_charge(&run->ledger, ASH_LEDGER_PRODUCTIVE, ash_clock_ns());
    run->ledger.steps++;
    count_time(run, &run->last);
    ash_rank_steps_add(run, &run->last, start_ns);
    ash_run_trace_end(run);
    run->own_s = ash_rank_steps_own(run, start_ns);
    run->last_s = fmax((double)(ash_clock_ns() - start_ns), 1.0) * 1e-9;
    run->waits_long = ash_wait_watch_add(&run->waits, (double)run->last.meter.ns[ASH_METER_COMM] * 1e-9);
    run->is_last_open = true;
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* After an error inside the loop: keep what there is, and say what that is. */
static void give_up(struct ash_run *run, const struct ash_err *cause)
{
    struct ash_err save_err = {0};
    bool is_told = ash_run_is_told(run);

    if (is_told && ash_trainer_is_spare(run->trainer)) return; /* nobody misses it */
    if (is_told) ash_run_mark_stopped(run);
    if (run->group != NULL) ash_group_abort(run->group, cause->text);
    ash_run_write_status(run, "failed");
    if (!run->is_leader || ash_trainer_stages(run->trainer)->chunks == NULL) return;
    if (ash_backend_outcome(run->facts.exec, 0, NULL) < 0) { /* the state has gone with the GPU */
        ash_live_clear(&run->live);
        return;
    }
    if (ash_run_save_alone(run, &save_err) < 0) ash_run_warn(run, "%s", save_err.text);
    ash_run_print_lost(run);
}

/* Steps until the last one, or until somebody wants to stop. */
static int loop(struct ash_run *run, bool *stopped_out, struct ash_err *err)
{
    struct due due = {.last = true};
    int rc = 0;

    due.stop = run->ends_here && !run->is_last_open;
    while (rc == 0 && !due.stop && !ash_trainer_is_spare(run->trainer) &&
           (run->is_last_open || ash_trainer_state(run->trainer)->step < (uint64_t)run->job->train.steps)) {
        if (!run->is_last_open) rc = step_once(run, err);
        if (rc == 0) rc = follow_up(run, &due, err);
    }
    if (rc < 0 || run->has_left || ash_trainer_is_spare(run->trainer)) return rc;
    *stopped_out = due.stop;
    ash_ledger_charge(&run->ledger, ASH_LEDGER_IDLE, ash_clock_ns());
    rc = ash_run_save_last(run, err);
    ash_ledger_charge(&run->ledger, ASH_LEDGER_SAVE, ash_clock_ns());
    return rc;
}

/* The mean over ranks of where time went. */
static int share_meters(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    double spent_s[ASH_METER_KINDS];
    int rc;

    if (group == NULL) return 0;
    rc = ash_group_all_reduce(group, run->spent_s, spent_s, ASH_METER_KINDS, ASH_COLL_F64, ASH_COLL_SUM, err);
    if (rc < 0) return rc;
    for (int kind = 0; kind < ASH_METER_KINDS; kind++)
        run->spent_s[kind] = spent_s[kind] / (double)ash_group_size(group);
    return 0;
}

static int finish(struct ash_run *run, bool stopped, struct ash_err *err)
{
    int rc = share_meters(run, err);

    if (rc == 0 && !stopped) rc = ash_run_export(run, err);
    if (rc == 0) rc = ash_run_tell_spares(run, ASH_SPARE_OVER, err);
    if (rc < 0) return rc;
    ash_run_finish_copies(run);
    ash_run_remove_old(run); /* the last save may have been killed in the middle of it */
    if (!run->is_leader) return 0;
    ash_run_write_ledger(run);
    ash_run_report(run, stopped ? "stopped" : "finished");
    ash_run_write_status(run, stopped ? "stopped" : "finished");
    ash_run_print_end(run, stopped);
    return 0;
}

/* Everything up to the end, or up to an error. A rank may become a spare and a spare a rank, again and again. */
static int run_on(struct ash_run *run, bool *stopped_out, struct ash_err *err)
{
    int rc = 0;

    while (rc >= 0 && !run->has_left) {
        if (ash_trainer_is_spare(run->trainer)) {
            rc = ash_run_wait_as_spare(run, err);
            if (rc > 0) return 0;
            if (rc == 0) rc = ash_run_change(run, err);
            continue;
        }
        rc = loop(run, stopped_out, err);
        if (rc >= 0 && !run->has_left && !ash_trainer_is_spare(run->trainer)) return finish(run, *stopped_out, err);
    }
    return rc < 0 ? rc : 0;
}

/* The same, with whoever is left when ranks are lost. */
static int run_on_with_rest(struct ash_run *run, bool *stopped_out, struct ash_err *err)
{
    struct ash_err cause = {0};
    int rc = run->opts->join != NULL ? ash_run_begin_joined(run, &cause) : 0;

    if (rc == 0) rc = run_on(run, stopped_out, &cause);
    while (rc < 0 && (ash_run_is_loss(run, rc) || ash_run_is_damage(run, rc))) {
        rc = ash_run_recover(run, &cause, &cause);
        if (rc == 0) rc = run_on(run, stopped_out, &cause);
    }
    if (rc < 0) ash_run_tell_device(run, &cause);
    if (rc < 0) give_up(run, &cause);
    if (rc < 0 && err != NULL) *err = cause;
    return rc;
}

/* Steps from wherever the start has left the run. */
static int train(struct ash_run *run, struct ash_run_result *result_out, struct ash_err *err)
{
    const struct ash_state *state;
    bool stopped = false;
    int rc;

    run->start_ns = ash_clock_ns();
    if (run->is_leader) {
        ash_run_print_start(run);
        ash_run_write_status(run, "running");
        ash_live_start(&run->live, run->start_step, (uint64_t)run->job->train.steps);
    }
    rc = run_on_with_rest(run, &stopped, err);
    if (rc == 0 && run->has_left)
        *result_out = (struct ash_run_result){.step = run->last.step, .stopped = true, .has_left = true};
    if (rc < 0 || run->has_left || ash_trainer_is_spare(run->trainer)) return rc;
    state = ash_trainer_state(run->trainer);
    *result_out = (struct ash_run_result){.step = state->step,
                                          .state_hash = run->state_hash,
                                          .skipped = state->guard.skipped,
                                          .stopped = stopped,
                                          .is_uncopied = run->is_uncopied};
    return 0;
}

/* The same with a trace of its ops. What ended the run counts before what ended the trace. */
static int train_profiled(struct ash_run *run, struct ash_run_result *result_out, struct ash_err *err)
{
    struct ash_profile *profile = NULL;
    struct ash_err late = {0};
    int rc = ash_profile_start(ash_trainer_exec(run->trainer), &profile, err), written;

    if (rc < 0) return rc;
    rc = train(run, result_out, err);
    written = ash_profile_finish(profile, run->opts->profile, run->opts->screen, &late);
    if (rc < 0 || written == 0) return rc;
    if (err != NULL) *err = late;
    return written;
}

/* As one of the ranks, or as one that will be. */
static int start(struct ash_run *run, struct ash_err *err)
{
    const struct ash_run_opts *opts = run->opts;

    run->group = opts->group != NULL ? *opts->group : NULL;
    run->is_leader = opts->join == NULL && (run->group == NULL || ash_group_rank(run->group) == 0);
    ash_live_init(&run->live, run->is_leader ? opts->screen : NULL, opts->terminal, 0, (uint64_t)run->job->train.steps);
    return opts->join != NULL ? ash_run_start_joining(run, err) : ash_run_start(run, err);
}

int ash_run_judge_start(int rc)
{
    return rc == -EINVAL || rc == -ENOENT || rc == -EEXIST || rc == -ENOTDIR || rc == -ENOTSUP ? -EBADE : rc;
}

int ash_run_job(const struct ash_job *job, const struct ash_run_opts *opts, struct ash_run_result *result_out,
                struct ash_err *err)
{
    struct ash_run run = {
        .job = job, .opts = opts, .lock_fd = -1, .valid_loss = NAN, .pairs = ASH_NO_PAIRS, .saved_step = UINT64_MAX};
    uint64_t started_ns = ash_clock_ns();
    int rc;

    ash_assert(opts->dir != NULL && job->train.steps > 0 && (job->data.train != NULL || opts->parts != NULL));
    rc = start(&run, err);
    ash_ledger_start(&run.ledger, run.ledger_path, started_ns);
    if (run.lost_steps > 0) ash_ledger_lose(&run.ledger, run.lost_steps);
    /* ranks that disagree (-EBADE) all know it already */
    if (rc < 0 && rc != -EBADE && run.group != NULL)
        ash_group_abort(run.group, err != NULL ? err->text : "a rank could not start");
    rc = ash_run_judge_start(rc);
    if (rc == 0) ash_rank_steps_open(&run);
    if (rc == 0)
        rc = opts->profile != NULL && run.is_leader ? train_profiled(&run, result_out, err)
                                                    : train(&run, result_out, err);
    ash_run_trace_close(&run);
    ash_rank_steps_close(&run, rc < 0);
    ash_saver_close(run.saver);
    ash_copier_close(run.copier);
    ash_helper_close(run.helper);
    ash_places_fini(&run.places);
    ash_runlog_close(run.log);
    ash_trainer_close(run.trainer);
    free(run.job_yaml);
    ash_run_release(&run);
    return rc;
}
