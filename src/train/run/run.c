/* run: from start to end. The state machine of the step boundary (train/elastic) returns actions, which are executed
 * here. However the run ends, the last good state is on disk first. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "compute/profile/profile.h"
#include "train/run/rank_steps.h"
#include "train/run/run_trace.h"

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* After an error inside the loop: save the state if possible, and report it. */
static void give_up(struct ash_run *run, const struct ash_err *cause)
{
    struct ash_err save_err = {0};
    bool is_told = ash_run_is_told(run);

    if (is_told && ash_trainer_is_spare(run->trainer)) return; /* no rank waits for it */
    if (is_told) ash_run_mark_stopped(run);
    ash_group_abort(run->group, cause->text);
    ash_run_write_status(run, "failed");
    if (!run->is_leader || ash_trainer_stages(run->trainer)->chunks == NULL) return;
    if (ash_backend_outcome(run->facts.exec, 0, NULL) < 0) { /* the state has gone with the GPU */
        ash_live_clear(&run->progress.live);
        return;
    }
    if (ash_run_save_alone(run, &save_err) < 0) ash_run_warn(run, "%s", save_err.text);
    ash_run_print_lost(run);
}

static int do_save_last(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    int rc;

    (void)event;
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_IDLE, ash_clock_ns());
    rc = ash_run_save_last(run, err);
    ash_ledger_charge(&run->progress.ledger, ASH_LEDGER_SAVE, ash_clock_ns());
    return rc;
}

/* The mean over ranks of where time went. */
static int share_meters(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    double spent_s[ASH_METER_KINDS];
    int rc;

    rc = ash_group_all_reduce(group, run->progress.spent_s, spent_s, ASH_METER_KINDS, ASH_COLL_F64, ASH_COLL_SUM, err);
    if (rc < 0) return rc;
    for (int kind = 0; kind < ASH_METER_KINDS; kind++)
        run->progress.spent_s[kind] = spent_s[kind] / (double)ash_group_size(group);
    return 0;
}

