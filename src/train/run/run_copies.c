/* run: copies of checkpoints in further places, from the start of an epoch to the end of the run. */
#include "train/run/run_priv.h"

#include "base/math.h"
#include "storage/tier/tier.h"
#include "train/checkpoint.h"

/* Ranks after the first share its copies to buckets. */
static int open_helper(struct ash_run *run, const struct ash_group *group, struct ash_err *err)
{
    size_t count = group != NULL ? ash_min(ash_group_size(group), ASH_HELPERS_MAX) : 1;
    bool has_bucket = false;

    ash_helper_close(run->saves.helper); /* of the epoch before: its number may be another now */
    run->saves.helper = NULL;
    for (size_t i = 0; i < run->saves.places.count; i++)
        has_bucket |= ash_tier_is_url(run->saves.places.urls[i]);
    if (!has_bucket || group == NULL || run->is_leader || ash_group_rank(group) >= count) return 0;
    return ash_helper_open(&run->saves.places, ash_group_rank(group), count, &run->saves.helper, err);
}

/* The newest checkpoint may be in its folder alone: the run was killed, or a place was away. */
static void catch_up(struct ash_run *run)
{
    uint64_t newest;

    if (run->saves.saved_step == UINT64_MAX || run->progress.start_step == 0) return;
    if (ash_checkpoint_newest(run->files.checkpoints, &newest) < 0 || newest != run->saves.saved_step) return;
    ash_copier_add(run->saves.copier, run->saves.places.current, newest);
}

int ash_run_open_copies(struct ash_run *run, const struct ash_group *group, struct ash_err *err)
{
    int rc = 0;

    if (run->is_leader && run->saves.places.count > 1 && run->saves.copier == NULL)
        rc = ash_copier_open(&run->saves.places, &run->saves.copier, err);
    if (rc < 0) return rc;
    if (run->saves.copier != NULL) ash_copier_set_fence(run->saves.copier, &run->files.fence);
    if (run->saves.copier != NULL) catch_up(run);
    return open_helper(run, group, err);
}

/* A second Ctrl-C ends the program as ever. */
static bool say_copying(void *ctx)
{
    struct ash_run *run = ctx;

    if (!run->saves.said_waiting) {
        const char *target = ash_copier_target(run->saves.copier);

        ash_run_warn(run, "waiting for the copy of the last checkpoint to %s", target != NULL ? target : "its places");
    }
    run->saves.said_waiting = true;
    return true;
}

void ash_run_finish_copies(struct ash_run *run)
{
    if (run->saves.copier == NULL) return;
    run->saves.said_waiting = false;
    ash_copier_finish(run->saves.copier, say_copying, run, NULL); /* failures were reported */
    for (size_t i = 0; i < run->saves.places.count; i++)
        run->saves.is_uncopied |=
            ash_tier_is_url(run->saves.places.urls[i]) && ash_copier_has_failed(run->saves.copier, i);
}
