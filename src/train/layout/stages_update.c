/* stages: after the backward pass: reduction, norm, update; and detaching when their groups end. */
#include <string.h>

#include "base/assert.h"
#include "base/fault_point.h"
#include "collective/host/window.h"
#include "train/layout/stages_priv.h"

/* ---- after the last micro-batch ---------------------------------------------------------------------------------- */

/* The last rank of cp holds the sums over all tokens, unless they share a gradient buffer. */
static int broadcast_over_cp(struct ash_stages *stages, struct ash_stage *stage, size_t count, struct ash_err *err)
{
    struct ash_group *cp = stages->mesh->groups[ASH_MESH_CP];

    return cp == NULL || ash_mesh_shares_gradients(stages->mesh)
               ? 0
               : ash_group_broadcast(cp, stage->grads, count * sizeof(float), ash_group_size(cp) - 1, err);
}

/* Over the ranks' grains. */
static int reduce_sums(struct ash_stage *stage, struct ash_err *err)
{
    int rc = ash_grains_reduce(&stage->grains, NULL, err);

    if (rc < 0 || stage->experts.opts.strand_count == 0) return rc;
    return ash_grains_reduce(&stage->experts, stage->grads + ash_model_dense_size(stage->state.model), err);
}

static int reduce_chunk(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    int rc;

    if (stages->mesh->zero > 1) {
        rc = ash_fsdp_finish(&stage->fsdp, &stage->grads, err);
        return rc < 0 ? rc : broadcast_over_cp(stages, stage, stage->state.shards->total, err);
    }
    stage->grads = ash_grains_sum(&stage->grains);
    rc = ash_mesh_cp_barrier(stages->mesh, err);
    if (rc < 0) return rc;
    if (ash_mesh_is_leader(stages->mesh)) {
        rc = reduce_sums(stage, err);
        if (rc < 0) return rc;
    }
    rc = ash_mesh_cp_barrier(stages->mesh, err);
    if (rc < 0) return rc;
    return broadcast_over_cp(stages, stage, ash_model_size(stage->state.model), err);
}

int ash_stages_reduce(struct ash_stages *stages, struct ash_err *err)
{
    ash_fault_point_meet(ASH_FAULT_REDUCE);
    for (size_t i = 0; i < stages->chunk_count; i++) {
        int rc;

        ash_meter_begin(&stages->mesh->meter);
        rc = reduce_chunk(stages, &stages->chunks[i], err);
        ash_meter_end(&stages->mesh->meter, ASH_METER_COMM);
        if (rc < 0) return rc;
    }
    return 0;
}

/* The last rank of cp has the sums of all, and the others get them from it after the pass. */
const float *ash_stages_sum(const struct ash_stages *stages, size_t chunk, struct ash_range range)
{
    const struct ash_stage *stage = &stages->chunks[chunk];
    const struct ash_grains *sums = stages->mesh->zero > 1 ? &stage->fsdp.sums : &stage->grains;

    ash_assert(chunk < stages->chunk_count);
    if (stages->mesh->size[ASH_MESH_CP] > 1 || !ash_grains_has_sum(sums, range)) return NULL;
    return ash_grains_sum(sums) + range.first;
}

int ash_stages_norm(struct ash_stages *stages, double *norm_out, struct ash_err *err)
{
    struct ash_optimizer *optimizers[ASH_MODEL_LAYERS_MAX];
    const float *grads[ASH_MODEL_LAYERS_MAX];
    struct ash_optimizer_ranks ranks = {stages->mesh->world, &stages->mesh->meter};

    ash_assert(stages->chunk_count > 0 && stages->chunk_count <= ASH_MODEL_LAYERS_MAX);
    for (size_t i = 0; i < stages->chunk_count; i++) {
        optimizers[i] = &stages->chunks[i].optimizer;
        grads[i] = stages->chunks[i].grads;
    }
    return ash_optimizer_norm(optimizers, grads, stages->chunk_count, &ranks, norm_out, err);
}

void ash_stages_update(struct ash_stages *stages, double norm, double lr)
{
    for (size_t i = 0; i < stages->chunk_count; i++)
        ash_optimizer_update(&stages->chunks[i].optimizer, stages->chunks[i].grads, norm, lr);
}

