/* run: ranks are lost. What is left forms a group, continues from the same step, and a new first rank takes the folder
 * over. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "collective/epoch.h"
#include "train/checkpoint.h"
#include "train/run/control.h"

#define DAMAGES_MAX                                                                                                    \
    3 /* times that a process's memory may change by itself, or its results be wrong, before it is not used any more */
#define TRIES 64 /* losses in the middle of a recovery, one after the other */

ASH_COUNTER(losses_metric, "ashlar_train_recoveries_total", "Times that training continued after ranks were lost.");
ASH_COUNTER(damage_metric, "ashlar_train_damages_total",
            "Times that a rank's memory had changed by itself, or its results were wrong.");
ASH_COUNTER(redone_metric, "ashlar_train_redone_steps_total", "Steps that had begun and were made again after a loss.");
ASH_COUNTER(kept_metric, "ashlar_train_kept_grains_total",
            "Grains of steps that were made again after a loss which did not have to be computed again.");
ASH_COUNTER(down_metric, "ashlar_train_down_seconds_total", "Time between losses of ranks and the next step.");

bool ash_run_is_loss(const struct ash_run *run, int code)
{
    bool is_loss = code == -ECONNRESET || code == -ETIMEDOUT || code == -ESRCH; /* -ESRCH: known by its memory */

    return run->group != NULL && ash_group_size(run->group) > 1 && is_loss;
}

bool ash_run_is_damage(const struct ash_run *run, int code)
{
    return code == -ENOTRECOVERABLE || (run->group != NULL && code == -EUCLEAN);
}

/* ---- memory that changes by itself ------------------------------------------------------------------------------- */

int ash_run_tell_damage(struct ash_run *run, struct ash_err *err)
{
    struct ash_err what = *err;
    struct ash_group_member self = ash_group_get_member(run->group, ash_group_rank(run->group));
    int code = -ECONNRESET; /* it is met like a loss, of which all survive */

    run->flips_found++;
    ash_metric_add(&damage_metric, 1);
    if (run->flips_found > DAMAGES_MAX) code = -EIO;
    ash_err_set(err, code, "rank %zu (host %s, process %lld): %s%s", self.rank, self.host, (long long)self.pid,
                what.text, code == -EIO ? "; not the first time, so it ends" : "");
    if (code != -EIO) ash_group_abort(run->group, err->text);
    return code;
}

/* ---- recovery ---------------------------------------------------------------------------------------------------- */

/* Form the next epoch, with processes that wait for a place. Where this one leaves, run->group is NULL afterwards,
 * unless it is the last that knows anything. */
static int reform(struct ash_run *run, struct ash_err *err)
{
    const struct ash_epoch_opts opts = {.leaves = run->is_leaving};
    struct ash_group *old = run->group;
    int rc;

    run->group = *run->opts->group = NULL;
    ash_fault_point_meet(ASH_FAULT_REFORM);
    rc = ash_epoch_reform(old, &opts, &run->group, err);
    *run->opts->group = run->group;
    run->is_leaving = false;
    ash_ledger_charge(&run->ledger, ASH_LEDGER_REFORM, ash_clock_ns());
    if (rc < 0) return rc;
    run->has_left = run->group == NULL;
    if (run->has_left) return 0;
    if (ash_group_size(run->group) >= (size_t)run->job->recover.min_ranks) return 0;
    return ash_err_set(err, -ENODATA, "%zu ranks are left, and recover.min_ranks is %" PRId64,
                       ash_group_size(run->group), run->job->recover.min_ranks);
}

static bool is_first(const struct ash_run *run)
{
    return run->group == NULL || ash_group_rank(run->group) == 0;
}

/* A part of the trainer wants an earlier state: all saves have to be there, so that each run finds the same one, and
 * that of the present step must not. */
static int leave_present(struct ash_run *run, struct ash_err *err)
{
    uint64_t step = ash_trainer_state(run->trainer)->step;
    struct ash_err why = {0};
    int rc = ash_run_settle_saves(run, err);

    if (rc == 0 && is_first(run) && step > 0 && ash_checkpoint_clear_newer(run->checkpoints, step - 1, &why) < 0)
        ash_run_warn(run, "%s", why.text);
    return rc;
}

