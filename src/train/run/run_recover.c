/* run: from one mesh to the next. After a loss the ranks that are left form a group and continue from the same step,
 * and a new first rank takes the folder over. Ranks join and leave between two steps. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "collective/epoch.h"
#include "record/metrics.h"
#include "train/checkpoint.h"

ASH_COUNTER(losses_metric, "ashlar_train_recoveries_total", "Times that training continued after ranks were lost.");
ASH_COUNTER(damage_metric, "ashlar_train_damages_total",
            "Times that a rank's memory had changed by itself, or its results were wrong.");
ASH_COUNTER(redone_metric, "ashlar_train_redone_steps_total", "Steps that had begun and were redone after a loss.");
ASH_COUNTER(kept_metric, "ashlar_train_kept_grains_total",
            "Grains of redone steps that were kept and not computed again.");
ASH_COUNTER(down_metric, "ashlar_train_down_seconds_total", "Time between losses of ranks and the next step.");

bool ash_run_is_loss(const struct ash_run *run, int code)
{
    bool is_loss = code == -ECONNRESET || code == -ETIMEDOUT || code == -ESRCH; /* -ESRCH: known by its memory */

    return ash_group_size(run->group) > 1 && is_loss;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Is it the error of copies that differ, or of parts that want to go back (train/trainer.h)? Then the newest checkpoint
 * is trusted, not the state in memory. */
static bool is_damage(const struct ash_run *run, int code)
{
    return code == -ENOTRECOVERABLE || (run->group != NULL && code == -EUCLEAN);
}

/* Is it this rank's memory, or its results? */
static bool is_corruption(const struct ash_run *run, int code)
{
    return code == -EILSEQ && (run->elastic.todo == ASH_ELASTIC_STEP || run->elastic.todo == ASH_ELASTIC_FOLLOW);
}

/* Name this rank. */
static void describe_corruption(struct ash_run *run, struct ash_err *err)
{
    struct ash_err what = *err;
    struct ash_group_member self = ash_group_get_member(run->group, ash_group_rank(run->group));
    bool is_last = run->elastic.corruptions >= ASH_ELASTIC_CORRUPTIONS_MAX;

    ash_metric_add(&damage_metric, 1);
    ash_err_set(err, is_last ? -EIO : -ECONNRESET, "rank %zu (host %s, process %lld): %s%s", self.rank, self.host,
                (long long)self.pid, what.text, is_last ? "; not the first time, so it ends" : "");
}

/* A loss: the ranks that are left have to find a new mesh. If others that were faster have begun what all had agreed
 * on, it is none. */
static void begin_recovery(struct ash_run *run, const struct ash_err *cause)
{
    struct ash_run_turnover *turnover = &run->turnover;
    bool is_planned = run->progress.change_why[0] != '\0' && strstr(cause->text, ASH_GROUP_FORMED_AGAIN) != NULL;

    if (turnover->is_under_way && turnover->is_loss) return;
    *turnover = (struct ash_run_turnover){
        .is_under_way = true, .is_loss = !is_planned, .start_ns = ash_clock_ns(), .cause = *cause};
    if (is_planned) ash_err_set(&turnover->cause, cause->code, "%s", run->progress.change_why);
    run->progress.change_why[0] = '\0';
    run->progress.held_s = 0.0;
}

void ash_run_take_error(struct ash_run *run, const struct ash_err *err, struct ash_elastic_event *event)
{
    int code = err->code;

    run->failure = *err;
    if (is_corruption(run, code)) {
        describe_corruption(run, &run->failure);
        event->kind = ASH_ELASTIC_CORRUPTION;
    } else if (ash_run_is_loss(run, code)) {
        event->kind = ASH_ELASTIC_LOSS;
    } else if (is_damage(run, code)) {
        event->kind = ASH_ELASTIC_DAMAGE;
        event->is_refused = code == -ENOTRECOVERABLE;
    } else {
        event->kind = ASH_ELASTIC_FAILURE;
        return;
    }
    begin_recovery(run, &run->failure);
}

/* A change that all have agreed on. */
static void begin_change(struct ash_run *run)
{
    if (run->turnover.is_under_way) return;
    run->turnover = (struct ash_run_turnover){.is_under_way = true, .start_ns = ash_clock_ns()};
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_IDLE, run->turnover.start_ns);
    if (run->elastic.change != ASH_ELASTIC_CHANGE_GROW) run->progress.held_s = 0.0;
}

/* ---- the next epoch ---------------------------------------------------------------------------------------------- */

int ash_run_do_abort(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    (void)event;
    (void)err;
    ash_group_abort(run->group, run->failure.text);
    return 0;
}

