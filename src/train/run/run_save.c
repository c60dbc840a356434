/* run: saves. A save that fails costs nothing but itself; a full disk costs older checkpoints before it costs the
 * newest, and the last save waits for room, because what it holds is nowhere else. */
#include "train/run/run_priv.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "train/checkpoint.h"

#define LOOK_NS 200000000 /* between two looks at a full disk */

static const double save_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};

ASH_COUNTER(saves_metric, "ashlar_train_saves_total", "Checkpoints written.");
ASH_COUNTER(save_errors_metric, "ashlar_train_save_errors_total", "Checkpoints that could not be written.");
ASH_HISTOGRAM(save_time_metric, "ashlar_train_save_seconds", "Time of one checkpoint.", save_bounds);

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* As the last one was. Before the first: float32 weights and two moments; the rest is small unless the model is. */
static double checkpoint_bytes(const struct ash_run *run)
{
    if (run->checkpoint_bytes > 0) return run->checkpoint_bytes;
    return 3.0 * sizeof(float) * (double)run->facts.weights;
}

/* What the files of a folder take on the disk; 0 where it cannot be read. */
static double disk_bytes(const char *dir)
{
    DIR *folder = opendir(dir);
    double sum = 0;

    if (folder == NULL) return 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct stat file;

        if (fstatat(dirfd(folder), entry->d_name, &file, 0) == 0 && S_ISREG(file.st_mode))
            sum += 512.0 * (double)file.st_blocks;
    }
    closedir(folder);
    return sum;
}

static double model_bytes(const struct ash_run *run)
{
    return sizeof(float) * (double)run->facts.weights;
}

/* Bytes that this user may still write; 1e30 where the file system does not say. */
static double free_bytes(const struct ash_run *run)
{
    struct statvfs disk;

    if (statvfs(run->opts->dir, &disk) < 0 || disk.f_blocks == 0) return 1e30;
    return (double)disk.f_bavail * (double)disk.f_frsize;
}

/* Checkpoints that will be on the disk at once, beyond those that are: a new one is written before an old one goes. */
static double coming_count(const struct ash_run *run, size_t present)
{
    const struct ash_job_train *train = &run->job->train;
    double left = (double)train->steps - (double)run->start_step;
    double saves = train->save_every > 0 ? ceil(left / (double)train->save_every) : 1.0;

    if (train->keep > 0) saves = fmin(saves, (double)train->keep + 1.0 - (double)present);
    return fmax(saves, 1.0);
}

int ash_run_check_disk(struct ash_run *run, struct ash_err *err)
{
    size_t present = ash_checkpoint_count(run->checkpoints);
    double one = checkpoint_bytes(run), present_free = free_bytes(run), count = coming_count(run, present);
    double needed = count * one + model_bytes(run);
    bool can_drop = run->job->train.keep > 0 && present > 1;
    char need[32], each[32], have[32];

    ash_live_bytes(needed, need, sizeof(need));
    ash_live_bytes(one, each, sizeof(each));
    ash_live_bytes(present_free, have, sizeof(have));
    if (present_free < one && !can_drop)
        return ash_err_set(err, -ENOSPC, "%s has %s free and a checkpoint takes %s: nothing could be saved",
                           run->opts->dir, have, each);
    if (present_free < needed)
        ash_run_warn(run,
                     "%s has %s free, and this run writes up to %s (%.0f checkpoint%s of %s at once, and the model): "
                     "make room, or set train.keep or train.save_every",
                     run->opts->dir, have, need, count, count == 1.0 ? "" : "s", each);
    return 0;
}

/* Where the disk has less than needed, the newest checkpoint alone is kept. train.keep=0 keeps all. */
static void make_room(struct ash_run *run, double needed)
{
    struct ash_err err = {0};

    if (run->job->train.keep == 0 || free_bytes(run) >= needed) return;
    if (ash_checkpoint_count(run->checkpoints) < 2) return;
    if (!run->disk_full) ash_run_warn(run, "the disk is full: only the newest checkpoint is kept from now on");
    run->disk_full = true;
    if (ash_checkpoint_prune(run->checkpoints, 1, &err) < 0) ash_run_warn(run, "%s", err.text);
}

