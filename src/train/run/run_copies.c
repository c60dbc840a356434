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

    ash_helper_close(run->helper); /* of the epoch before: its number may be another now */
    run->helper = NULL;
    for (size_t i = 0; i < run->places.count; i++)
        has_bucket |= ash_tier_is_url(run->places.urls[i]);
    if (!has_bucket || group == NULL || run->is_leader || ash_group_rank(group) >= count) return 0;
    return ash_helper_open(&run->places, ash_group_rank(group), count, &run->helper, err);
}

/* The newest checkpoint may be in its folder alone: the run was killed, or a place was away. */
static void catch_up(struct ash_run *run)
{
    uint64_t newest;

    if (run->saved_step == UINT64_MAX || run->start_step == 0) return;
    if (ash_checkpoint_newest(run->checkpoints, &newest) < 0 || newest != run->saved_step) return;
    ash_copier_add(run->copier, run->places.current, newest);
}

int ash_run_open_copies(struct ash_run *run, const struct ash_group *group, struct ash_err *err)
{
    int rc = 0;

    if (run->is_leader && run->places.count > 1 && run->copier == NULL)
        rc = ash_copier_open(&run->places, &run->copier, err);
    if (rc < 0) return rc;
    if (run->copier != NULL) ash_copier_set_fence(run->copier, &run->fence);
    if (run->copier != NULL) catch_up(run);
    return open_helper(run, group, err);
}

/* A second Ctrl-C ends the program as ever. */
static bool say_copying(void *ctx)
{
    struct ash_run *run = ctx;

    if (!run->said_waiting) {
        const char *target = ash_copier_target(run->copier);

        ash_run_warn(run, "waiting for the copy of the last checkpoint to %s", target != NULL ? target : "its places");
    }
    run->said_waiting = true;
    return true;
}

void ash_run_finish_copies(struct ash_run *run)
{
    if (run->copier == NULL) return;
    run->said_waiting = false;
    ash_copier_finish(run->copier, say_copying, run, NULL); /* failures were told */
    for (size_t i = 0; i < run->places.count; i++)
        run->is_uncopied |= ash_tier_is_url(run->places.urls[i]) && ash_copier_has_failed(run->copier, i);
}