/* If this rank leaves, run->group is NULL afterwards, unless it is the last with the state. */
int ash_run_do_reform(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    const struct ash_epoch_opts opts = {.leaves = run->elastic.leaves};
    struct ash_group *old = run->group;
    int rc;

    begin_change(run);
    ash_run_close_saver(run);
    ash_trainer_suspend(run->trainer);
    run->group = *run->opts->group = NULL;
    ash_fault_point_meet(ASH_FAULT_REFORM);
    rc = ash_epoch_reform(old, &opts, &run->group, err);
    *run->opts->group = run->group;
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_REFORM, ash_clock_ns());
    if (rc < 0 || run->group == NULL) return rc;
    run->progress.ledger.ranks = (double)ash_group_size(run->group);
    event->rank = ash_group_rank(run->group);
    event->ranks = ash_group_size(run->group);
    return 0;
}

/* ---- the state in the next mesh ---------------------------------------------------------------------------------- */

static bool is_first(const struct ash_run *run)
{
    return ash_group_rank(run->group) == 0;
}

/* A part of the trainer wants an earlier state: all saves have to be there, so that each run finds the same one, and
 * that of the present step must not. */
static int leave_present(struct ash_run *run, struct ash_err *err)
{
    uint64_t step = ash_trainer_state(run->trainer)->step;
    struct ash_err why = {0};
    int rc = ash_run_settle_saves(run, err);

    if (rc == 0 && is_first(run) && step > 0 && ash_checkpoint_clear_newer(run->files.checkpoints, step - 1, &why) < 0)
        ash_run_warn(run, "%s", why.text);
    return rc;
}

static void end_turnover(struct ash_run *run);

/* A step that the others have finished meanwhile is this rank's last one, too. */
static void adopt_finished(struct ash_run *run, struct ash_elastic_event *event)
{
    struct ash_recovery *recovery = &run->turnover.recovery;

    if (!recovery->has_finished) return;
    recovery->has_finished = false;
    run->progress.last = recovery->finished;
    run->progress.last_s = fmax(run->progress.last_s, 1e-9);
    run->progress.ledger.steps++;
    event->step = event->finished = run->progress.last.step;
}

/* The mesh has its values, of `step` steps. After an earlier checkpoint, lines that were logged later are dropped. */
static int settle_in(struct ash_run *run, uint64_t step, struct ash_elastic_event *event, struct ash_err *err)
{
    struct ash_group *mesh = ash_trainer_group(run->trainer);
    int rc = 0;

    run->facts = ash_trainer_get_facts(run->trainer);
    run->pace = (struct ash_run_pace){.own_s = run->pace.own_s};
    event->step = step;
    event->rank = ash_group_rank(run->group);
    event->ranks = ash_group_size(run->group);
    event->mesh_ranks = ash_group_size(mesh);
    event->is_spare = ash_trainer_is_spare(run->trainer);
    event->is_growing = ash_trainer_is_growing(run->trainer);
    if (step < run->progress.last.step) {
        ash_ledger_lose(&run->progress.ledger, run->progress.last.step - step);
        memset(&run->progress.last, 0, sizeof(run->progress.last));
        rc = run->is_leader ? ash_run_open_log(run, err) : 0;
    }
    if (event->is_spare) end_turnover(run); /* the others have more to do */
    return rc;
}

int ash_run_do_transfer(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    struct ash_run_turnover *turnover = &run->turnover;
    struct ash_err missing = {0};
    int rc;

    begin_change(run); /* a rank that joins begins here */
    rc = ash_run_check_stopped(run, err);
    if (rc < 0) return rc;
    rc = ash_trainer_resume(run->trainer, run->group, &turnover->recovery, &missing);
    adopt_finished(run, event);
    if (rc == 0) return settle_in(run, turnover->recovery.step, event, err);
    if (rc != -ENODATA) {
        *err = missing;
        return rc;
    }
    turnover->missing = missing;
    event->kind = ASH_ELASTIC_MISSING;
    return 0;
}

int ash_run_do_reload(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    struct ash_run_turnover *turnover = &run->turnover;
    const struct ash_err *why = &turnover->missing;
    int rc = run->elastic.is_refused ? leave_present(run, err) : 0;

    if (rc < 0) return rc;
    begin_change(run); /* a spare with a stop request */
    ash_run_close_saver(run);
    if (why->code == 0) {
        why = &turnover->cause;
        ash_trainer_suspend(run->trainer);
    }
    if (is_first(run)) ash_log(ASH_LOG_WARN, "going back to the newest checkpoint: %s", why->text);
    turnover->missing = (struct ash_err){0};
    rc = ash_run_reload(run, err);
    if (rc < 0) return rc;
    if (!ash_trainer_is_spare(run->trainer)) turnover->recovery.step = ash_trainer_state(run->trainer)->step;
    return settle_in(run, turnover->recovery.step, event, err);
}