/* What is in memory is not enough, or wrong. */
static int go_back(struct ash_run *run, const char *why, struct ash_recovery *recovery, struct ash_err *err)
{
    int rc;

    if (is_first(run)) ash_log(ASH_LOG_WARN, "going back to the newest checkpoint: %s", why);
    rc = ash_run_reload(run, err);
    recovery->has_finished = false;
    if (rc == 0 && !ash_trainer_is_spare(run->trainer)) recovery->step = ash_trainer_state(run->trainer)->step;
    return rc;
}

/* One try. damage: of the state in memory; NULL: none. Returns as ash_trainer_resume. */
static int try_recover(struct ash_run *run, const struct ash_err *damage, struct ash_recovery *recovery,
                       struct ash_err *err)
{
    struct ash_err missing = {0};
    int rc = damage != NULL && damage->code == -ENOTRECOVERABLE ? leave_present(run, err) : 0;

    if (rc < 0) return rc;
    ash_run_close_saver(run);
    ash_trainer_suspend(run->trainer);
    if (damage != NULL) return go_back(run, damage->text, recovery, err);
    rc = run->is_joining ? 0 : reform(run, err);
    run->is_joining = false;
    if (rc < 0 || run->has_left) return rc;
    rc = ash_run_check_stopped(run, err);
    if (rc < 0) return rc;
    rc = ash_trainer_resume(run->trainer, run->group, recovery, &missing);
    if (rc == -ENODATA) return go_back(run, missing.text, recovery, err);
    if (rc < 0 && err != NULL) *err = missing;
    return rc;
}

/* The step that the others have finished meanwhile is this rank's last one, too. After an earlier checkpoint nothing
 * that was logged later holds any more. */
static int adopt_step(struct ash_run *run, const struct ash_recovery *recovery, struct ash_err *err)
{
    if (recovery->has_finished) {
        run->last = recovery->finished;
        run->last_s = fmax(run->last_s, 1e-9);
        run->is_last_open = true;
        run->ledger.steps++;
    }
    if (recovery->step >= run->last.step) return 0;
    ash_ledger_lose(&run->ledger, run->last.step - recovery->step);
    memset(&run->last, 0, sizeof(run->last));
    run->is_last_open = false;
    return run->is_leader ? ash_run_open_log(run, err) : 0;
}

/* This rank has become the first. What the lost one may not have logged any more is open again. */
static int become_leader(struct ash_run *run, struct ash_err *err)
{
    const struct ash_log_record *records;
    size_t count;
    int rc;

    run->is_leader = true;
    ash_live_init(&run->live, run->opts->screen, run->opts->terminal, 0, (uint64_t)run->job->train.steps);
    rc = ash_run_take_over(run, err);
    if (rc < 0) return rc;
    ash_run_read_status(run);
    run->start_ns = ash_clock_ns(); /* what was before is counted as earlier; the log does not have the last of it */
    run->earlier_s = fmax(run->earlier_s, ash_ledger_wall_s(&run->ledger));
    records = ash_runlog_records(run->log);
    count = ash_runlog_count(run->log);
    /* this rank may have been a spare meanwhile: agree_on_open_step tells it what that step was */
    if ((count > 0 ? records[count - 1].step : 0) < ash_trainer_state(run->trainer)->step) run->is_last_open = true;
    return 0;
}

/* Does a rank know that what follows from the last step is still to be done? Then it is, for all; who has come only now
 * is told what that step was. Where all were told to stop, they do so before another step: it may be the one that
 * nobody gets beyond. */
static int agree_on_open_step(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    uint64_t step = ash_trainer_state(run->trainer)->step;

    run->ends_here = ash_run_is_told(run);
    if (group == NULL) return 0;
    int64_t known = run->last.step == step ? (int64_t)ash_group_size(group) - (int64_t)ash_group_rank(group) : 0,
            values[3] = {run->is_last_open && (run->last.step == step || run->is_leader), known, !ash_run_is_told(run)};
    int rc = ash_group_all_reduce(group, values, values, 3, ASH_COLL_I64, ASH_COLL_MAX, err);

    if (rc < 0) return rc;
    run->ends_here = values[2] == 0;
    run->is_last_open = values[0] != 0 && values[1] > 0;
    if (!run->is_last_open) return 0;
    return ash_group_broadcast(group, &run->last, sizeof(run->last), ash_group_size(group) - (size_t)values[1], err);
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
    ash_run_warn(run, "%s; %zu ranks continue from step %" PRIu64 " as %s after %.2f s (%.0f MB moved)%s", why,
                 ash_group_size(run->group), recovery->step, ash_mesh_describe(run->facts.mesh, mesh, sizeof(mesh)),
                 down_s, (double)recovery->moved_bytes * 1e-6, kept);
}

