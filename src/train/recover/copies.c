/* copies: memory for them, and the update that is made twice. */
#include "train/recover/copies_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "infra/memory.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Ranks with an equal number are replicas of each other: they differ along dp and cp only. */
static uint32_t slice_of(const struct ash_mesh *mesh, size_t rank)
{
    size_t slice = 0, weight = 1;

    for (size_t a = 0; a < ASH_MESH_AXES; a++) {
        size_t at = rank % mesh->size[a];

        rank /= mesh->size[a];
        if (a == ASH_MESH_DP || a == ASH_MESH_CP) continue;
        slice += at * weight;
        weight *= mesh->size[a];
    }
    return (uint32_t)slice;
}

static int make_map(struct ash_copies *copies, const struct ash_mesh *mesh, size_t count, struct ash_err *err)
{
    size_t ranks = ash_group_size(mesh->world);
    uint32_t *nodes = calloc(2 * ranks, sizeof(*nodes)), *slices = nodes + ranks;
    int rc = nodes != NULL ? 0 : -ENOMEM;

    for (size_t r = 0; rc == 0 && r < ranks; r++) {
        nodes[r] = (uint32_t)ash_group_get_member(mesh->world, r).node_index;
        slices[r] = slice_of(mesh, r);
    }
    if (rc == 0) rc = ash_copies_map_init(&copies->map, ranks, count, nodes, slices);
    free(nodes);
    return rc < 0 ? ash_err_set(err, rc, "out of memory for the copies of %zu ranks", ranks) : 0;
}

static bool has_holder(const struct ash_copies_map *map, size_t rank)
{
    ash_assert(rank < map->ranks);
    for (size_t k = 0; k < map->copies; k++)
        if (map->holders[rank * map->copies + k] != ASH_COPIES_NOBODY) return true;
    return false;
}

/* Room for a copy of these ranges. */
static int open_copy(struct ash_held_copy *copy, const struct ash_memory_ops *memory,
                     const struct ash_patch_range *ranges, size_t count, struct ash_err *err)
{
    size_t elements = 1; /* so that there is an address */
    float *at;
    int rc;

    for (size_t i = 0; i < count; i++) {
        elements += (size_t)ranges[i].count * (ranges[i].has_moments != 0 ? ASH_PATCH_KINDS : 1);
        if (ranges[i].has_moments != 0) copy->trained += (size_t)ranges[i].count;
    }
    rc = ash_buffer_init(&copy->memory, memory, (elements + copy->trained) * sizeof(float),
                         "a copy of another rank's state (recover.copies)", err);
    at = copy->memory.data;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct ash_patch patch = {.range = ranges[i]};

        for (size_t kind = 0; kind < (ranges[i].has_moments != 0 ? ASH_PATCH_KINDS : 1); kind++, at += ranges[i].count)
            patch.values[kind] = at;
        rc = ash_patches_add(&copy->patches, &patch, err);
    }
    copy->grads = at;
    return rc;
}

/* The copies of this rank's list, once those of all are there. ranges: [ranks, most], of which each rank has counts. */
static int open_held(struct ash_copies *copies, const struct ash_patch_range *ranges, size_t most,
                     const uint64_t *counts, struct ash_err *err)
{
    const struct ash_copies_map *map = &copies->map;
    size_t rank = ash_group_rank(copies->group);

    copies->held = calloc(map->ranks * map->copies + 1, sizeof(*copies->held));
    if (copies->held == NULL) return ash_err_set(err, -ENOMEM, "out of memory for copies");
    for (size_t r = 0; r < map->ranks; r++)
        for (size_t k = 0; k < map->copies; k++) {
            struct ash_held_copy *copy = &copies->held[copies->held_count];
            int rc;

            if (map->holders[r * map->copies + k] != rank) continue;
            copies->held_count++;
            copy->owner = r;
            copy->turn = k;
            rc = open_copy(copy, copies->exec->memory, ranges + r * most, (size_t)counts[r], err);
            if (rc < 0) return rc;
        }
    return 0;
}

/* All-gather the lists of updated parameters. */
static int share_lists(struct ash_copies *copies, struct ash_err *err)
{
    size_t ranks = copies->map.ranks, most = 1;
    uint64_t count = copies->own.count, *counts = calloc(ranks, sizeof(*counts));
    struct ash_patch_range *mine = NULL, *all = NULL;
    int rc = -ENOMEM;

    if (counts == NULL) goto out;
    rc = ash_group_all_gather(copies->group, &count, counts, sizeof(count), err);
    if (rc < 0) goto out;
    for (size_t r = 0; r < ranks; r++)
        most = counts[r] > most ? (size_t)counts[r] : most;
    rc = -ENOMEM;
    mine = calloc(most, sizeof(*mine));
    all = calloc(ranks * most, sizeof(*all));
    if (mine == NULL || all == NULL) goto out;
    for (size_t i = 0; i < copies->own.count; i++)
        mine[i] = copies->own.items[i].range;
    rc = ash_group_all_gather(copies->group, mine, all, most * sizeof(*mine), err);
    if (rc == 0) rc = open_held(copies, all, most, counts, err);

out:
    free(counts);
    free(mine);
    free(all);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for the copies of %zu ranks", ranks) : rc;
}

