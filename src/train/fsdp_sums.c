/* fsdp: gradients that are dealt out. In each round every rank has the leaf of one grain; they are neighbours in the
 * tree, in the order of the ranks. The owner of a part gets it from all, pushes the leaves onto its stack one after the
 * other and adds neighbours that are the halves of a subtree, as train/grains.c does. Units come one by one; the stack
 * moves on when the round ends. */
#include "train/fsdp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- dealing ----------------------------------------------------------------------------------------------------- */

static struct ash_span block_of(const struct ash_mesh *mesh, size_t grain_count, size_t dp)
{
    return ash_grains_dealt(grain_count, dp, mesh->size[ASH_MESH_DP]);
}

size_t ash_fsdp_rounds(const struct ash_mesh *mesh, size_t grain_count)
{
    size_t count = block_of(mesh, grain_count, mesh->at[ASH_MESH_DP]).count, size = mesh->size[ASH_MESH_FSDP];

    return (count + size - 1) / size;
}

size_t ash_fsdp_grain(const struct ash_mesh *mesh, size_t grain_count, size_t round)
{
    struct ash_span block = block_of(mesh, grain_count, mesh->at[ASH_MESH_DP]);
    size_t place = round * mesh->size[ASH_MESH_FSDP] + mesh->at[ASH_MESH_FSDP];

    return place < block.count ? block.first + place : SIZE_MAX;
}

