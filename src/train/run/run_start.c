/* run: the beginning. A folder belongs to one run and one process; a run resumes only as the run that it was. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "train/checkpoint.h"
#include "train/save/restore.h"
#include "train/run/control.h"

static int make_paths(struct ash_run *run, struct ash_err *err)
{
    const char *dir = run->opts->dir;
    int rc;

    if (ash_path_join(run->files.checkpoints, sizeof(run->files.checkpoints), dir, "checkpoints") < 0 ||
        ash_path_join(run->files.model, sizeof(run->files.model), dir, "model") < 0 ||
        ash_path_join(run->files.report, sizeof(run->files.report), dir, "report.html") < 0 ||
        ash_path_join(run->files.lock_path, sizeof(run->files.lock_path), dir, ".lock") < 0 ||
        ash_path_join(run->files.stop_path, sizeof(run->files.stop_path), dir, ".stopped") < 0 ||
        ash_path_join(run->files.ledger_path, sizeof(run->files.ledger_path), dir, "ledger.json") < 0 ||
        ash_path_join(run->files.log_path, sizeof(run->files.log_path), dir, "log.jsonl") < 0)
        return ash_err_set(err, -ENAMETOOLONG, "--out: the path is too long");
    rc = ash_places_init(&run->saves.places, run->job, run->files.checkpoints, err);
    if (rc < 0) return rc;
    snprintf(run->files.checkpoints, sizeof(run->files.checkpoints), "%s", ash_places_root(&run->saves.places));
    return 0;
}

/* Is the file of that name the one that this process has locked? */
static bool is_own_lock(const struct ash_run *run)
{
    struct stat locked, named;

    return fstat(run->files.lock_fd, &locked) == 0 && stat(run->files.lock_path, &named) == 0 &&
           locked.st_ino == named.st_ino;
}