int ash_run_do_hand_over(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    struct ash_recovery recovery = {0};
    int rc;

    (void)event;
    begin_change(run);
    ash_run_close_saver(run);
    ash_trainer_stay_out(run->trainer, run->elastic.leaves);
    ash_trainer_suspend(run->trainer);
    rc = ash_trainer_resume(run->trainer, run->group, &recovery, err);
    ash_trainer_stay_out(run->trainer, false);
    /* a rank that gets beyond this may leave, which ends the group for those still in it: but they have all by then */
    if (rc < 0) return rc;
    rc = ash_group_barrier(run->group, err);
    return ash_run_is_loss(run, rc) ? 0 : rc;
}

int ash_run_do_grow(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    struct ash_run_turnover *turnover = &run->turnover;
    int rc;

    begin_change(run);
    ash_run_close_saver(run);
    rc = ash_trainer_grow(run->trainer, &turnover->recovery, err);
    return rc < 0 ? rc : settle_in(run, turnover->recovery.step, event, err);
}

/* ---- the run in the next mesh ------------------------------------------------------------------------------------ */

int ash_run_do_take_over(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    const struct ash_log_record *records;
    struct ash_err refused = {0};
    size_t count;
    int rc;

    run->is_leader = true;
    ash_live_init(&run->progress.live, run->opts->screen, run->opts->terminal, 0, (uint64_t)run->job->train.steps);
    rc = ash_run_take_over(run, err);
    if (rc < 0) return rc;
    if (ash_run_open_events(run, &refused) < 0)
        ash_run_warn(run, "TensorBoard gets no more steps of this run: %s", refused.text);
    ash_run_read_status(run, event);
    run->progress.start_ns = ash_clock_ns(); /* the time before is counted as earlier; the log lacks the last of it */
    run->progress.earlier_s = fmax(run->progress.earlier_s, ash_ledger_wall_s(&run->progress.ledger));
    records = ash_runlog_records(run->files.log);
    count = ash_runlog_count(run->files.log);
    event->is_logged = (count > 0 ? records[count - 1].step : 0) >= ash_trainer_state(run->trainer)->step;
    return 0;
}

/* If a rank of the mesh has the last step open, it is open for all; a rank that has just joined is sent its results. If
 * all got a stop request, they stop before another step: that step may be the one at which ranks die. */
int ash_run_do_agree(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    enum { CLAIMS = sizeof(struct ash_elastic_claims) / sizeof(int64_t) };
    struct ash_group *group = ash_trainer_group(run->trainer);
    struct ash_elastic_claims *claims = &event->claims;
    size_t source;
    int rc;

    *claims = ash_elastic_claim(&run->elastic, ash_group_rank(group), ash_run_is_told(run));
    if (group == NULL) return 0;
    rc = ash_group_all_reduce(group, claims, claims, CLAIMS, ASH_COLL_I64, ASH_COLL_MAX, err);
    if (rc < 0 || !ash_elastic_is_claimed(claims, ash_group_size(group), &source)) return rc;
    return ash_group_broadcast(group, &run->progress.last, sizeof(run->progress.last), source, err);
}

void ash_run_warn_damaged(struct ash_run *run, uint64_t repeated, size_t from, size_t to)
{
    if (repeated > 0)
        ash_run_warn(run, "a part of the state arrived damaged at rank %zu from rank %zu; it was sent again", to, from);
}

static void say(struct ash_run *run, const char *why, const struct ash_recovery *recovery, double down_s)
{
    char mesh[192], kept[96] = "";

    if (!run->is_leader) return;
    ash_run_write_status(run, "running");
    ash_run_warn_damaged(run, recovery->repeated, recovery->damaged_from, recovery->damaged_to);
    if (run->group == NULL) {
        ash_run_warn(run, "%s; the run continues from step %" PRIu64, why, recovery->step);
        return;
    }
    if (recovery->kept_grains > 0)
        snprintf(kept, sizeof(kept), "; kept %" PRIu64 " of %" PRId64 " grains of step %" PRIu64, recovery->kept_grains,
                 run->job->train.grains, recovery->step + 1);
    ash_run_warn(run, "%s; %zu rank%s from step %" PRIu64 " as %s after %.2f s (%.0f MB moved)%s", why,
                 ash_group_size(run->group), ash_group_size(run->group) == 1 ? " continues" : "s continue",
                 recovery->step, ash_mesh_describe(run->facts.mesh, mesh, sizeof(mesh)), down_s,
                 (double)recovery->moved_bytes * 1e-6, kept);
}

