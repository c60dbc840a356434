/* run: free space on the disk. If it is full, older checkpoints are removed before the newest, and the last save waits
 * for space, because its state is nowhere else. */
#include "train/run/run_priv.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/clock.h"
#include "train/checkpoint.h"

#define LOOK_NS 200000000 /* between two looks at a full disk */

/* As the last one was. Before the first: float32 weights and two moments; the rest is small unless the model is. */
double ash_run_checkpoint_bytes(const struct ash_run *run)
{
    if (run->saves.checkpoint_bytes > 0) return run->saves.checkpoint_bytes;
    return 3.0 * sizeof(float) * (double)run->facts.weights;
}

/* Bytes of a folder's files on the disk; 0 if it cannot be read. */
double ash_run_folder_bytes(const char *dir)
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

double ash_run_model_bytes(const struct ash_run *run)
{
    return sizeof(float) * (double)run->facts.weights;
}

/* Bytes that this user may still write; 1e30 if unknown. */
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
    double left = (double)train->steps - (double)run->progress.start_step;
    double saves = train->save_every > 0 ? ceil(left / (double)train->save_every) : 1.0;

    if (train->keep > 0) saves = fmin(saves, (double)train->keep + 1.0 - (double)present);
    return fmax(saves, 1.0);
}

int ash_run_check_disk(struct ash_run *run, struct ash_err *err)
{
    size_t present = ash_checkpoint_count(run->files.checkpoints);
    double one = ash_run_checkpoint_bytes(run), present_free = free_bytes(run), count = coming_count(run, present);
    double needed = count * one + ash_run_model_bytes(run);
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
void ash_run_make_room(struct ash_run *run, double needed)
{
    struct ash_err err = {0};

    if (run->job->train.keep == 0 || free_bytes(run) >= needed) return;
    if (ash_checkpoint_count(run->files.checkpoints) < 2) return;
    if (!run->files.disk_full) ash_run_warn(run, "the disk is full: only the newest checkpoint is kept from now on");
    run->files.disk_full = true;
    if (ash_checkpoint_prune_complete(run->files.checkpoints, 1, UINT64_MAX, &err) < 0)
        ash_run_warn(run, "%s", err.text);
}

/* Wait for free space for the last checkpoint. Ends early on a stop request. */
void ash_run_wait_for_room(struct ash_run *run)
{
    double needed = ash_run_checkpoint_bytes(run);
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