int ash_copies_open(struct ash_copies *copies, const struct ash_stages *stages, const struct ash_model *outline,
                    size_t count, struct ash_err *err)
{
    const struct ash_mesh *mesh = stages->mesh;
    bool some = false;
    size_t rank;
    int rc;

    memset(copies, 0, sizeof(*copies));
    if (mesh->world == NULL || count == 0) return 0;
    rc = make_map(copies, mesh, count, err);
    for (size_t r = 0; rc == 0 && r < copies->map.ranks; r++)
        some = some || has_holder(&copies->map, r);
    if (rc < 0 || !some) return rc;
    copies->group = mesh->world;
    copies->exec = stages->exec;
    rank = ash_group_rank(mesh->world);
    rc = ash_patches_add_stages(&copies->own, stages, outline, false, err);
    if (rc == 0) rc = share_lists(copies, err);
    return rc < 0 ? rc : ash_copies_open_messages(copies, outline, has_holder(&copies->map, rank), err);
}

void ash_copies_detach(struct ash_copies *copies)
{
    ash_copies_settle(copies, NULL);
    ash_group_close(copies->lane);
    copies->group = copies->lane = NULL;
}

static bool same_ranges(const struct ash_patches *a, const struct ash_patches *b)
{
    bool same = a->count == b->count;

    for (size_t i = 0; same && i < a->count; i++)
        same = a->items[i].range.param == b->items[i].range.param &&
               a->items[i].range.has_moments == b->items[i].range.has_moments &&
               a->items[i].range.first == b->items[i].range.first && a->items[i].range.count == b->items[i].range.count;
    return same;
}

void ash_copies_take(struct ash_copies *copies, struct ash_copies *old)
{
    for (size_t c = 0; c < copies->held_count; c++) {
        struct ash_held_copy *copy = &copies->held[c], fresh = *copy;

        for (size_t i = 0; i < old->held_count && !copy->has_values; i++) {
            if (!old->held[i].has_values || !same_ranges(&copy->patches, &old->held[i].patches)) continue;
            *copy = old->held[i];
            copy->owner = fresh.owner;
            copy->turn = fresh.turn;
            old->held[i] = fresh;
        }
    }
}

void ash_copies_set_filled(struct ash_copies *copies)
{
    for (size_t c = 0; c < copies->held_count; c++)
        copies->held[c].has_values = true;
}

static void close_copy(struct ash_held_copy *copy)
{
    ash_patches_fini(&copy->patches);
    free(copy->messages.items);
    ash_buffer_fini(&copy->memory);
}

void ash_copies_drop_empty(struct ash_copies *copies)
{
    size_t kept = 0;

    for (size_t c = 0; c < copies->held_count; c++) {
        if (copies->held[c].has_values)
            copies->held[kept++] = copies->held[c];
        else
            close_copy(&copies->held[c]);
    }
    copies->held_count = kept;
}

void ash_copies_close(struct ash_copies *copies)
{
    for (size_t i = 0; i < copies->held_count; i++)
        close_copy(&copies->held[i]);
    free(copies->held);
    ash_copies_close_messages(copies);
    ash_patches_fini(&copies->own);
    ash_copies_map_fini(&copies->map);
    memset(copies, 0, sizeof(*copies));
}

int ash_copies_add_patches(const struct ash_copies *copies, bool has_values, struct ash_patches *patches,
                           struct ash_err *err)
{
    int rc = 0;

    for (size_t c = 0; c < copies->held_count; c++)
        for (size_t i = 0; rc == 0 && i < copies->held[c].patches.count; i++)
            if (copies->held[c].has_values || !has_values)
                rc = ash_patches_add(patches, &copies->held[c].patches.items[i], err);
    return rc;
}

size_t ash_copies_bytes(const struct ash_copies *copies)
{
    size_t bytes = copies->scattered_count * sizeof(float);

    for (size_t i = 0; i < copies->held_count; i++)
        bytes += copies->held[i].memory.size_bytes;
    return bytes;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

void ash_copies_update(struct ash_copies *copies, const struct ash_optimizer *optimizer,
                       const struct ash_model *outline, double norm, double lr)
{
    for (size_t c = 0; c < copies->held_count; c++) {
        const float *grads = copies->held[c].grads;

        for (size_t i = 0; i < copies->held[c].patches.count; i++) {
            const struct ash_patch *patch = &copies->held[c].patches.items[i];
            const struct ash_param *param = ash_model_param(outline, patch->range.param);
            struct ash_optimizer_run run = {.count = (size_t)patch->range.count,
                                            .grads = grads,
                                            .weights = patch->values[ASH_PATCH_WEIGHTS],
                                            .m = patch->values[ASH_PATCH_M],
                                            .v = patch->values[ASH_PATCH_V],
                                            .is_matrix = param->is_matrix};

            if (patch->range.has_moments == 0) continue;
            ash_optimizer_update_run(optimizer, &run, norm, lr);
            grads += patch->range.count;
        }
    }
}