/* Try until a new epoch stands, whoever is lost on the way. A step that one try has finished stays finished. */
static int try_all(struct ash_run *run, const struct ash_err *cause, struct ash_recovery *recovery, struct ash_err *err)
{
    struct ash_recovery finished = {0};
    const struct ash_err *damage = ash_run_is_damage(run, cause->code) ? cause : NULL;
    int rc = -ECONNRESET;

    for (size_t tries = 0; tries < TRIES && rc < 0 && (tries == 0 || ash_run_is_loss(run, rc)); tries++) {
        rc = try_recover(run, tries == 0 ? damage : NULL, recovery, err);
        if (recovery->has_finished) finished = *recovery;
    }
    recovery->has_finished = finished.has_finished;
    recovery->finished = finished.finished;
    return rc;
}

/* Where saves go, and what somebody has asked for: newcomers cannot know. */
static int share_place(struct ash_run *run, struct ash_err *err)
{
    uint64_t shared[2] = {run->places.current, run->doomed_step}, place;
    int rc = ash_group_broadcast(ash_trainer_group(run->trainer), shared, sizeof(shared), 0, err);

    if (rc < 0) return rc;
    place = shared[0];
    run->doomed_step = shared[1];
    if (place >= run->places.count) return 0;
    run->places.current = (size_t)place;
    snprintf(run->checkpoints, sizeof(run->checkpoints), "%s", ash_places_root(&run->places));
    return 0;
}

/* Newcomers do not know where the time of the run went, and one of them may become the first rank. Those who have made
 * all its steps do. */
static int share_ledger(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    size_t best = 0, ranks = ash_group_size(group);
    struct ash_ledger *all = calloc(ranks, sizeof(*all));
    int rc = all != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ranks);

    ash_ledger_charge(&run->ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    if (rc == 0) rc = ash_group_all_gather(group, &run->ledger, all, sizeof(*all), err);
    for (size_t r = 1; rc == 0 && r < ranks; r++)
        if (all[r].steps > all[best].steps) best = r;
    if (rc == 0 && all[best].steps > run->ledger.steps) {
        run->ledger = all[best];
        run->ledger.last_ns = ash_clock_ns(); /* clocks differ */
    }
    free(all);
    return rc;
}

/* What the run, as distinct from its trainer, does in a new epoch. */
static int take_up(struct ash_run *run, const struct ash_recovery *recovery, struct ash_err *err)
{
    int rc;

    run->facts = ash_trainer_get_facts(run->trainer);
    run->slow = (struct ash_slow_watch){0};
    run->waits = (struct ash_wait_watch){0};
    run->waits_long = false;
    run->probe_step = 0;
    run->is_slow = false;
    rc = adopt_step(run, recovery, err);
    if (rc == 0 && !run->is_leader && is_first(run)) rc = become_leader(run, err);
    if (rc < 0 || ash_trainer_is_spare(run->trainer)) return rc;
    rc = agree_on_open_step(run, err);
    if (rc == 0 && recovery->has_newcomers) rc = share_place(run, err);
    if (rc == 0 && recovery->has_newcomers) rc = share_ledger(run, err);
    if (rc == 0) rc = ash_run_open_saver(run, err);
    return rc < 0 ? rc : ash_trainer_spread(run->trainer, err);
}

static void count_recovery(struct ash_run *run, const struct ash_recovery *recovery, double down_s)
{
    run->ledger.recoveries++;
    run->ledger.redone_steps += !run->is_last_open;
    if (!run->is_last_open)
        ash_ledger_keep(&run->ledger, recovery->kept_grains, (uint64_t)run->job->train.grains, recovery->kept_share);
    ash_metric_add(&kept_metric, (double)recovery->kept_grains);
    ash_metric_add(&losses_metric, 1);
    ash_metric_add(&redone_metric, !run->is_last_open);
    ash_metric_add(&down_metric, down_s);
}

