/* run: saves, while steps continue. One that fails costs nothing but itself. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "record/metrics.h"
#include "base/log.h"
#include "storage/commit/commit.h"
#include "train/checkpoint.h"

#define STALL_NS 50000000u /* a wait for a save that is worth a word */
#define EXPORT_NAME "model"

static const double save_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};

ASH_COUNTER(saves_metric, "ashlar_train_saves_total", "Checkpoints written.");
ASH_COUNTER(save_errors_metric, "ashlar_train_save_errors_total", "Checkpoints that could not be written.");
ASH_HISTOGRAM(save_time_metric, "ashlar_train_save_seconds", "Time from the edge of a step until it is durable.",
              save_bounds);
ASH_HISTOGRAM(stall_metric, "ashlar_train_save_stall_seconds", "Time that a step waited for a checkpoint.",
              save_bounds);

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* A step waited for a save, because an earlier one is under way and memory is short. */
static void count_stall(struct ash_run *run, uint64_t ns)
{
    char memory[32];

    if (ns > 0) ash_metric_observe(&stall_metric, (double)ns * 1e-9);
    if (ns < STALL_NS || run->saves.has_stalled) return;
    run->saves.has_stalled = true;
    if (!run->is_leader) return;
    if (run->facts.memory.state <= (size_t)run->job->save.memory_bytes / 2)
        ash_run_warn(run, "a step waited %.1f s for a checkpoint: the disk is slower than saves come; save less often",
                     (double)ns * 1e-9);
    else
        ash_run_warn(run, "a step waited %.1f s for a checkpoint: raise save.memory (now %s), or save less often",
                     (double)ns * 1e-9, ash_live_bytes((double)run->job->save.memory_bytes, memory, sizeof(memory)));
}

/* The saver's last look at the state before an update. */
static void before_update(void *ctx)
{
    struct ash_run *run = ctx;

    count_stall(run, ash_saver_release(run->saves.saver));
}

/* The mesh of this epoch, as settings. */
static struct ash_job_mesh mesh_of(const struct ash_run *run)
{
    const struct ash_mesh *mesh = run->facts.mesh;

    return (struct ash_job_mesh){.dp = (int64_t)mesh->size[ASH_MESH_DP],
                                 .fsdp = (int64_t)mesh->size[ASH_MESH_FSDP],
                                 .tp = (int64_t)mesh->size[ASH_MESH_TP],
                                 .pp = (int64_t)mesh->size[ASH_MESH_PP],
                                 .cp = (int64_t)mesh->size[ASH_MESH_CP],
                                 .ep = (int64_t)mesh->size[ASH_MESH_EP],
                                 .zero = mesh->zero,
                                 .interleave = (int64_t)ash_trainer_stages(run->trainer)->chunk_count};
}

static void take_results(struct ash_run *run);

/* Fencing token of the epoch. */
static int raise_fence(struct ash_run *run, struct ash_group *group, struct ash_err *err)
{
    int rc = run->is_leader ? ash_fence_set(run->files.lock_path, run->files.lock_fd, &run->files.fence, err) : 0;

    if (run->is_leader && run->saves.places.run == 0)
        run->saves.places.run = run->files.fence.word; /* the first epoch's word names it */
    if (rc == 0) rc = ash_group_broadcast(group, &run->files.fence, sizeof(run->files.fence), 0, err);
    if (rc == 0) rc = ash_group_broadcast(group, &run->saves.places.run, sizeof(run->saves.places.run), 0, err);
    if (rc < 0) return rc;
    if (!run->is_leader && ash_fence_check(&run->files.fence, NULL) < 0)
        run->files.fence.word = 0; /* it is not seen from here */
    return 0;
}

int ash_run_open_saver(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    struct ash_job_mesh mesh = mesh_of(run);
    struct ash_saver_opts opts = {.stages = ash_trainer_stages(run->trainer),
                                  .mesh = &mesh,
                                  .group = group,
                                  .root = run->files.checkpoints,
                                  .memory_bytes = (size_t)run->job->save.memory_bytes,
                                  .fence = &run->files.fence};
    int32_t waits = run->saves.is_overdue;
    int rc = raise_fence(run, group, err);

    if (rc == 0) rc = ash_saver_open(&opts, &run->saves.saver, err);
    if (rc < 0) return rc;
    ash_trainer_on_update(run->trainer, before_update, run);
    rc = ash_group_all_reduce(group, &waits, &waits, 1, ASH_COLL_I32, ASH_COLL_MAX, err);
    run->saves.is_overdue = waits != 0;
    run->saves.wanted_place = (int32_t)run->saves.places.current;
    if (run->is_leader && run->saves.saved_step == UINT64_MAX)
        ash_checkpoint_newest(run->files.checkpoints, &run->saves.saved_step);
    return rc < 0 ? rc : ash_run_open_copies(run, group, err);
}

