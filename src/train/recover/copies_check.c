/* copies: compare their bits with the owners'. Memory corruption may have changed one. */
#include "train/recover/copies.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"

/* A hash of each patch, in order. */
static int hash_patches(const struct ash_exec *exec, const struct ash_patches *patches, uint64_t *hashes,
                        struct ash_err *err)
{
    struct ash_buffer room = {0};
    const void *values = patches;

    for (size_t i = 0; values != NULL && i < patches->count; i++) {
        const struct ash_patch *patch = &patches->items[i];
        size_t bytes = (size_t)patch->range.count * sizeof(float);

        hashes[i] = 0;
        for (size_t kind = 0; kind < ASH_PATCH_KINDS && patch->values[kind] != NULL; kind++) {
            values = ash_patches_read(exec, patch->values[kind], bytes, &room, err);
            if (values == NULL) break;
            hashes[i] = ash_hash_bytes(values, bytes, hashes[i]);
        }
    }
    ash_buffer_fini(&room);
    return values != NULL ? 0 : -EIO;
}

/* Compare one copy with its owner's hashes [copy->patches.count]. */
static int compare(const struct ash_copies *copies, const struct ash_held_copy *copy, const uint64_t *theirs,
                   uint64_t *mine, const struct ash_model *outline, struct ash_err *err)
{
    int rc = hash_patches(copies->exec, &copy->patches, mine, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < copy->patches.count; i++) {
        const struct ash_patch_range *range = &copy->patches.items[i].range;

        if (mine[i] == theirs[i]) continue;
        return ash_err_set(err, -EUCLEAN,
                           "rank %zu and its copy on rank %zu differ in elements %" PRIu64 " to %" PRIu64 " of %s",
                           copy->owner, ash_group_rank(copies->group), range->first, range->first + range->count - 1,
                           ash_model_param(outline, range->param)->name);
    }
    return 0;
}

/* The first rank's error that has one, on all ranks. */
static int share_error(struct ash_group *group, const struct ash_err *own, struct ash_err *err)
{
    int64_t size = (int64_t)ash_group_size(group), first = own->code != 0 ? size - (int64_t)ash_group_rank(group) : 0;
    struct ash_err theirs = *own;
    int rc = ash_group_all_reduce(group, &first, &first, 1, ASH_COLL_I64, ASH_COLL_MAX, err);

    if (rc < 0 || first == 0) return rc;
    rc = ash_group_broadcast(group, &theirs, sizeof(theirs), (size_t)(size - first), err);
    return rc < 0 ? rc : ash_err_set(err, theirs.code, "%s", theirs.text);
}

/* The most patches of any rank, from the lists of all. */
static int most_patches(struct ash_copies *copies, size_t *most_out, struct ash_err *err)
{
    int64_t most = (int64_t)copies->own.count;
    int rc = ash_group_all_reduce(copies->group, &most, &most, 1, ASH_COLL_I64, ASH_COLL_MAX, err);

    *most_out = (size_t)most;
    return rc;
}

int ash_copies_check(struct ash_copies *copies, const struct ash_stages *stages, const struct ash_model *outline,
                     struct ash_err *err)
{
    struct ash_patches own = {0};
    struct ash_err differ = {0};
    uint64_t *all, *mine;
    size_t ranks, most = 0;
    int rc;

    if (copies->group == NULL) return 0;
    ranks = ash_group_size(copies->group);
    rc = most_patches(copies, &most, err);
    if (rc < 0) return rc;
    mine = calloc(most + 1, sizeof(*mine));
    all = calloc(ranks * most + 1, sizeof(*all));
    rc = mine != NULL && all != NULL ? ash_patches_add_stages(&own, stages, outline, false, err)
                                     : ash_err_set(err, -ENOMEM, "out of memory for the hashes of %zu ranks", ranks);
    if (rc == 0) rc = hash_patches(copies->exec, &own, mine, err);
    if (rc == 0) rc = ash_group_all_gather(copies->group, mine, all, most * sizeof(*mine), err);
    for (size_t i = 0; rc == 0 && differ.code == 0 && i < copies->held_count; i++)
        compare(copies, &copies->held[i], all + copies->held[i].owner * most, mine, outline, &differ);
    if (rc == 0) rc = share_error(copies->group, &differ, err);
    ash_patches_fini(&own);
    free(all);
    free(mine);
    return rc;
}
