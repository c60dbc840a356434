/* run: a step and its follow-up. A step is logged before it is saved. */
#include "train/run/run_priv.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault_point.h"
#include "record/metrics.h"
#include "train/run/rank_steps.h"
#include "train/run/run_trace.h"

#define PAUSE_NS 400000000    /* in a step of a rank with the injected fault "slow" */
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

/* ---- after a step ------------------------------------------------------------------------------------------------ */

static void count_metrics(struct ash_run *run, const struct ash_step *step, double step_s)
{
    ash_metric_set(&step_metric, (double)step->step);
    ash_metric_set(&loss_metric, step->loss);
    ash_metric_set(&norm_metric, step->norm);
    ash_metric_set(&lr_metric, step->lr);
    ash_metric_set(&speed_metric, (double)step->tokens / step_s);
    if (!isnan(run->progress.valid_loss)) ash_metric_set(&valid_metric, run->progress.valid_loss);
    ash_metric_add(&tokens_metric, (double)step->tokens);
    ash_run_count_flops(run, step);
    ash_metric_add(&skipped_metric, step->verdict != ASH_GUARD_OK);
    ash_metric_observe(&time_metric, step_s);
}

static void write_log(struct ash_run *run, const struct ash_step *step, const struct ash_elastic_due *due,
                      double step_s)
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
                                    .valid_loss = due->valid ? (float)run->progress.valid_loss : NAN,
                                    .pairs = due->valid ? run->progress.pairs : ASH_NO_PAIRS,
                                    .skipped = step->verdict != ASH_GUARD_OK,
                                    .hashed = due->hash,
                                    .state_hash = run->saves.state_hash};
    struct ash_err err = {0};

    if (ash_runlog_add(run->files.log, &record, &err) == 0) {
        run->files.log_failing = false;
    } else if (!run->files.log_failing) {
        run->files.log_failing = true;
        ash_run_warn(run, "the log cannot be written now, its lines wait in memory: %s", err.text);
    }
    ash_run_add_events(run, &record);
}

static void show(struct ash_run *run, const struct ash_step *step, const struct ash_elastic_due *due, double step_s)
{
    uint64_t total = (uint64_t)run->job->train.steps, done = step->step - run->progress.start_step;
    double part_s = ash_run_elapsed_s(run) - run->progress.earlier_s;
    struct ash_live_view view = {.step = step->step,
                                 .total = total,
                                 .loss = step->loss,
                                 .lr = step->lr,
                                 .norm = step->norm,
                                 .tokens = step->tokens,
                                 .step_s = step_s,
                                 .valid_loss = run->progress.valid_loss,
                                 .valid_accuracy = run->progress.pairs.accuracy,
                                 .measured = due->valid,
                                 .left_s = part_s / (double)done * (double)(total - step->step)};

    ash_live_step(&run->progress.live, &view);
}

/* Has the first rank, which is lost now, logged the step before others could follow it up? */
static bool is_logged(const struct ash_run *run, uint64_t step)
{
    size_t count = ash_runlog_count(run->files.log);

    return count > 0 && ash_runlog_records(run->files.log)[count - 1].step >= step;
}

/* The first rank's log, metrics and screen of a step. */
static void report_step(struct ash_run *run, const struct ash_step *step, const struct ash_elastic_due *due,
                        double step_s)
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
        run->progress.spent_s[kind] += (double)step->meter.ns[kind] * 1e-9;
    run->progress.spent_steps++;
}

/* Validation is due only if there is data for it. */
static struct ash_elastic_due what_is_due(const struct ash_run *run)
{
    struct ash_elastic_due due = run->elastic.due;

    due.valid = due.valid && run->facts.valid_sequences > 0;
    return due;
}

/* Validation and hash, if they are due. */
static int measure(struct ash_run *run, const struct ash_elastic_due *due, struct ash_err *err)
{
    int rc = 0;

    if (due->valid) rc = ash_trainer_validate(run->trainer, &run->progress.valid_loss, &run->progress.pairs, err);
    if (rc == 0 && due->check) rc = ash_trainer_check_copies(run->trainer, err);
    if (rc == 0 && (due->hash || due->save)) rc = ash_run_hash(run, err);
    return rc;
}

void ash_run_write_ledger(struct ash_run *run)
{
    struct ash_err err = {0};

    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_IDLE, ash_clock_ns());
    if (ash_ledger_write(&run->progress.ledger, run->files.ledger_path, &err) < 0 && !run->files.report_failing)
        ash_run_warn(run, "the ledger was not written, training continues: %s", err.text);
}

/* ---- actions ----------------------------------------------------------------------------------------------------- */

/* Count the step's time, and of that the work of this rank alone. */
static void count_step(struct ash_run *run, uint64_t start_ns)
{
    const struct ash_meter *meter = &run->progress.last.meter;
    double took_ns;

    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_PRODUCTIVE, ash_clock_ns());
    run->progress.ledger.steps++;
    count_time(run, &run->progress.last);
    ash_rank_steps_add(run, &run->progress.last, start_ns);
    ash_run_trace_end(run);
    took_ns = (double)(ash_clock_ns() - start_ns);
    run->pace.own_s = ash_rank_steps_own(run, start_ns);
    run->progress.last_s = fmax(took_ns, 1.0) * 1e-9;
    run->pace.waits_long = ash_wait_watch_add(&run->pace.waits, (double)meter->ns[ASH_METER_COMM] * 1e-9);
}

int ash_run_do_step(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    bool feeds = run->elastic.growth == ASH_ELASTIC_GROWTH_OPEN;
    uint64_t start_ns, before = run->progress.last.step;
    int rc;

    ash_run_trace_begin(run); /* takes a moment, which is none of the step's */
    start_ns = ash_clock_ns();
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_IDLE, start_ns);
    ash_run_meet_doom(run);
    if (run->faults.pauses) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    rc = feeds ? ash_run_tell_spares(run, ASH_ELASTIC_WORD_FEED, err) : 0;
    if (rc == 0) rc = ash_trainer_step(run->trainer, &run->progress.last, err);
    if (rc < 0) ash_ledger_charge_failed(&run->progress.ledger, ash_clock_ns());
    event->step = run->progress.last.step;
    if (rc < 0 && run->progress.last.step == before) return rc; /* not made, or not by all */
    count_step(run, start_ns);
    return rc;
}

int ash_run_do_follow(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    const struct ash_elastic_due due = what_is_due(run);
    struct ash_guard_opts guard = ash_job_get_guard(run->job);
    int rc = measure(run, &due, err);

    (void)event;
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_PRODUCTIVE, ash_clock_ns());
    if (rc < 0) return rc;
    if (run->is_leader) report_step(run, &run->progress.last, &due, run->progress.last_s);
    if (!run->elastic.gives_up) return 0;
    return ash_guard_limit(&guard, &ash_trainer_state(run->trainer)->guard, run->progress.last.verdict, err);
}

int ash_run_do_record(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    const struct ash_elastic_due due = what_is_due(run);
    int rc;

    (void)event;
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_IDLE, ash_clock_ns());
    rc = due.save ? ash_run_begin_save(run, err) : 0;
    if (due.save) ash_fault_point_meet(ASH_FAULT_SAVE);
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_SAVE, ash_clock_ns());
    if (rc == 0 && run->is_leader && (due.save || due.valid) && ash_clock_ns() - run->files.report_ns >= REPORT_NS) {
        ash_run_write_ledger(run);
        ash_run_report(run, "running");
    }
    return rc;
}