void ash_run_close_saver(struct ash_run *run)
{
    if (run->saves.saver == NULL) return;
    run->saves.is_overdue |= ash_saver_drop(run->saves.saver);
    if (run->is_leader) take_results(run);
    ash_trainer_on_update(run->trainer, NULL, NULL);
    ash_saver_close(run->saves.saver);
    run->saves.saver = NULL;
}

void ash_run_remove_old(struct ash_run *run)
{
    struct ash_err err = {0};

    if (run->is_leader && ash_fence_check(&run->files.fence, NULL) < 0) return;
    if (run->is_leader &&
        ash_checkpoint_prune(run->files.checkpoints, run->saves.places.keep[run->saves.places.current], &err) < 0)
        ash_run_warn(run, "old checkpoints were not removed: %s", err.text);
}

/* In the saver's thread: a checkpoint is durable, so it is copied, and older ones may go. */
static void follow_save(void *ctx, const struct ash_save_opts *save, int rc)
{
    const struct ash_run *run = ctx;
    size_t place = save->place; /* since it was begun, saves may have gone elsewhere */
    uint64_t pinned = UINT64_MAX;
    struct ash_err err = {0};

    ash_metric_add(rc < 0 ? &save_errors_metric : &saves_metric, 1);
    if (rc < 0) return;
    if (run->saves.copier != NULL) {
        ash_copier_add(run->saves.copier, place, save->number);
        pinned = ash_copier_pinned(run->saves.copier);
    }
    if (ash_checkpoint_prune_complete(run->saves.places.urls[place], run->saves.places.keep[place], pinned, &err) < 0)
        ash_log(ASH_LOG_WARN, "old checkpoints were not removed: %s", err.text);
}

/* The part of the state outside the trainer. group: of all ranks; NULL: the others are lost. */
static int add_kept_hash(struct ash_run *run, struct ash_group *group, struct ash_err *err)
{
    const struct ash_trainer_parts *parts = run->opts->parts;

    run->saves.state_hash = run->saves.weights_hash;
    if (parts == NULL || parts->hash == NULL) return 0;
    return parts->hash(parts->ctx, group, ash_trainer_state(run->trainer)->step, &run->saves.state_hash, err);
}

int ash_run_hash(struct ash_run *run, struct ash_err *err)
{
    int rc = ash_stages_hash(ash_trainer_stages(run->trainer), &run->saves.weights_hash, err);

    return rc < 0 ? rc : add_kept_hash(run, ash_trainer_group(run->trainer), err);
}

static json_t *kept_of(const struct ash_run *run)
{
    const struct ash_trainer_parts *parts = run->opts->parts;

    if (parts == NULL || parts->save == NULL) return NULL;
    return parts->save(parts->ctx, ash_trainer_state(run->trainer)->step);
}