/* Wait for room for the last checkpoint. Ends early when somebody asks the run to stop in the meantime. */
static void wait_for_room(struct ash_run *run)
{
    double needed = checkpoint_bytes(run);
    uint64_t end_ns = ash_clock_ns() + (uint64_t)run->job->train.save_wait * 1000000000u;
    bool was_stopped = run->opts->stop != NULL && run->opts->stop();
    char need[32];

    if (run->job->train.save_wait == 0 || free_bytes(run) >= needed) return;
    ash_run_warn(run,
                 "the disk is full: the last step waits for %s of room in %s, %" PRId64 " s at most (train.save_wait)",
                 ash_live_bytes(needed, need, sizeof(need)), run->opts->dir, run->job->train.save_wait);
    while (ash_clock_ns() < end_ns && free_bytes(run) < needed) {
        if (!was_stopped && run->opts->stop != NULL && run->opts->stop()) return;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

bool ash_run_takes_part_in_saves(const struct ash_run *run)
{
    return run->is_leader || !run->facts.whole;
}

void ash_run_remove_old(struct ash_run *run)
{
    struct ash_err err = {0};

    if (run->is_leader && ash_checkpoint_prune(run->checkpoints, (size_t)run->job->train.keep, &err) < 0)
        ash_run_warn(run, "old checkpoints were not removed: %s", err.text);
}

static int save(struct ash_run *run, struct ash_err *err)
{
    struct ash_checkpoint_save_opts opts = {.root = run->checkpoints,
                                            .tokenizer_dir = run->facts.tokenizer_dir,
                                            .job_yaml = run->job_yaml,
                                            .arithmetic = run->facts.arithmetic,
                                            .data_hash = run->facts.data_hash,
                                            .state_hash = run->state_hash};
    uint64_t start_ns = ash_clock_ns();
    struct ash_err unused = {0};
    char path[PATH_MAX];
    int logged = 0, rc;

    if (run->is_leader) {
        make_room(run, checkpoint_bytes(run));
        logged = ash_runlog_sync(run->log, err);
    }
    rc = ash_checkpoint_save(ash_trainer_stages(run->trainer), run->is_leader && logged == 0, &opts,
                             logged == 0 ? err : &unused);
    if (logged < 0) rc = logged; /* the other ranks were waited for all the same */
    if (rc < 0) {
        ash_metric_add(&save_errors_metric, 1);
        return rc;
    }
    run->saved_step = ash_trainer_state(run->trainer)->step;
    if (run->is_leader && ash_checkpoint_path(run->checkpoints, run->saved_step, path, sizeof(path)) == 0)
        run->checkpoint_bytes = disk_bytes(path);
    ash_metric_add(&saves_metric, 1);
    ash_metric_observe(&save_time_metric, (double)(ash_clock_ns() - start_ns) * 1e-9);
    ash_run_remove_old(run);
    return 0;
}

void ash_run_save_or_warn(struct ash_run *run)
{
    uint64_t step = ash_trainer_state(run->trainer)->step;
    struct ash_err err = {0};

    if (save(run, &err) == 0 || !run->is_leader) return;
    if (run->saved_step == UINT64_MAX)
        ash_run_warn(run, "step %" PRIu64 " was not saved, the next save will try again: %s", step, err.text);
    else
        ash_run_warn(run,
                     "step %" PRIu64 " was not saved, the next save will try again and step %" PRIu64 " is kept: %s",
                     step, run->saved_step, err.text);
}

/* Is there anything to save? Where all have a part in it, the first rank decides: it alone knows how earlier saves
 * went. */
static int agree_to_save(const struct ash_run *run, bool *wanted_out, struct ash_err *err)
{
    int32_t wanted = run->saved_step != ash_trainer_state(run->trainer)->step;
    int rc = run->facts.whole ? 0 : ash_group_broadcast(ash_trainer_group(run->trainer), &wanted, sizeof(wanted), 0, err);

    *wanted_out = wanted != 0;
    return rc;
}

int ash_run_save_last(struct ash_run *run, bool waits, struct ash_err *err)
{
    bool wanted = false;
    int rc;

    if (!ash_run_takes_part_in_saves(run)) return 0;
    rc = agree_to_save(run, &wanted, err);
    if (rc < 0 || !wanted) return rc;
    rc = ash_stages_hash(ash_trainer_stages(run->trainer), &run->state_hash, err);
    if (rc < 0) return rc;
    ash_live_clear(&run->live);
    if (waits && run->is_leader) {
        make_room(run, checkpoint_bytes(run));
        wait_for_room(run);
    }
    rc = save(run, err);
    if (rc < 0)
        return ash_err_prefix(err, rc, "the last step (%" PRIu64 ") could not be saved",
                              ash_trainer_state(run->trainer)->step);
    return 0;
}

int ash_run_export(struct ash_run *run, struct ash_err *err)
{
    int rc;

    if (!ash_run_takes_part_in_saves(run)) return 0;
    if (run->is_leader) make_room(run, fmax(model_bytes(run), checkpoint_bytes(run) / 2));
    rc = ash_checkpoint_export(ash_trainer_stages(run->trainer), run->is_leader, run->facts.tokenizer_dir,
                               run->opts->dir, err);
    return rc < 0 ? ash_err_prefix(err, rc, "the finished model could not be written") : 0;
}
