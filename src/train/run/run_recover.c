/* run: ranks are lost. What is left forms a group, goes on from the same step, and a new first rank takes the folder
 * over. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#define TRIES 64 /* losses in the middle of a recovery, one after the other */

ASH_COUNTER(losses_metric, "ashlar_train_recoveries_total", "Times that training went on after ranks were lost.");
ASH_COUNTER(redone_metric, "ashlar_train_redone_steps_total", "Steps that had begun and were made again after a loss.");
ASH_COUNTER(down_metric, "ashlar_train_down_seconds_total", "Time between losses of ranks and the next step.");

bool ash_run_is_loss(const struct ash_run *run, int code)
{
    return run->group != NULL && ash_group_size(run->group) > 1 && (code == -ECONNRESET || code == -ETIMEDOUT);
}

bool ash_run_is_damage(const struct ash_run *run, int code)
{
    return run->group != NULL && code == -EUCLEAN;
}

/* ---- spares ------------------------------------------------------------------------------------------------------ */

/* What the first rank tells spares. Plain data. */
struct spare_note {
    uint64_t step;
    uint32_t is_over;
};

int ash_run_tell_spares(struct ash_run *run, bool is_over, struct ash_err *err)
{
    struct ash_group *mesh = ash_trainer_group(run->trainer);
    struct spare_note note = {ash_trainer_state(run->trainer)->step, is_over};
    int rc = 0;

    if (mesh == NULL || !run->is_leader) return 0;
    for (size_t r = ash_group_size(mesh); rc == 0 && r < ash_group_size(run->group); r++)
        rc = ash_group_send(run->group, r, &note, sizeof(note), err);
    return rc;
}

int ash_run_wait_as_spare(struct ash_run *run, struct ash_err *err)
{
    struct spare_note note = {0};
    int rc = 0;

    while (rc == 0 && note.is_over == 0)
        rc = ash_group_recv(run->group, 0, &note, sizeof(note), err);
    return rc < 0 ? rc : 1;
}

/* ---- recovery ---------------------------------------------------------------------------------------------------- */

static int reform(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *old = run->group;
    int rc;

    run->group = *run->opts->group = NULL;
    rc = ash_group_reform(old, 0, &run->group, err);
    *run->opts->group = run->group;
    ash_ledger_charge(&run->ledger, ASH_LEDGER_REFORM, ash_clock_ns());
    if (rc < 0) return rc;
    if (ash_group_size(run->group) >= (size_t)run->job->recover.min_ranks) return 0;
    return ash_err_set(err, -ENODATA, "%zu ranks are left, and recover.min_ranks is %" PRId64,
                       ash_group_size(run->group), run->job->recover.min_ranks);
}

/* What is in memory is not enough, or wrong. */
static int go_back(struct ash_run *run, const char *why, struct ash_recovery *recovery, struct ash_err *err)
{
    int rc;

    if (ash_group_rank(run->group) == 0) ash_log(ASH_LOG_WARN, "going back to the newest checkpoint: %s", why);
    rc = ash_run_reload(run, err);
    recovery->has_finished = false;
    if (rc == 0 && !ash_trainer_is_spare(run->trainer)) recovery->step = ash_trainer_state(run->trainer)->step;
    return rc;
}

/* One try. damage: of the state in memory; NULL: none. Returns as ash_trainer_resume. */
static int try_recover(struct ash_run *run, const char *damage, struct ash_recovery *recovery, struct ash_err *err)
{
    struct ash_err missing = {0};
    int rc;

    ash_run_close_saver(run);
    ash_trainer_suspend(run->trainer);
    if (damage != NULL) return go_back(run, damage, recovery, err);
    rc = reform(run, err);
    if (rc == 0) rc = ash_run_check_stopped(run, err);
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
    records = ash_runlog_records(run->log);
    count = ash_runlog_count(run->log);
    if (run->last.step > 0 && (count == 0 || records[count - 1].step < run->last.step)) run->is_last_open = true;
    return 0;
}

/* Does a rank know that what follows from the last step is still to be done? Then it is, for all; who has come only now
 * is told what that step was. */
static int agree_on_open_step(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    uint64_t step = ash_trainer_state(run->trainer)->step;
    int64_t known = run->last.step == step ? (int64_t)ash_group_size(group) - (int64_t)ash_group_rank(group) : 0,
            values[2] = {run->is_last_open && run->last.step == step, known};
    int rc = ash_group_all_reduce(group, values, values, 2, ASH_COLL_I64, ASH_COLL_MAX, err);

    if (rc < 0) return rc;
    run->is_last_open = values[0] != 0 && values[1] > 0;
    if (!run->is_last_open) return 0;
    return ash_group_broadcast(group, &run->last, sizeof(run->last), ash_group_size(group) - (size_t)values[1], err);
}

static void say(struct ash_run *run, const struct ash_err *cause, const struct ash_recovery *recovery, double down_s)
{
    char mesh[192];

    if (!run->is_leader) return;
    ash_run_warn(run, "%s; %zu ranks go on from step %" PRIu64 " as %s after %.2f s (%.0f MB moved)", cause->text,
                 ash_group_size(run->group), recovery->step, ash_mesh_describe(run->facts.mesh, mesh, sizeof(mesh)),
                 down_s, (double)recovery->moved_bytes * 1e-6);
}

/* Try until a new epoch stands, whoever is lost on the way. A step that one try has finished stays finished. */
static int try_all(struct ash_run *run, const struct ash_err *cause, struct ash_recovery *recovery, struct ash_err *err)
{
    struct ash_recovery finished = {0};
    const char *damage = ash_run_is_damage(run, cause->code) ? cause->text : NULL;
    int rc = -ECONNRESET;

    for (size_t tries = 0; tries < TRIES && rc < 0 && (tries == 0 || ash_run_is_loss(run, rc)); tries++) {
        rc = try_recover(run, tries == 0 ? damage : NULL, recovery, err);
        if (recovery->has_finished) finished = *recovery;
    }
    recovery->has_finished = finished.has_finished;
    recovery->finished = finished.finished;
    return rc;
}

/* What the run, as distinct from its trainer, does in a new epoch. */
static int take_up(struct ash_run *run, const struct ash_recovery *recovery, struct ash_err *err)
{
    int rc = adopt_step(run, recovery, err);

    if (rc == 0 && !run->is_leader && ash_group_rank(run->group) == 0) rc = become_leader(run, err);
    if (rc < 0 || ash_trainer_is_spare(run->trainer)) return rc;
    rc = agree_on_open_step(run, err);
    return rc < 0 ? rc : ash_run_open_saver(run, err);
}

int ash_run_recover(struct ash_run *run, const struct ash_err *cause, struct ash_err *err)
{
    struct ash_err first = *cause;
    struct ash_recovery recovery = {0};
    uint64_t start_ns = ash_clock_ns();
    double down_s;
    int rc = try_all(run, &first, &recovery, err);

    if (rc < 0) return rc;
    run->facts = ash_trainer_get_facts(run->trainer);
    rc = take_up(run, &recovery, err);
    if (rc < 0) return rc;
    down_s = (double)(ash_clock_ns() - start_ns) * 1e-9;
    ash_ledger_charge(&run->ledger, ASH_LEDGER_TRANSFER, ash_clock_ns());
    run->ledger.recoveries++;
    run->ledger.redone_steps += !run->is_last_open;
    ash_metric_add(&losses_metric, 1);
    ash_metric_add(&redone_metric, !run->is_last_open);
    ash_metric_add(&down_metric, down_s);
    say(run, &first, &recovery, down_s);
    return 0;
}