/* Begin to save the present step. */
static int begin(struct ash_run *run, bool is_alone, struct ash_err *err)
{
    const struct ash_state *state = ash_trainer_state(run->trainer);
    struct ash_checkpoint_facts facts = {.job_yaml = run->files.job_yaml,
                                         .arithmetic = run->facts.arithmetic,
                                         .data_hash = run->facts.data_hash,
                                         .state_hash = run->saves.state_hash,
                                         .weights_hash = run->saves.weights_hash,
                                         .run = run->saves.places.run};
    char dir[PATH_MAX];
    struct ash_err refused = {0};
    struct ash_save_opts save = {.dir = dir,
                                 .is_alone = is_alone,
                                 .tokenizer_dir = run->facts.tokenizer_dir,
                                 .number = state->step,
                                 .place = run->saves.places.current,
                                 .flush_fd = -1,
                                 .refused = refused.text,
                                 .ended = follow_save,
                                 .ctx = run};
    int rc = ash_checkpoint_path(run->files.checkpoints, state->step, dir, sizeof(dir));

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", run->files.checkpoints);
    if (run->is_leader) {
        ash_run_make_room(run, ash_run_checkpoint_bytes(run));
        save.refused_rc = ash_runlog_write(run->files.log, &save.flush_fd, &refused);
        facts.kept = kept_of(run);
        save.state = ash_checkpoint_encode(state, &facts);
        if (save.state == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a checkpoint's manifest");
    }
    rc = ash_saver_begin(run->saves.saver, &save, err);
    if (rc == 0 && run->saves.helper != NULL) ash_helper_add(run->saves.helper, save.place, save.number);
    return rc;
}

int ash_run_begin_save(struct ash_run *run, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns();
    int rc;

    run->saves.is_overdue = false;
    rc = begin(run, false, err);
    if (ash_clock_ns() - start_ns >= STALL_NS) count_stall(run, ash_clock_ns() - start_ns);
    return rc;
}

/* First rank: a save has ended, well or not. */
static void count_result(struct ash_run *run, const struct ash_save_result *result)
{
    char path[PATH_MAX];

    if (result->rc < 0) return;
    run->saves.saved_step = result->number;
    if (ash_checkpoint_path(run->files.checkpoints, run->saves.saved_step, path, sizeof(path)) == 0)
        run->saves.checkpoint_bytes = ash_run_folder_bytes(path);
    ash_metric_observe(&save_time_metric, result->seconds);
    ash_log(ASH_LOG_DEBUG, "step %" PRIu64 " is durable: %.1f MB in %.3f s, %.0f MB of copies at most", result->number,
            (double)result->size_bytes * 1e-6, result->seconds, (double)ash_saver_peak_bytes(run->saves.saver) * 1e-6);
}

/* First rank: collect finished saves. Failures are warnings. */
static void take_results(struct ash_run *run)
{
    struct ash_save_result result;

    while (ash_saver_take_result(run->saves.saver, &result)) {
        count_result(run, &result);
        if (result.rc == 0) continue;
        if (run->saves.saved_step == UINT64_MAX)
            ash_run_warn(run, "step %" PRIu64 " was not saved, the next save will try again: %s", result.number,
                         result.err.text);
        else
            ash_run_warn(
                run, "step %" PRIu64 " was not saved, the next save will try again and step %" PRIu64 " is kept: %s",
                result.number, run->saves.saved_step, result.err.text);
        if (result.place == run->saves.places.current)
            run->saves.wanted_place = (int32_t)ash_places_next(&run->saves.places);
    }
}

/* With several folders, the first rank chooses and sends the one for the next saves. */
static int choose_place(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    int rc;

    if (ash_places_next(&run->saves.places) == run->saves.places.current) return 0;
    rc = ash_group_broadcast(group, &run->saves.wanted_place, sizeof(run->saves.wanted_place), 0, err);
    if (rc < 0 || (size_t)run->saves.wanted_place == run->saves.places.current) return rc;
    run->saves.places.current = (size_t)run->saves.wanted_place;
    run->saves.is_overdue = true;
    snprintf(run->files.checkpoints, sizeof(run->files.checkpoints), "%s", ash_places_root(&run->saves.places));
    if (run->is_leader) ash_run_warn(run, "checkpoints go to %s from now on", run->files.checkpoints);
    return 0;
}

int ash_run_watch_saves(struct ash_run *run, struct ash_err *err)
{
    int rc = ash_saver_poll(run->saves.saver, err);

    if (rc == 0 && run->is_leader) rc = ash_fence_check(&run->files.fence, err); /* nor is the log ours any more */
    if (rc == 0 && run->is_leader) take_results(run);
    return rc < 0 ? rc : choose_place(run, err);
}

static void say_waiting(void *ctx)
{
    struct ash_run *run = ctx;

    if (!run->is_leader || run->saves.said_waiting) return;
    run->saves.said_waiting = true;
    ash_run_warn(run, "waiting for a checkpoint to be written");
}

/* Wait for all that is under way. */
static int finish_saves(struct ash_run *run, struct ash_err *err)
{
    int rc;

    run->saves.said_waiting = false;
    rc = ash_saver_finish(run->saves.saver, say_waiting, run, err);
    return rc;
}

int ash_run_settle_saves(struct ash_run *run, struct ash_err *err)
{
    int rc = finish_saves(run, err);

    if (rc == 0 && run->is_leader) take_results(run);
    return rc;
}

/* Broadcast a result of the first rank. */
static int share_result(const struct ash_run *run, int result, struct ash_err *err)
{
    int32_t shared = result;
    int rc = ash_trainer_group(run->trainer) == NULL
                 ? 0
                 : ash_group_broadcast(ash_trainer_group(run->trainer), &shared, sizeof(shared), 0, err);

    if (rc < 0) return rc;
    if (shared < 0 && !run->is_leader) return ash_err_set(err, shared, "the first rank could not write");
    return shared;
}

/* Wait for the save that was just begun. Returns its error on all ranks, with the first one's sentence there. */
static int finish_this(struct ash_run *run, bool is_alone, struct ash_err *err)
{
    struct ash_save_result result = {0};
    int rc = finish_saves(run, err);

    if (rc < 0) return rc;
    if (run->is_leader && ash_saver_take_result(run->saves.saver, &result)) {
        if (err != NULL && result.rc < 0) *err = result.err;
        if (run->saves.is_saving_last) count_result(run, &result);
    }
    return is_alone ? result.rc : share_result(run, result.rc, err);
}

/* Is there anything to save? The first rank decides: it alone has the results of earlier saves. */
static int agree_to_save(const struct ash_run *run, bool *wanted_out, struct ash_err *err)
{
    int32_t wanted = run->saves.saved_step != ash_trainer_state(run->trainer)->step;
    int rc = ash_trainer_group(run->trainer) == NULL
                 ? 0
                 : ash_group_broadcast(ash_trainer_group(run->trainer), &wanted, sizeof(wanted), 0, err);

    *wanted_out = wanted != 0;
    return rc;
}

static int save_now(struct ash_run *run, bool is_alone, struct ash_err *err)
{
    int rc = begin(run, is_alone, err);

    run->saves.is_saving_last = true;
    if (rc == 0) rc = finish_this(run, is_alone, err);
    run->saves.is_saving_last = false;
    if (rc < 0)
        return ash_err_prefix(err, rc, "the last step (%" PRIu64 ") could not be saved",
                              ash_trainer_state(run->trainer)->step);
    return 0;
}

int ash_run_save_last(struct ash_run *run, struct ash_err *err)
{
    bool wanted = false;
    int rc = finish_saves(run, err);

    if (rc < 0) return rc;
    if (run->is_leader) take_results(run);
    rc = agree_to_save(run, &wanted, err);
    if (rc < 0 || !wanted) return rc;
    rc = ash_run_hash(run, err);
    if (rc < 0) return rc;
    ash_live_clear(&run->progress.live);
    if (run->is_leader) {
        ash_run_make_room(run, ash_run_checkpoint_bytes(run));
        ash_run_wait_for_room(run);
    }
    return save_now(run, false, err);
}

int ash_run_save_alone(struct ash_run *run, struct ash_err *err)
{
    const struct ash_state *state = ash_trainer_state(run->trainer);
    int rc;

    if (run->saves.saver == NULL) return 0;
    if (run->group == NULL) finish_saves(run, NULL); /* no rank was lost: pending saves are good */
    ash_saver_drop(run->saves.saver);
    take_results(run);
    if (run->saves.saved_step == state->step || !run->facts.whole || state->step == run->progress.start_step) return 0;
    run->saves.weights_hash = ash_state_hash(state);
    rc = add_kept_hash(run, NULL, err);
    if (rc < 0) return rc;
    ash_live_clear(&run->progress.live);
    return save_now(run, true, err);
}

int ash_run_export(struct ash_run *run, struct ash_err *err)
{
    struct ash_save_opts save = {
        .dir = run->files.model, .is_export = true, .tokenizer_dir = run->facts.tokenizer_dir, .flush_fd = -1};
    struct ash_err refused = {0};
    int rc;

    save.refused = refused.text;
    if (run->is_leader) {
        ash_run_make_room(run, fmax(ash_run_model_bytes(run), ash_run_checkpoint_bytes(run) / 2));
        save.refused_rc = ash_commit_prune(run->opts->dir, EXPORT_NAME ".", SIZE_MAX, &refused); /* of a killed one */
    }
    rc = ash_saver_begin(run->saves.saver, &save, err);
    if (rc == 0) rc = finish_this(run, false, err);
    return rc < 0 ? ash_err_prefix(err, rc, "the finished model could not be written") : 0;
}