int ash_stages_commit(struct ash_stages *stages, bool updated, struct ash_err *err)
{
    struct ash_meter *meter = &stages->mesh->meter;
    int rc = 0;

    ash_meter_begin(meter);
    if (updated) rc = ash_state_barrier(&stages->chunks[0].state, err); /* all chunks share their groups */
    ash_meter_end(meter, ASH_METER_COMM);
    if (rc < 0) return rc;
    ash_stages_count_step(stages, updated);
    return 0;
}

void ash_stages_count_step(struct ash_stages *stages, bool updated)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        if (updated) ash_state_advance(&stages->chunks[i].state);
        stages->chunks[i].state.step++;
    }
}

int ash_stages_spread(struct ash_stages *stages, struct ash_err *err)
{
    struct ash_meter *meter = &stages->mesh->meter;
    int rc = 0;

    stages->owes_spread = false;
    ash_meter_begin(meter);
    for (size_t i = 0; rc == 0 && i < stages->chunk_count; i++)
        rc = ash_fsdp_after_update(&stages->chunks[i].fsdp, err);
    if (rc == 0) rc = ash_stages_update_tied(stages, err);
    ash_meter_end(meter, ASH_METER_COMM);
    return rc;
}

int ash_stages_catch_up(struct ash_stages *stages, struct ash_err *err)
{
    return stages->owes_spread ? ash_stages_spread(stages, err) : 0;
}

int ash_stages_renew(struct ash_stages *stages, struct ash_err *err)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        int rc = ash_state_renew(&stages->chunks[i].state, err);
        if (rc < 0) return rc;
    }
    stages->owes_spread = true;
    return 0;
}

/* ---- after the end of its groups --------------------------------------------------------------------------------- */

void ash_stages_detach(struct ash_stages *stages)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        struct ash_stage *stage = &stages->chunks[i];

        ash_fsdp_settle(&stage->fsdp);
        ash_grains_settle(&stage->grains);
        ash_grains_settle(&stage->experts);
        ash_stage_close_slots(stage);
        ash_state_detach(&stage->state);
    }
    ash_stages_close_channels(stages);
}

bool ash_stages_take(struct ash_stages *stages, struct ash_stages *old)
{
    size_t taken = 0;

    if (stages->chunk_count != old->chunk_count) return false;
    while (taken < stages->chunk_count && ash_state_take(&stages->chunks[taken].state, &old->chunks[taken].state))
        taken++;
    if (taken == stages->chunk_count) return true;
    while (taken > 0) { /* back again */
        taken--;
        ash_state_take(&old->chunks[taken].state, &stages->chunks[taken].state);
    }
    return false;
}

/* Node replicas each have the sums of their own part: gather all parts. They are in shared memory that stays mapped
 * here after a loss. */
static void join_sums(struct ash_stage *stage)
{
    for (size_t mate = 0; stage->wanted_count > 0 && mate < stage->state.mates; mate++) {
        struct ash_range run = ash_state_mate_run(&stage->state, mate);
        const float *sums = ash_window_data_of(stage->grains.windows[0], mate);

        if (sums != stage->grads) memcpy(stage->grads + run.first, sums + run.first, run.count * sizeof(*sums));
    }
}

void ash_stages_update_alone(struct ash_stages *stages, double norm, double lr)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        struct ash_stage *stage = &stages->chunks[i];

        if (stage->state.mates > 0) {
            join_sums(stage);
            stage->state.own = (struct ash_range){0, stage->state.shards->total};
        }
        ash_optimizer_update(&stage->optimizer, stage->grads, norm, lr);
    }
}

int ash_stages_hash(const struct ash_stages *stages, uint64_t *hash_out, struct ash_err *err)
{
    const struct ash_state *states[ASH_MODEL_LAYERS_MAX];

    ash_assert(stages->chunk_count <= ASH_MODEL_LAYERS_MAX);
    for (size_t i = 0; i < stages->chunk_count; i++)
        states[i] = &stages->chunks[i].state;
    return ash_state_hash_all(states, stages->chunk_count, ash_mesh_is_whole(stages->mesh) ? NULL : stages->mesh->world,
                              hash_out, err);
}