/* Leaves of a round. */
static size_t leaves_of(const struct ash_fsdp *fsdp, size_t round)
{
    size_t left = fsdp->block.count - round * fsdp->shards->size;

    return left < fsdp->shards->size ? left : fsdp->shards->size;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* The most partial sums at once, and what is left at the end. */
static size_t deepest(const struct ash_fsdp *fsdp)
{
    struct ash_span spans[ASH_GRAINS_DEPTH_MAX + 1];
    size_t depth = 0, most = 1;

    for (size_t i = 0; i < fsdp->block.count && depth <= ASH_GRAINS_DEPTH_MAX; i++) {
        spans[depth++] = (struct ash_span){fsdp->block.first + i, 1};
        if (depth > most) most = depth;
        for (; depth >= 2 && ash_tree_halves(fsdp->grain_count, spans[depth - 2], spans[depth - 1]); depth--)
            spans[depth - 2].count += spans[depth - 1].count;
    }
    return most;
}

static int plan_shares(struct ash_fsdp *fsdp, struct ash_err *err)
{
    struct ash_span spans[ASH_TREE_PARTS_MAX];
    size_t count = 0, replicas = fsdp->mesh->size[ASH_MESH_DP];

    for (size_t dp = 0; dp < replicas; dp++) {
        struct ash_span cover[ASH_TREE_COVER_MAX];
        size_t parts = ash_tree_cover(fsdp->grain_count, block_of(fsdp->mesh, fsdp->grain_count, dp), cover);

        if (dp >= ASH_SHARES_RANKS_MAX || count + parts > ASH_TREE_PARTS_MAX)
            return ash_err_set(err, -EINVAL, "%zu grains over %zu replicas make too many partial sums",
                               fsdp->grain_count, replicas);
        memcpy(spans + count, cover, parts * sizeof(*cover));
        count += parts;
        fsdp->shares.first[dp + 1] = (uint32_t)count;
    }
    return ash_tree_of_spans(&fsdp->shares.tree, spans, count, fsdp->grain_count);
}

static size_t largest_own(const struct ash_shards *shards)
{
    size_t most = 0;

    for (size_t i = 0; i < shards->unit_count; i++)
        if (shards->units[i].own.count > most) most = shards->units[i].own.count;
    return most;
}

int ash_fsdp_open_sums(struct ash_fsdp *fsdp, struct ash_err *err)
{
    const struct ash_memory_ops *memory = fsdp->state->exec->memory;
    const struct ash_model *model = fsdp->state->model;
    size_t size = fsdp->shards->size, buffers = 1;
    int rc;

    if (fsdp->mesh->zero > 1) {
        fsdp->block = block_of(fsdp->mesh, fsdp->grain_count, fsdp->mesh->at[ASH_MESH_DP]);
        if ((buffers = deepest(fsdp)) > ASH_GRAINS_DEPTH_MAX)
            return ash_err_set(err, -EINVAL, "%zu grains are too many", fsdp->grain_count);
        if ((rc = plan_shares(fsdp, err)) < 0) return rc;
        rc = ash_buffer_init(&fsdp->leaf, memory, ash_model_grad_size(model) * sizeof(float), "gradients", err);
        if (rc < 0) return rc;
        rc = ash_buffer_init(&fsdp->inbox, memory, size * largest_own(fsdp->shards) * sizeof(float), "gradients", err);
        if (rc < 0) return rc;
        fsdp->send = calloc(size, sizeof(*fsdp->send));
        fsdp->recv = calloc(size, sizeof(*fsdp->recv));
        if (fsdp->send == NULL || fsdp->recv == NULL)
            return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
    }
    for (; fsdp->buffer_count < buffers; fsdp->buffer_count++) {
        rc = ash_buffer_init(&fsdp->sums[fsdp->buffer_count], memory, fsdp->shards->total * sizeof(float), "gradients",
                             err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

void ash_fsdp_reset(struct ash_fsdp *fsdp)
{
    fsdp->depth = fsdp->round = 0;
}

float *ash_fsdp_begin(struct ash_fsdp *fsdp)
{
    return fsdp->leaf.data;
}

static float *sum_at(const struct ash_fsdp *fsdp, size_t depth, const struct ash_shard_unit *unit)
{
    return (float *)fsdp->sums[depth].data + unit->at;
}

/* Push the leaves of the round onto the stack: of a unit, its numbers; without one, only the stack itself moves. */
static void push_leaves(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    struct ash_exec *exec = fsdp->state->exec;
    struct ash_span spans[ASH_GRAINS_DEPTH_MAX];
    size_t depth = fsdp->depth, first = fsdp->block.first + fsdp->round * fsdp->shards->size;

    memcpy(spans, fsdp->spans, sizeof(spans));
    for (size_t r = 0; r < leaves_of(fsdp, fsdp->round); r++) {
        spans[depth] = (struct ash_span){first + r, 1};
        if (unit != NULL)
            memcpy(sum_at(fsdp, depth, unit), (const float *)fsdp->inbox.data + r * unit->own.count,
                   unit->own.count * sizeof(float));
        for (depth++; depth >= 2 && ash_tree_halves(fsdp->grain_count, spans[depth - 2], spans[depth - 1]); depth--) {
            float *left = unit != NULL ? sum_at(fsdp, depth - 2, unit) : NULL;
            spans[depth - 2].count += spans[depth - 1].count;
            if (unit != NULL) exec->ops->row->add(exec, left, sum_at(fsdp, depth - 1, unit), unit->own.count, left);
        }
    }
    if (unit != NULL) return;
    memcpy(fsdp->spans, spans, sizeof(spans));
    fsdp->depth = depth;
}

/* What is rank r's of a unit. */
static size_t part_count(const struct ash_shard_unit *unit, size_t r)
{
    size_t first = r * unit->part;

    return first >= unit->whole.count               ? 0
           : unit->whole.count - first < unit->part ? unit->whole.count - first
                                                    : unit->part;
}

int ash_fsdp_send_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_err *err)
{
    size_t leaves = leaves_of(fsdp, fsdp->round);
    const float *whole = (const float *)fsdp->leaf.data + unit->whole.first;
    int rc;

    for (size_t r = 0; r < fsdp->shards->size; r++) {
        fsdp->send[r] = fsdp->shards->rank < leaves ? part_count(unit, r) * sizeof(float) : 0;
        fsdp->recv[r] = r < leaves ? unit->own.count * sizeof(float) : 0;
    }
    ash_meter_begin(&fsdp->mesh->meter);
    rc = ash_group_all_to_all(fsdp->group, whole, fsdp->send, fsdp->inbox.data, fsdp->recv, err);
    ash_meter_end(&fsdp->mesh->meter, ASH_METER_COMM);
    if (rc < 0) return rc;
    push_leaves(fsdp, unit);
    ash_buffer_drop(&fsdp->leaf, unit->whole.first * sizeof(float), unit->whole.count * sizeof(float));
    return 0;
}

int ash_fsdp_end(struct ash_fsdp *fsdp, struct ash_err *err)
{
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &fsdp->shards->units[i];
        bool sent = fsdp->streams && unit->unit != ASH_UNIT_EMBED && unit->unit != ASH_UNIT_HEAD;
        int rc = sent ? 0 : ash_fsdp_send_unit(fsdp, unit, err);
        if (rc < 0) return rc;
    }
    push_leaves(fsdp, NULL);
    fsdp->round++;
    return 0;
}

int ash_fsdp_finish(struct ash_fsdp *fsdp, float **sum_out, struct ash_err *err)
{
    const void *parts[ASH_GRAINS_DEPTH_MAX];
    struct ash_group *dp = fsdp->mesh->groups[ASH_MESH_DP];
    int rc = 0;

    for (size_t i = 0; i < fsdp->depth; i++)
        parts[i] = fsdp->sums[i].data;
    if (dp != NULL)
        rc = ash_group_all_reduce_parts(dp, parts, &fsdp->shares, fsdp->sums[0].data, fsdp->shards->total, ASH_COLL_F32,
                                        ASH_COLL_SUM, err);
    ash_assert(dp != NULL || fsdp->depth == 1);
    *sum_out = fsdp->sums[0].data;
    return rc;
}