static int do_finish(struct ash_run *run, struct ash_elastic_event *event, struct ash_err *err)
{
    bool stopped = run->elastic.is_stopped;
    int rc = share_meters(run, err);

    (void)event;
    if (rc == 0 && !stopped) rc = ash_run_export(run, err);
    if (rc == 0) rc = ash_run_tell_spares(run, run->elastic.word, err);
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

/* ---- one action after the other ---------------------------------------------------------------------------------- */

/* Each fills the event that follows from it (train/elastic/elastic.h). Returns 0, or an error that ash_run_take_error
 * makes an event of. */
static int (*const actions[ASH_ELASTIC_DOS])(struct ash_run *run, struct ash_elastic_event *event,
                                             struct ash_err *err) = {
    [ASH_ELASTIC_STEP] = ash_run_do_step,
    [ASH_ELASTIC_MEET] = ash_run_do_meet,
    [ASH_ELASTIC_WATCH] = ash_run_do_watch,
    [ASH_ELASTIC_FOLLOW] = ash_run_do_follow,
    [ASH_ELASTIC_RECORD] = ash_run_do_record,
    [ASH_ELASTIC_NOTIFY] = ash_run_do_notify,
    [ASH_ELASTIC_HAND_OVER] = ash_run_do_hand_over,
    [ASH_ELASTIC_GROW] = ash_run_do_grow,
    [ASH_ELASTIC_ABORT] = ash_run_do_abort,
    [ASH_ELASTIC_REFORM] = ash_run_do_reform,
    [ASH_ELASTIC_TRANSFER] = ash_run_do_transfer,
    [ASH_ELASTIC_RELOAD] = ash_run_do_reload,
    [ASH_ELASTIC_TAKE_OVER] = ash_run_do_take_over,
    [ASH_ELASTIC_AGREE] = ash_run_do_agree,
    [ASH_ELASTIC_TAKE_UP] = ash_run_do_take_up,
    [ASH_ELASTIC_LISTEN] = ash_run_do_listen,
    [ASH_ELASTIC_FEED] = ash_run_do_feed,
    [ASH_ELASTIC_SAVE_LAST] = do_save_last,
    [ASH_ELASTIC_FINISH] = do_finish,
};

/* The error that the run has ended with, or 0. */
static int how_it_ended(struct ash_run *run, struct ash_err *err)
{
    const struct ash_elastic *elastic = &run->elastic;

    if (elastic->end <= ASH_ELASTIC_END_LEFT) return 0;
    *err = run->failure;
    if (elastic->end == ASH_ELASTIC_END_TOO_FEW)
        ash_err_set(err, -ENODATA, "%zu rank%s left, and recover.min_ranks is %" PRId64, elastic->ranks,
                    elastic->ranks == 1 ? " is" : "s are", run->job->recover.min_ranks);
    return err->code;
}

/* Execute the machine's actions, to the end. */
static int run_on(struct ash_run *run, struct ash_err *err)
{
    struct ash_elastic *elastic = &run->elastic;

    while (elastic->todo != ASH_ELASTIC_END) {
        struct ash_elastic_event event = {.kind = ASH_ELASTIC_DONE};
        struct ash_err why = {0};
        int rc = actions[elastic->todo](run, &event, &why);

        why.code = rc;
        if (rc < 0) ash_run_take_error(run, &why, &event);
        ash_elastic_take(elastic, &event);
    }
    return how_it_ended(run, err);
}

/* The same; an error leaves as much as possible on disk. */
static int run_to_end(struct ash_run *run, struct ash_err *err)
{
    struct ash_err cause = {0};
    int rc = run_on(run, &cause);

    if (rc == 0) return 0;
    ash_run_tell_device(run, &cause);
    give_up(run, &cause);
    if (err != NULL) *err = cause;
    return rc;
}

static void start_machine(struct ash_run *run)
{
    const struct ash_job_train *train = &run->job->train;
    const struct ash_elastic_opts opts = {.steps = (uint64_t)train->steps,
                                          .save_every = train->save_every,
                                          .valid_every = train->valid_every,
                                          .hash_every = train->hash_every,
                                          .check_every = run->job->recover.check_every,
                                          .min_ranks = run->job->recover.min_ranks,
                                          .replaces_slow = run->job->recover.replace_slow};
    struct ash_group *mesh = ash_trainer_group(run->trainer);
    size_t rank = ash_group_rank(run->group), ranks = ash_group_size(run->group);

    if (run->opts->join != NULL)
        ash_elastic_start_joining(&run->elastic, &opts, rank, ranks);
    else if (ash_trainer_is_spare(run->trainer))
        ash_elastic_start(&run->elastic, &opts, 0, rank, ranks, rank);
    else
        ash_elastic_start(&run->elastic, &opts, ash_trainer_state(run->trainer)->step, rank, ranks,
                          ash_group_size(mesh));
}

/* Steps from wherever the start has left the run. */
static int train(struct ash_run *run, struct ash_run_result *result_out, struct ash_err *err)
{
    const struct ash_state *state;
    bool has_left;
    int rc;

    run->progress.start_ns = ash_clock_ns();
    start_machine(run);
    if (run->is_leader) {
        ash_run_print_start(run);
        ash_run_write_status(run, "running");
        ash_live_start(&run->progress.live, run->progress.start_step, (uint64_t)run->job->train.steps);
    }
    rc = run_to_end(run, err);
    has_left = run->elastic.end == ASH_ELASTIC_END_LEFT;
    if (rc == 0 && has_left)
        *result_out = (struct ash_run_result){.step = run->progress.last.step, .stopped = true, .has_left = true};
    if (rc < 0 || has_left || ash_trainer_is_spare(run->trainer)) return rc;
    state = ash_trainer_state(run->trainer);
    *result_out = (struct ash_run_result){.step = state->step,
                                          .state_hash = run->saves.state_hash,
                                          .skipped = state->guard.skipped,
                                          .stopped = run->elastic.is_stopped,
                                          .is_uncopied = run->saves.is_uncopied};
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
    run->is_leader = opts->join == NULL && ash_group_rank(run->group) == 0;
    ash_live_init(&run->progress.live, run->is_leader ? opts->screen : NULL, opts->terminal, 0,
                  (uint64_t)run->job->train.steps);
    return opts->join != NULL ? ash_run_start_joining(run, err) : ash_run_start(run, err);
}

int ash_run_judge_start(int rc)
{
    return rc == -EINVAL || rc == -ENOENT || rc == -EEXIST || rc == -ENOTDIR || rc == -ENOTSUP ? -EBADE : rc;
}

int ash_run_job(const struct ash_job *job, const struct ash_run_opts *opts, struct ash_run_result *result_out,
                struct ash_err *err)
{
    struct ash_run run = {.job = job,
                          .opts = opts,
                          .files.lock_fd = -1,
                          .progress.valid_loss = NAN,
                          .progress.pairs = ASH_NO_PAIRS,
                          .saves.saved_step = UINT64_MAX};
    uint64_t started_ns = ash_clock_ns();
    int rc;

    ash_assert(opts->dir != NULL && job->train.steps > 0 && (job->data.train != NULL || opts->parts != NULL));
    rc = start(&run, err);
    run.progress.ledger.usd_hour = job->log.price;
    run.progress.ledger.ranks = (double)ash_group_size(run.group);
    ash_ledger_start(&run.progress.ledger, run.files.ledger_path, started_ns);
    if (run.progress.lost_steps > 0) ash_ledger_lose(&run.progress.ledger, run.progress.lost_steps);
    /* ranks that disagree (-EBADE) have all detected it already */
    if (rc < 0 && rc != -EBADE && run.group != NULL)
        ash_group_abort(run.group, err != NULL ? err->text : "a rank could not start");
    rc = ash_run_judge_start(rc);
    if (rc == 0) ash_rank_steps_open(&run);
    if (rc == 0)
        rc = opts->profile != NULL && run.is_leader ? train_profiled(&run, result_out, err)
                                                    : train(&run, result_out, err);
    ash_run_trace_close(&run);
    ash_rank_steps_close(&run, rc < 0);
    ash_saver_close(run.saves.saver);
    ash_copier_close(run.saves.copier);
    ash_helper_close(run.saves.helper);
    ash_places_fini(&run.saves.places);
    ash_runlog_close(run.files.log);
    ash_event_file_close(run.files.events);
    ash_trainer_close(run.trainer);
    free(run.files.job_yaml);
    ash_run_release(&run);
    return rc;
}