/* Open and lock the file of that name. Returns 1 where another process has removed it in between: try again. */
static int try_lock(struct ash_run *run, struct ash_err *err)
{
    run->files.lock_fd = open(run->files.lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (run->files.lock_fd < 0) return ash_err_set(err, -errno, "%s: %s", run->files.lock_path, strerror(errno));
    if (flock(run->files.lock_fd, LOCK_EX | LOCK_NB) < 0) {
        int cause = errno;

        close(run->files.lock_fd);
        run->files.lock_fd = -1;
        if (cause == EWOULDBLOCK)
            return ash_err_set(err, -EBUSY, "%s: another process is training into this folder", run->opts->dir);
        return ash_err_set(err, -cause, "%s: %s", run->files.lock_path, strerror(cause));
    }
    if (is_own_lock(run)) return 0;
    close(run->files.lock_fd);
    run->files.lock_fd = -1;
    return 1;
}

/* Check the save locations first: if one is wrong, nothing is begun. Make and lock the folder, and remove partial files
 * of an earlier, killed process. */
static int claim_folder(struct ash_run *run, struct ash_err *err)
{
    bool is_new = !run->opts->resume && run->trainer == NULL;
    int rc = ash_places_check(&run->saves.places, err);

    if (rc == 0 && is_new) rc = ash_places_check_empty(&run->saves.places, err);
    if (rc < 0) return rc;
    if (!is_new) ash_run_read_run(run);
    run->files.made_dir = !ash_path_exists(run->opts->dir);
    rc = ash_dir_make(run->opts->dir, err);
    if (rc < 0) return rc;
    do
        rc = try_lock(run, err);
    while (rc > 0);
    return rc < 0 ? rc : ash_file_sweep(run->opts->dir, err);
}

void ash_run_mark_stopped(const struct ash_run *run)
{
    int fd = run->group != NULL ? open(run->files.stop_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;

    if (fd >= 0) close(fd); /* if it cannot be written the others continue: that costs time only */
}

int ash_run_check_stopped(const struct ash_run *run, struct ash_err *err)
{
    int32_t is_stopped = ash_group_rank(run->group) == 0 && ash_path_exists(run->files.stop_path);
    int rc = ash_group_broadcast(run->group, &is_stopped, sizeof(is_stopped), 0, err);

    if (rc < 0 || is_stopped == 0) return rc;
    return ash_err_set(err, -ECANCELED, "another rank was told to stop and has ended the run");
}

void ash_run_release(struct ash_run *run)
{
    if (run->files.lock_fd < 0) return;
    /* before it is unlocked: a waiter checks that the file is still there */
    if (is_own_lock(run)) unlink(run->files.lock_path);
    close(run->files.lock_fd);
    run->files.lock_fd = -1;
    if (run->files.made_dir && !run->files.has_log) unlink(run->files.stop_path);
    if (run->files.made_dir && !run->files.has_log)
        rmdir(run->opts->dir); /* fails where something is in it, as it should */
}

/* Is this still the run that the checkpoint is from? */
static int check_same_run(const struct ash_run *run, const struct ash_checkpoint *checkpoint, struct ash_err *err)
{
    struct ash_job before;
    struct ash_opts *opts = NULL;
    int rc;

    if (run->opts->allow_change) return 0;
    rc = ash_job_parse(checkpoint->job_yaml, strlen(checkpoint->job_yaml), "the checkpoint's job", &before, &opts, err);
    if (rc == 0) rc = ash_job_compare(&before, run->job, err);
    ash_opts_close(opts);
    if (rc < 0) return ash_err_prefix(err, -EBADE, "cannot resume as the same run (--allow-change resumes anyway)");
    return 0;
}

static int check_same_data(const struct ash_run *run, const struct ash_checkpoint *checkpoint, struct ash_err *err)
{
    if (run->opts->allow_change || checkpoint->data_hash == run->facts.data_hash) return 0;
    return ash_err_set(
        err, -EBADE,
        "cannot resume as the same run (--allow-change resumes anyway): data.train (%s) holds other data than "
        "when the checkpoint was made",
        run->job->data.train);
}

/* Machines that multiply bf16 in another arithmetic continue a float32 run to the bit, but not a bf16 one; nor do
 * programs that sum over tokens in another order. An arithmetic is "backend", or "backend/order". */
static int check_same_arithmetic(const struct ash_run *run, const struct ash_checkpoint *checkpoint,
                                 struct ash_err *err)
{
    const char *was = checkpoint->arithmetic, *is = run->facts.arithmetic;
    int was_name = (int)strcspn(was, "/"), is_name = (int)strcspn(is, "/");

    if (run->opts->allow_change || strcmp(was, is) == 0) return 0;
    if (was_name == is_name && strncmp(was, is, (size_t)was_name) == 0)
        return ash_err_set(
            err, -EBADE,
            "cannot resume as the same run (--allow-change resumes anyway): another version of ashlar "
            "wrote the checkpoint, whose bf16 gradients add up tokens in another order ('%s', here '%s')",
            was, is);
    if (strncmp(was, "cuda-", 5) == 0)
        return ash_err_set(err, -EBADE,
                           "cannot resume as the same run (--allow-change resumes anyway): its bf16 products are those "
                           "of a GPU of compute capability %.*s, and %s here follows '%s'; resume on such a GPU",
                           was_name - 5, was + 5, run->facts.backend, is);
    return ash_err_set(err, -EBADE,
                       "cannot resume as the same run (--allow-change resumes anyway): its bf16 products follow "
                       "'%s', and %s here follows '%s'; runtime.backend=%.*s gives the same bits anywhere",
                       was, run->facts.backend, is, was_name, was);
}

/* was: the arithmetic of the checkpoint to resume from, which a GPU chosen by default must not change; or NULL. */
static int open_trainer(struct ash_run *run, const char *weights_dir, const char *was, struct ash_err *err)
{
    struct ash_trainer_parts parts = run->opts->parts != NULL ? *run->opts->parts : (struct ash_trainer_parts){0};
    char reason[ASH_BACKEND_WHY_BYTES];
    int rc;

    if (was != NULL && run->job->train.precision != ASH_JOB_FP32 && !run->opts->allow_change &&
        !ash_backend_gpu_follows(was)) {
        snprintf(reason, sizeof(reason), "the bf16 products of this run follow '%.*s'", (int)strcspn(was, "/"), was);
        parts.cpu_reason = reason;
    }
    rc = ash_trainer_open(run->job, weights_dir, run->group, &parts, &run->trainer, err);
    if (rc == 0) run->facts = ash_trainer_get_facts(run->trainer);
    return rc;
}

/* The run that a checkpoint is of: this one? Its values follow. */
static int open_as(struct ash_run *run, const struct ash_checkpoint *checkpoint, struct ash_err *err)
{
    int rc = check_same_run(run, checkpoint, err);

    if (rc < 0) return rc;
    if (run->trainer == NULL) rc = open_trainer(run, checkpoint->dir, checkpoint->arithmetic, err);
    if (rc == -EBADE) return rc;
    if (rc < 0) return ash_err_prefix(err, rc, "%s", checkpoint->dir);
    rc = check_same_data(run, checkpoint, err);
    return rc < 0 ? rc : check_same_arithmetic(run, checkpoint, err);
}

/* A checkpoint of this very run: nothing has to be compared. */
static int reopen(struct ash_run *run, const struct ash_checkpoint *checkpoint, struct ash_err *err)
{
    (void)checkpoint;
    return ash_trainer_restart(run->trainer, run->group, true, err);
}

/* Remove skipped folders, which are in the way of the next saves. */
static void clear_newer(struct ash_run *run, uint64_t step)
{
    struct ash_err err = {0};

    if (ash_checkpoint_clear_newer(run->files.checkpoints, step, &err) < 0) ash_run_warn(run, "%s", err.text);
}

/* Makes ready for the values of a checkpoint. */
typedef int (*open_fn)(struct ash_run *run, const struct ash_checkpoint *checkpoint, struct ash_err *err);

static int decode(const struct ash_restored *restored, struct ash_checkpoint *checkpoint, struct ash_err *err)
{
    int rc;

    snprintf(checkpoint->dir, sizeof(checkpoint->dir), "%s", restored->dir);
    rc = ash_checkpoint_decode(restored->manifest, checkpoint, err);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", restored->dir) : 0;
}

/* One checkpoint. Returns -EBADMSG on all ranks where its values are damaged. */
static int take_one(struct ash_run *run, struct ash_restore *restore, const struct ash_restored *restored, open_fn open,
                    struct ash_err *err)
{
    struct ash_checkpoint checkpoint = {0};
    bool is_spare;
    int rc = decode(restored, &checkpoint, err);

    if (rc == -EBADMSG) rc = -EUCLEAN; /* its checksum is right: not damage, but not ours */
    if (rc == 0 && open != NULL) rc = open(run, &checkpoint, err);
    is_spare = rc == 0 && ash_trainer_is_spare(run->trainer);
    if (rc == 0)
        rc = ash_restore_read(restore, restored, is_spare ? NULL : ash_trainer_stages(run->trainer),
                              ash_trainer_outline(run->trainer), err);
    if (rc == 0 && !is_spare) rc = ash_checkpoint_load(&checkpoint, ash_trainer_stages(run->trainer), err);
    if (rc == 0 && run->opts->parts != NULL && run->opts->parts->load != NULL && checkpoint.kept != NULL)
        rc = run->opts->parts->load(run->opts->parts->ctx, checkpoint.kept, err);
    if (rc == 0) {
        if (checkpoint.run != 0) run->saves.places.run = checkpoint.run;
        run->saves.saved_step = checkpoint.step;
        run->saves.state_hash = checkpoint.state_hash;
        run->saves.weights_hash = checkpoint.weights_hash;
    }
    ash_checkpoint_fini(&checkpoint);
    return rc;
}

/* All ranks: the state of the newest checkpoint that verifies. Returns as ash_restore_next; -ENOENT after *is_found_out
 * was set: something that the checkpoint's job names is not there. */
static int take_newest(struct ash_run *run, open_fn open, bool *is_found_out, struct ash_err *err)
{
    const char *others[ASH_PLACES_MAX];
    struct ash_restore_opts opts = {.root = run->files.checkpoints,
                                    .others = others,
                                    .s3 = &run->saves.places.settings.s3,
                                    .run = run->saves.places.run,
                                    .group = run->group};
    struct ash_restore *restore = NULL;
    char *skipped = NULL;
    int rc;

    opts.other_count = ash_places_others(&run->saves.places, others);
    rc = ash_restore_open(&opts, &restore, err);
    if (rc < 0) return rc;
    do {
        struct ash_restored restored = {0};

        rc = ash_restore_next(restore, &restored, err);
        if (rc < 0) break;
        *is_found_out = true;
        rc = take_one(run, restore, &restored, open, err);
        if (rc == -EBADMSG) open = NULL; /* all is ready for the one before */
        ash_restored_fini(&restored);
    } while (rc == -EBADMSG);
    if (rc == 0) skipped = ash_restore_take_skipped(restore);
    if (skipped != NULL) ash_log(ASH_LOG_WARN, "going back to step %" PRIu64 ": %s", run->saves.saved_step, skipped);
    free(skipped);
    ash_restore_close(restore);
    return rc;
}

static int resume(struct ash_run *run, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns();
    bool is_found = false;
    int rc = take_newest(run, open_as, &is_found, err);

    if (rc == -ENODATA) return open_trainer(run, NULL, NULL, err);
    if (rc == -ENOENT && is_found)
        return ash_err_prefix(
            err, rc,
            "the run's paths are relative to the folder it was started in: resume it there, or give new paths");
    if (rc == -ENOENT) return ash_err_prefix(err, rc, "%s: nothing there can be resumed", run->files.checkpoints);
    if (rc == 0)
        ash_log(ASH_LOG_DEBUG, "step %" PRIu64 " was loaded in %.3f s", run->saves.saved_step,
                (double)(ash_clock_ns() - start_ns) * 1e-9);
    return rc;
}

static int start_or_resume(struct ash_run *run, struct ash_err *err)
{
    if (run->opts->resume) return resume(run, err);
    if (ash_checkpoint_count(run->files.checkpoints) == 0) return open_trainer(run, NULL, NULL, err);
    return ash_err_set(err, -EEXIST,
                       "%s already holds a run: add --resume to continue it, or choose another folder with --out",
                       run->opts->dir);
}

/* Take up the numbers that an earlier part logged. */
int ash_run_open_log(struct ash_run *run, struct ash_err *err)
{
    int rc;

    ash_runlog_close(run->files.log);
    run->files.log = NULL;
    rc = ash_runlog_open(run->files.log_path, ash_trainer_state(run->trainer)->step, &run->files.log, err);

    if (rc < 0) return rc;
    const struct ash_log_record *records = ash_runlog_records(run->files.log);
    size_t count = ash_runlog_count(run->files.log);
    if (count > 0) run->progress.earlier_s = records[count - 1].time_s;
    for (size_t i = 0; i < count; i++) {
        if (!isnan(records[i].valid_loss)) run->progress.valid_loss = (double)records[i].valid_loss;
        if (!isnan(records[i].pairs.accuracy)) run->progress.pairs = records[i].pairs;
    }
    return 0;
}

/* Files that the first rank writes before the first step. */
static int open_records(struct ash_run *run, struct ash_err *err)
{
    char path[PATH_MAX];
    uint64_t logged = ash_run_newest_step(run->opts->dir, NULL, NULL), step = ash_trainer_state(run->trainer)->step;
    int rc = ash_run_check_disk(run, err);

    if (rc < 0) return rc;
    rc = ash_run_open_log(run, err);
    if (rc == 0) rc = ash_run_open_events(run, err);
    if (rc < 0) return rc;
    run->files.has_log = true;
    run->progress.lost_steps = logged > step ? logged - step : 0;
    if (ash_path_join(path, sizeof(path), run->opts->dir, "job.yaml") < 0)
        return ash_err_set(err, -ENAMETOOLONG, "--out: the path is too long");
    return ash_file_replace(path, run->files.job_yaml, strlen(run->files.job_yaml), err);
}

/* The first rank is lost, or has been silent for so long that the job has gone on without it. In that case its lock is
 * still held, on an unlinked file. */
int ash_run_take_over(struct ash_run *run, struct ash_err *err)
{
    int rc = claim_folder(run, err);

    if (rc == -EBUSY) {
        unlink(run->files.lock_path);
        rc = claim_folder(run, err);
    }
    if (rc < 0) return rc;
    run->files.made_dir = false;
    rc = ash_run_open_log(run, err);
    run->files.has_log = rc == 0;
    return rc;
}

int ash_run_reload(struct ash_run *run, struct ash_err *err)
{
    bool is_found = false;
    int rc = take_newest(run, reopen, &is_found, err);

    if (rc == -ENODATA) return ash_trainer_restart(run->trainer, run->group, false, err);
    if (rc < 0) return rc;
    if (ash_group_rank(run->group) == 0) clear_newer(run, run->saves.saved_step);
    return 0;
}

int ash_run_start(struct ash_run *run, struct ash_err *err)
{
    int rc = make_paths(run, err);

    if (rc < 0) return rc;
    if (run->is_leader) rc = claim_folder(run, err);
    if (rc < 0) return rc;
    if (run->is_leader) unlink(run->files.stop_path);
    rc = ash_group_barrier(run->group, err);
    if (rc < 0) return rc;
    rc = ash_job_print(run->job, &run->files.job_yaml, err);
    if (rc < 0) return rc;
    rc = start_or_resume(run, err);
    if (rc < 0) return rc;
    if (!ash_trainer_is_spare(run->trainer)) run->progress.start_step = ash_trainer_state(run->trainer)->step;
    rc = run->is_leader ? open_records(run, err) : 0;
    if (rc < 0) return rc;
    if (run->is_leader) clear_newer(run, run->progress.start_step);
    return ash_trainer_is_spare(run->trainer) ? 0 : ash_run_open_saver(run, err);
}

int ash_run_start_joining(struct ash_run *run, struct ash_err *err)
{
    int rc = make_paths(run, err);

    if (rc < 0) return rc;
    rc = ash_job_print(run->job, &run->files.job_yaml, err);
    if (rc < 0) return rc;
    rc = ash_trainer_open_joining(run->job, run->opts->here, run->opts->parts, &run->trainer, err);
    if (rc < 0) return rc;
    rc = run->opts->join(run->opts->join_ctx, run->opts->group, err);
    run->group = *run->opts->group;
    return rc;
}