/* Send the saves' folder and pending requests to joining ranks. */
static int share_place(struct ash_run *run, struct ash_err *err)
{
    uint64_t shared[2] = {run->saves.places.current, run->faults.doomed_step}, place;
    int rc = ash_group_broadcast(ash_trainer_group(run->trainer), shared, sizeof(shared), 0, err);

    if (rc < 0) return rc;
    place = shared[0];
    run->faults.doomed_step = shared[1];
    if (place >= run->saves.places.count) return 0;
    run->saves.places.current = (size_t)place;
    snprintf(run->files.checkpoints, sizeof(run->files.checkpoints), "%s", ash_places_root(&run->saves.places));
    return 0;
}

/* Joining ranks need the run's ledger, since one of them may become the first rank. Ranks that have made all its steps
 * have it. */
static int share_ledger(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    size_t best = 0, ranks = ash_group_size(group);
    struct ash_ledger *all = calloc(ranks, sizeof(*all));
    int rc = all != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ranks);

    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    if (rc == 0) rc = ash_group_all_gather(group, &run->progress.ledger, all, sizeof(*all), err);
    for (size_t r = 1; rc == 0 && r < ranks; r++)
        if (all[r].steps > all[best].steps) best = r;
    if (rc == 0 && all[best].steps > run->progress.ledger.steps) {
        all[best].ranks = run->progress.ledger.ranks;
        run->progress.ledger = all[best];
        run->progress.ledger.last_ns = ash_clock_ns(); /* clocks differ */
    }
    free(all);
    return rc;
}

static void count_recovery(struct ash_run *run, const struct ash_recovery *recovery, double down_s)
{
    run->progress.ledger.recoveries++;
    run->progress.ledger.redone_steps += !run->elastic.is_open;
    if (!run->elastic.is_open)
        ash_ledger_keep(&run->progress.ledger, recovery->kept_grains, (uint64_t)run->job->train.grains,
                        recovery->kept_share);
    ash_metric_add(&kept_metric, (double)recovery->kept_grains);
    ash_metric_add(&losses_metric, 1);
    ash_metric_add(&redone_metric, !run->elastic.is_open);
    ash_metric_add(&down_metric, down_s);
}

/* First rank: report the change. Ranks that are about to join the mesh are named when they have joined. */
static void report_turnover(struct ash_run *run, double took_s)
{
    const struct ash_recovery *recovery = &run->turnover.recovery;
    bool is_planned = run->turnover.cause.code == 0;
    const char *why = !is_planned                           ? run->turnover.cause.text
                      : run->progress.change_why[0] != '\0' ? run->progress.change_why
                                                            : "ranks change";

    if (is_planned && ash_trainer_is_growing(run->trainer)) {
        ash_run_write_status(run, "running");
        ash_run_warn_damaged(run, recovery->repeated, recovery->damaged_from, recovery->damaged_to);
        return;
    }
    say(run, why, recovery, is_planned ? run->progress.held_s : took_s);
    if (!is_planned) ash_run_write_ledger(run);
}

/* The next mesh runs. */
static void end_turnover(struct ash_run *run)
{
    struct ash_run_turnover *turnover = &run->turnover;
    const struct ash_recovery *recovery = &turnover->recovery;
    bool is_planned = turnover->cause.code == 0;
    double took_s = (double)(ash_clock_ns() - turnover->start_ns) * 1e-9;

    ash_log(ASH_LOG_DEBUG, "of %.3f s: settling %.3f s, opening the mesh %.3f s, moving the state %.3f s", took_s,
            recovery->settle_s, recovery->open_s, recovery->transfer_s);
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    if (turnover->is_loss) count_recovery(run, recovery, took_s);
    if (is_planned) run->progress.held_s += recovery->held_s + took_s;
    if (run->is_leader) report_turnover(run, took_s);
    if (!is_planned || !ash_trainer_is_growing(run->trainer)) run->progress.change_why[0] = '\0';
    turnover->is_under_way = false;
}

int ash_run_do_take_up(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    const struct ash_recovery *recovery = &run->turnover.recovery;
    bool has_joined = run->opts->join != NULL && run->saves.saver == NULL && run->progress.start_step == 0;
    int rc = recovery->has_newcomers ? share_place(run, err) : 0;

    (void)event;
    if (rc == 0 && recovery->has_newcomers) rc = share_ledger(run, err);
    if (rc == 0) rc = ash_run_open_saver(run, err);
    if (rc == 0) rc = ash_trainer_spread(run->trainer, err);
    if (rc < 0) return rc;
    if (has_joined) run->progress.start_step = recovery->step;
    end_turnover(run);
    return 0;
}