int ash_run_recover(struct ash_run *run, const struct ash_err *cause, struct ash_err *err)
{
    struct ash_err first = *cause;
    /* others that were faster have begun what all had agreed on */
    bool is_planned = run->change_why[0] != '\0' && strstr(cause->text, ASH_GROUP_FORMED_AGAIN) != NULL;
    struct ash_recovery recovery = {0};
    uint64_t start_ns = ash_clock_ns();
    double down_s;
    int rc;

    if (!ash_trainer_is_spare(run->trainer))
        run->is_leaving = false; /* what it holds may be needed; it can ask again */
    if (is_planned) ash_err_set(&first, first.code, "%s", run->change_why);
    run->change_why[0] = '\0';
    run->held_s = 0.0;
    rc = try_all(run, &first, &recovery, err);

    if (rc < 0 || run->has_left) return rc;
    rc = take_up(run, &recovery, err);
    if (rc < 0) return rc;
    down_s = (double)(ash_clock_ns() - start_ns) * 1e-9;
    ash_log(ASH_LOG_DEBUG, "of %.3f s: settling %.3f s, opening the mesh %.3f s, moving the state %.3f s", down_s,
            recovery.settle_s, recovery.open_s, recovery.transfer_s);
    ash_ledger_charge(&run->ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    if (!is_planned) count_recovery(run, &recovery, down_s);
    say(run, first.text, &recovery, down_s);
    if (run->is_leader) ash_run_write_ledger(run);
    return 0;
}

/* ---- joining and leaving ----------------------------------------------------------------------------------------- */

int ash_run_begin_joined(struct ash_run *run, struct ash_err *err)
{
    struct ash_recovery recovery = {0};
    int rc;

    run->is_joining = run->has_joined = true;
    rc = try_recover(run, NULL, &recovery, err);
    if (rc == 0) rc = take_up(run, &recovery, err);
    if (rc < 0) return rc;
    run->start_step = recovery.step;
    ash_ledger_charge(&run->ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    return 0;
}

/* Before ranks leave, the others get what those hold: a mesh without them, in the same group. */
static int hand_over(struct ash_run *run, struct ash_err *err)
{
    struct ash_recovery recovery = {0};
    int rc;

    ash_trainer_stay_out(run->trainer, run->is_leaving);
    ash_trainer_suspend(run->trainer);
    rc = ash_trainer_resume(run->trainer, run->group, &recovery, err);
    if (rc < 0) run->is_leaving = false;
    ash_trainer_stay_out(run->trainer, false);
    /* who gets beyond this may leave, which ends the group for those that are still in it: but they have all by then */
    if (rc < 0) return rc;
    rc = ash_group_barrier(run->group, err);
    return ash_run_is_loss(run, rc) ? 0 : rc;
}

int ash_run_change(struct ash_run *run, struct ash_err *err)
{
    struct ash_recovery recovery = {0};
    uint64_t start_ns = ash_clock_ns();
    int rc;

    ash_ledger_charge(&run->ledger, ASH_LEDGER_IDLE, start_ns);
    ash_run_close_saver(run);
    if (!run->grows) run->held_s = 0.0;
    rc = run->hands_over && !run->grows ? hand_over(run, err) : 0;
    if (rc == 0)
        rc = run->grows ? ash_trainer_grow(run->trainer, &recovery, err) : try_recover(run, NULL, &recovery, err);
    run->grows = false;
    if (rc < 0 || run->has_left) return rc;
    rc = take_up(run, &recovery, err);
    if (rc < 0) return rc;
    ash_ledger_charge(&run->ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    run->held_s += recovery.held_s + (double)(ash_clock_ns() - start_ns) * 1e-9;
    if (ash_trainer_is_growing(run->trainer)) { /* there is more to say when they have their places */
        if (!run->is_leader) return 0;
        ash_run_write_status(run, "running");
        ash_run_warn_damaged(run, recovery.repeated, recovery.damaged_from, recovery.damaged_to);
        return 0;
    }
    say(run, run->change_why[0] != '\0' ? run->change_why : "ranks change", &recovery, run->held_s);
    run->change_why[0] = '\0';
    return 0;
}
