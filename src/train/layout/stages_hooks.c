/* stages: hooks between the layers of a pass. Sharded weights are gathered and gradients sent there (fsdp); and if
 * gradients are reduced between nodes, a layer's reduction starts as soon as the backward pass of the rank's last
 * micro-batch has left it, overlapped with the layers before it. On one rank they are complete then, and can be sent to
 * the holders of peer replicas (recover.copies). */
#include "train/layout/stages_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "collective/epoch.h"

/* Are its sums those of stage->grains? Those of experts that serve several ranks are not. */
static bool is_summed(const struct ash_stage *stage, const struct ash_shard_unit *unit)
{
    return unit->whole.first < stage->grains.opts.sum_size;
}

/* Elements of a unit that each rank updates, where they are equally many and no two ranks' are the same; else 0. */
static size_t wanted_part(const struct ash_stage *stage, const struct ash_shard_unit *unit)
{
    size_t size = stage->state.shards->size;

    return size > 1 && stage->wanted_count > 0 && unit->part * size == unit->whole.count ? unit->part : 0;
}

/* Start to reduce a unit's gradients. */
static int start_unit(struct ash_stage *stage, size_t index, struct ash_err *err)
{
    const struct ash_shard_unit *unit = &stage->state.shards->units[index];

    ash_assert(index < stage->state.shards->unit_count);
    if (stage->reduce_started[index] || !is_summed(stage, unit)) return 0;
    stage->reduce_started[index] = true;
    ash_leaf_sums_note(stage->leaf_sums, stage->grains.opts.exec, index, stage->grad_buffer + unit->whole.first,
                       unit->whole.count);
    ash_grains_end_range(&stage->grains, unit->whole);
    return ash_grains_start_reduce(&stage->grains, unit->whole, wanted_part(stage, unit), err);
}

static int need(void *ctx, int unit, bool backward, struct ash_err *err)
{
    struct ash_stage *stage = ctx;

    return ash_fsdp_need(&stage->fsdp, unit, backward, err);
}

/* Start to reduce the gradients of a layer, or of the parameters outside layers, if that overlaps. */
static int reduce_layer(struct ash_stage *stage, int unit, struct ash_err *err)
{
    int rc = 0;

    if (!stage->overlap_reduce || !stage->is_leader || !ash_fsdp_completes(stage->state.model, unit)) return 0;
    for (size_t i = 0; rc == 0 && i < stage->state.shards->unit_count; i++)
        if (stage->state.shards->units[i].unit == unit) rc = start_unit(stage, i, err);
    return rc;
}

static int done(void *ctx, int unit, bool backward, struct ash_err *err)
{
    struct ash_stage *stage = ctx;
    const struct ash_group *world = stage->fsdp.mesh->world;
    bool is_last = backward && (stage->is_last_micro_batch || stage->fsdp.is_last_of_step);
    int rc;

    ash_call_note_work();
    rc = world != NULL ? ash_epoch_check(world, err) : 0; /* a lost rank is not to be noticed at the next call only */
    if (rc == 0) rc = ash_fsdp_done(&stage->fsdp, unit, backward, err);
    if (rc == 0 && backward && stage->is_last_micro_batch) rc = reduce_layer(stage, unit, err);
    if (rc == 0 && is_last && stage->listener.on_layer != NULL) rc = stage->listener.on_layer(stage->listener.ctx, err);
    return rc;
}

struct ash_pass_hooks ash_stages_hooks(struct ash_stage *stage)
{
    if (!stage->overlap_reduce && !ash_fsdp_has_hooks(&stage->fsdp)) return (struct ash_pass_hooks){0};
    return (struct ash_pass_hooks){need, done, stage};
}

void ash_stages_note_grain(struct ash_stage *stage, size_t round)
{
    const struct ash_exec *exec = stage->grains.opts.exec;
    bool is_noted = stage->overlap_reduce && stage->is_last_micro_batch; /* unit by unit, before it was reduced */

    if (stage->leaf_sums == NULL || !stage->is_leader) return;
    for (size_t i = 0; !is_noted && i < stage->state.shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &stage->state.shards->units[i];

        if (is_summed(stage, unit))
            ash_leaf_sums_note(stage->leaf_sums, exec, i, stage->grad_buffer + unit->whole.first, unit->whole.count);
    }
    for (size_t strand = 0; strand < stage->experts.opts.strand_count; strand++)
        if (round < ash_grains_of(&stage->experts, strand).count)
            ash_leaf_sums_note(stage->leaf_sums, exec, (uint64_t)(strand + 1) << 32, stage->expert_grad_buffers[strand],
                               stage->experts.opts.leaf_size);
}

int ash_stages_open_overlap(const struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_mesh *mesh = stages->mesh;
    /* alone with its part of the model: nothing is reduced, but copies of it want the sums */
    bool is_alone = mesh->data == NULL && mesh->world != NULL && mesh->size[ASH_MESH_CP] == 1;

    stage->overlap_reduce = mesh->zero < 2 && (is_alone ? stages->job->recover.copies > 0
                                                        : mesh->data != NULL && !ash_group_shares_memory(mesh->data));
    stage->is_leader = ash_mesh_is_leader(stages->mesh);
    if (!stage->overlap_reduce) return 0;
    stage->reduce_started = calloc(stage->state.shards->unit_count, sizeof(*stage->reduce_started));
    return stage->reduce_started != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for a model's layers");
}

int ash_stages_reduce_rest(struct ash_stage *stage, struct ash_err *err)
{
    for (size_t i = 0; stage->is_leader && i < stage->state.shards->unit_count; i++) {
        int rc = start_unit(stage, i, err);
        if (rc < 0) return rc;
    }
    ash_grains_advance(&stage->grains, 0, 1);
    return 0;
}

int ash_stages_start_all(struct ash_stage *stage, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < stage->state.shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &stage->state.shards->units[i];

        if (is_summed(stage, unit))
            rc = ash_grains_start_reduce(&stage->grains, unit->whole, wanted_part(stage, unit), err);
    }
    return rc;
}
