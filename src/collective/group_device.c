/* How ranks of one node whose values are in a device's memory make a call: from window to window where they can, else
 * through host memory. */
#include <errno.h>
#include <stddef.h>

#include "base/assert.h"
#include "base/log.h"
#include "collective/group_priv.h"

/* Could there be windows? Equal on all ranks, but for the abilities of their devices. */
static bool may_have_windows(const struct ash_group *group)
{
    const struct ash_device_memory *memory = group->root->staging.memory;

    return memory != NULL && group->net == NULL && group->size > 1 && !group->has_no_windows;
}

enum { ON_DEVICE = 1, HAS_WINDOWS = 2 }; /* what a rank says before a call */

/* Why values are staged, once. */
static void say(struct ash_group *group, const char *why)
{
    if (!atomic_exchange(&group->root->has_said, true))
        ash_log(ASH_LOG_WARN, "values between ranks go through host memory, which is slower: %s", why);
}

int ash_group_choose_device(struct ash_group *group, const struct ash_coll_call *call, bool is_device,
                            struct ash_err *err)
{
    const struct ash_device_memory *memory = group->root->staging.memory;
    struct ash_err why = {0};
    uint8_t own = 0, all = 0;
    int rc = 0;

    if (!may_have_windows(group)) return 1;
    if (memory->queues != NULL && !group->root->opts.staged) own |= HAS_WINDOWS;
    if (own != 0 && is_device && group->device == NULL)
        rc = ash_device_calls_open(group->local, memory, &group->device, &why);
    if (rc < 0) { /* then none uses windows */
        say(group, why.text);
        own = 0;
    }
    if (own != 0 && is_device) own |= ON_DEVICE;
    rc = ash_local_agree(group->local, *call, own, &all, err);
    if (rc < 0) return rc;
    if ((all & HAS_WINDOWS) == 0) group->has_no_windows = true;
    return all == (ON_DEVICE | HAS_WINDOWS) ? 0 : 1;
}

int ash_group_device_done(struct ash_group *group, int rc, const struct ash_err *err)
{
    if (rc != -ENOTSUP) return rc;
    group->has_no_windows = true;
    if (group->rank == 0) say(group, err != NULL ? err->text : "windows cannot be had");
    return 1;
}

void ash_group_device_fini(struct ash_group *group)
{
    ash_device_calls_close(group->device);
    group->device = NULL;
    group->has_no_windows = false; /* of that device */
}

/* ---- the memory -------------------------------------------------------------------------------------------------- */

void ash_group_set_memory(struct ash_group *group, const struct ash_device_memory *memory)
{
    struct ash_staging *staging = &group->root->staging;

    pthread_mutex_lock(&group->root->lock);
    for (struct ash_group *of = group->root->groups; memory == NULL && of != NULL; of = of->next)
        ash_group_device_fini(of);
    pthread_mutex_unlock(&group->root->lock);
    ash_staging_fini(staging);
    staging->memory = memory;
}

int ash_group_copy(const struct ash_group *group, void *dst, const void *src, size_t size_bytes, struct ash_err *err)
{
    ash_assert(group != NULL);
    return ash_staging_copy(&group->root->staging, dst, src, size_bytes, err);
}

bool ash_group_is_staged(const struct ash_group *group)
{
    return group != NULL && group->root->staging.memory != NULL;
}

bool ash_group_is_on_one_node(const struct ash_group *group)
{
    return group == NULL || group->nodes.nodes == 1;
}

bool ash_group_shares_memory(const struct ash_group *group)
{
    return ash_group_is_on_one_node(group) && !ash_group_is_staged(group);
}
