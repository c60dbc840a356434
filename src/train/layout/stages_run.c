/* stages: micro-batches through this rank's chunks, in the order of the pipeline. */
#include "train/layout/stages_priv.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/fault_point.h"
#include "base/hash.h"
#include "base/math.h"

/* The step being computed. */
struct step {
    struct ash_stages *stages;
    const struct ash_stages_task *task;
    uint64_t step;
    double *losses; /* [grains] */
    struct ash_stage_order order;
};

static struct ash_stage_slot *slot_of(struct ash_stage *stage, size_t micro)
{
    ash_assert(stage->slot_count > 0);
    return &stage->slots[micro % stage->slot_count];
}

/* The grain that this rank works on in a round; SIZE_MAX: none. Then it serves the others, with its experts or its part
 * of the weights. */
static size_t grain_of(const struct ash_stages *stages, size_t round)
{
    if (stages->mesh->zero > 1) return ash_fsdp_grain(stages->mesh, (size_t)stages->job->train.grains, round);
    if (stages->todo != NULL) return stages->todo[round];
    return round < stages->own.count ? stages->own.first + round : SIZE_MAX;
}

size_t ash_stages_grain(const struct ash_stages *stages, size_t column, size_t ep, size_t round)
{
    size_t grains = (size_t)stages->job->train.grains;
    struct ash_mesh other = *stages->mesh;
    struct ash_range own;

    ash_assert(column < other.size[ASH_MESH_FSDP] * other.size[ASH_MESH_DP] && ep < other.size[ASH_MESH_EP]);
    other.at[ASH_MESH_FSDP] = column % other.size[ASH_MESH_FSDP];
    other.at[ASH_MESH_DP] = column / other.size[ASH_MESH_FSDP];
    other.at[ASH_MESH_EP] = ep;
    if (other.zero > 1) return ash_fsdp_grain(&other, grains, round);
    own = ash_grains_partition(grains, ash_mesh_data_rank(&other), ash_mesh_data_size(&other));
    return round < own.count ? own.first + round : SIZE_MAX;
}

/* The grain whose sequences this rank reads in a round: its own, or in an audit that of another. */
static size_t grain_to_read(const struct step *now, size_t round)
{
    const struct ash_mesh *mesh = now->stages->mesh;
    size_t columns = mesh->size[ASH_MESH_FSDP] * mesh->size[ASH_MESH_DP],
           column = mesh->at[ASH_MESH_DP] * mesh->size[ASH_MESH_FSDP] + mesh->at[ASH_MESH_FSDP],
           own = grain_of(now->stages, round), other;

    if (now->task->shift == 0 || own == SIZE_MAX) return own;
    other = ash_stages_grain(now->stages, (column + now->task->shift) % columns, mesh->at[ASH_MESH_EP], round);
    return other != SIZE_MAX ? other : own;
}

/* The sequences of a micro-batch of the step. */
static int read_micro(const struct step *now, struct ash_stage_slot *slot, size_t micro, struct ash_err *err)
{
    const struct ash_stages *stages = now->stages;
    const struct ash_job_train *train = &stages->job->train;
    uint64_t grain_slots = (uint64_t)(train->global_batch / train->grains);
    size_t grain = grain_to_read(now, micro / stages->grain_micros), in_grain = micro % stages->grain_micros;
    struct ash_feed_slice slice = {.source = now->task->source,
                                   .step = now->step,
                                   .slots_per_step = (uint64_t)train->global_batch,
                                   .first_slot = grain * grain_slots + in_grain * stages->micro_batch,
                                   .count = stages->micro_batch,
                                   .more_steps = (uint64_t)train->steps - ash_min(now->step + 1, (size_t)train->steps)};

    int rc = 0;

    slot->feed.batch = (struct ash_batch){0};
    ash_meter_begin(&stages->mesh->meter);
    if (grain != SIZE_MAX) rc = ash_feed_read(&slot->feed, &slice, err);
    ash_meter_end(&stages->mesh->meter, ASH_METER_DATA);
    slot->feed.batch.dropout = (struct ash_dropout){
        .seed = ash_hash_bytes(&now->step, sizeof(now->step), (uint64_t)train->seed), .numbers = slot->feed.slots};
    return rc;
}

/* Can all ranks skip a micro-batch without sequences? Ranks that serve others take part in any. */
static bool is_empty(const struct ash_stages *stages, const struct ash_stage_slot *slot)
{
    return slot->feed.batch.rows == 0 && stages->mesh->size[ASH_MESH_EP] == 1 && stages->mesh->zero <= 1;
}

static int run_forward(struct step *now, struct ash_stage *stage, size_t micro, struct ash_err *err)
{
    struct ash_stages *stages = now->stages;
    struct ash_stage_slot *slot = slot_of(stage, micro);
    int rc;

    rc = read_micro(now, slot, micro, err);
    if (rc < 0) return rc;
    slot->feed.batch.flags = 0;
    if (ash_mesh_can_overwrite_grads(stages->mesh) && micro % stages->grain_micros == 0)
        slot->feed.batch.flags |= ASH_BATCH_OVERWRITES;
    if ((micro + 1) % stages->grain_micros != 0) slot->feed.batch.flags |= ASH_BATCH_MORE_FOLLOW;
    if (is_empty(stages, slot)) return 0;
    if (now->task->objective != NULL) slot->feed.batch.sharpness = now->task->objective->sharpness;
    rc = ash_stages_recv_input(stages, slot, err);
    if (rc < 0) return rc;
    rc = ash_pass_forward(slot->pass, &slot->feed.batch, err);
    if (rc < 0) return rc;
    ash_fault_point_meet(ASH_FAULT_FORWARD);
    return ash_stages_send_output(stages, slot, err);
}

/* Of count elements of a gradient, those that this rank clears. */
static struct ash_range share_of(const struct ash_stages *stages, size_t count)
{
    const struct ash_mesh *mesh = stages->mesh;

    if (!ash_mesh_shares_gradients(mesh)) return (struct ash_range){0, count};
    return ash_range_split(count, 1, mesh->at[ASH_MESH_CP], mesh->size[ASH_MESH_CP]);
}

/* Room for the gradients of a grain, and of those of the ranks that are served. */
static int begin_grain(struct ash_stages *stages, struct ash_stage *stage, size_t round, struct ash_err *err)
{
    const struct ash_model *model = stage->state.model;
    bool starts = ash_mesh_can_overwrite_grads(stages->mesh);
    int rc;

    if (stages->mesh->zero > 1)
        return ash_fsdp_begin(&stage->fsdp, &stage->grad_buffer, stage->expert_grad_buffers, err);
    /* The memory may be that of the grain before, of which another rank is still adding its share to the sums; the
     * shares that are cleared are cut in another way. */
    rc = ash_mesh_cp_barrier(stages->mesh, err);
    if (rc < 0) return rc;
    if (grain_of(stages, round) != SIZE_MAX) stage->grad_buffer = ash_grains_begin(&stage->grains, 0, !starts);
    if (starts && stage->grad_buffer != NULL)
        ash_model_clear_grads(model, stages->exec, stage->grad_buffer, share_of(stages, ash_model_grad_size(model)));
    for (size_t strand = 0; strand < stage->experts.opts.strand_count; strand++)
        if (round < ash_grains_of(&stage->experts, strand).count)
            stage->expert_grad_buffers[strand] = ash_grains_begin(&stage->experts, strand, true);
    return ash_mesh_cp_barrier(stages->mesh, err);
}

/* Add the gradient of a tied output matrix, here or on another stage, to the embedding's. */
static int fold_grain(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_mesh *mesh = stages->mesh;
    bool one = ash_mesh_shares_gradients(mesh);
    int rc = 0;

    ash_assert(stage->grad_buffer != NULL);
    if (ash_mesh_is_leader(mesh)) {
        ash_meter_begin(&stages->mesh->meter);
        rc = ash_stages_add_tied(stages, stage, err);
        ash_meter_end(&stages->mesh->meter, ASH_METER_COMM);
    }
    if (rc < 0) return rc;
    ash_model_grad_fold_part(stage->state.model, stages->exec, stage->grad_buffer, one ? mesh->at[ASH_MESH_CP] : 0,
                             one ? mesh->size[ASH_MESH_CP] : 1);
    return ash_mesh_cp_barrier(stages->mesh, err);
}

/* A grain's gradients are complete. */
static int end_grain(struct ash_stages *stages, struct ash_stage *stage, size_t round, struct ash_err *err)
{
    bool works = grain_of(stages, round) != SIZE_MAX;
    int rc;

    if (works) {
        rc = fold_grain(stages, stage, err);
        if (rc < 0) return rc;
    }
    if (stages->mesh->zero > 1) return ash_fsdp_end(&stage->fsdp, err);
    if (works) ash_stages_note_grain(stage, round);
    if (stage->overlap_reduce && stage->is_last_micro_batch) {
        rc = ash_stages_reduce_rest(stage, err);
        if (rc < 0) return rc;
    } else if (works) {
        ash_grains_end(&stage->grains, 0);
    }
    for (size_t strand = 0; strand < stage->experts.opts.strand_count; strand++)
        if (round < ash_grains_of(&stage->experts, strand).count) ash_grains_end(&stage->experts, strand);
    return 0;
}

/* ---- the objective ----------------------------------------------------------------------------------------------- */

/* The rows of sequence s of a micro-batch, as the objective sees them. */
static struct ash_objective_rows objective_rows(const struct step *now, struct ash_feed *feed, size_t s,
                                                bool has_losses)
{
    const struct ash_objective *objective = now->task->objective;
    size_t first = s * feed->seq_tokens;

    return (struct ash_objective_rows){.step = now->step,
                                       .slot = feed->slots[s],
                                       .rows = feed->seq_tokens,
                                       .targets = feed->targets + first,
                                       .losses = has_losses ? feed->losses + first : NULL,
                                       .entropies =
                                           objective->has_entropy && has_losses ? feed->entropies + first : NULL,
                                       .scales = feed->scales + first,
                                       .entropy_scales = objective->has_entropy ? feed->entropy_scales + first : NULL};
}

/* The teacher runs a micro-batch just before it is learned from: another one may have been read since its forward. */
static int ask_teacher(const struct step *now, struct ash_stage_slot *slot, struct ash_err *err)
{
    const struct ash_teacher *teacher = now->task->teacher;
    struct ash_batch *batch = &slot->feed.batch;

    if (teacher == NULL || batch->rows == 0 || !ash_pass_has_head(slot->pass)) return 0;
    batch->teacher = teacher;
    return teacher->run(teacher->ctx, now->stages->exec, batch, err);
}

/* The scales of a micro-batch's rows, where this stage ends with their losses; or a teacher. */
static int weigh(struct step *now, struct ash_stage_slot *slot, size_t grain, struct ash_err *err)
{
    const struct ash_objective *objective = now->task->objective;
    struct ash_feed *feed = &slot->feed;
    bool needs_losses;
    int rc;

    ash_assert(grain == SIZE_MAX || grain < (size_t)now->stages->job->train.grains);
    if (now->task->teacher != NULL) return ask_teacher(now, slot, err);
    if (objective == NULL || grain == SIZE_MAX || feed->sequences == 0 || !ash_pass_has_head(slot->pass)) return 0;
    needs_losses = objective->needs_losses || objective->has_entropy;
    memset(feed->scales, 0, feed->batch.rows * sizeof(*feed->scales));
    memset(feed->entropy_scales, 0, feed->batch.rows * sizeof(*feed->entropy_scales));
    if (needs_losses) {
        rc = ash_pass_losses(slot->pass, feed->losses, objective->has_entropy ? feed->entropies : NULL, err);
        if (rc < 0) return rc;
    }
    for (size_t s = 0; s < feed->sequences; s++) {
        struct ash_objective_rows rows = objective_rows(now, feed, s, needs_losses);

        rc = objective->weigh(objective->ctx, &rows, &now->losses[grain], err);
        if (rc < 0) return rc;
    }
    feed->batch.scales = feed->scales;
    feed->batch.entropy_scales = objective->has_entropy ? feed->entropy_scales : NULL;
    return 0;
}

/* After the backward pass: record the losses. */
static int note_losses(struct step *now, struct ash_stage_slot *slot, size_t grain, struct ash_err *err)
{
    const struct ash_objective *objective = now->task->objective;
    struct ash_feed *feed = &slot->feed;
    int rc = 0;

    ash_assert(grain == SIZE_MAX || grain < (size_t)now->stages->job->train.grains);
    if (grain == SIZE_MAX || !ash_pass_has_head(slot->pass)) return 0;
    for (size_t s = 0; rc == 0 && s < feed->sequences; s++) {
        struct ash_objective_rows rows;

        if (objective == NULL) {
            now->losses[grain] += ash_feed_loss(feed, s);
            continue;
        }
        if (objective->look == NULL || now->task->shift > 0) continue;
        rows = objective_rows(now, feed, s, true);
        rc = objective->look(objective->ctx, &rows, err);
    }
    return rc;
}

static int run_backward(struct step *now, struct ash_stage *stage, size_t micro, struct ash_err *err)
{
    struct ash_stages *stages = now->stages;
    struct ash_stage_slot *slot = slot_of(stage, micro);
    size_t round = micro / stages->grain_micros, in_grain = micro % stages->grain_micros,
           grain = grain_of(stages, round);
    struct ash_pass_grads grads;
    int rc;

    stage->fsdp.is_last_of_grain = in_grain + 1 == stages->grain_micros;
    stage->fsdp.is_last_of_step = micro + 1 == now->order.micros;
    /* kept sums may follow the last grain that is computed: then nothing is reduced before all of it is over */
    stage->is_last_micro_batch = stage->fsdp.is_last_of_grain && stages->todo == NULL && round + 1 == stages->own.count;
    if (stage->leaf_sums != NULL) {
        stage->leaf_sums->round = round;
        stage->leaf_sums->chunk = (size_t)(stage - stages->chunks);
    }
    if (in_grain == 0) {
        rc = begin_grain(stages, stage, round, err);
        if (rc < 0) return rc;
    }
    if (is_empty(stages, slot)) return in_grain + 1 < stages->grain_micros ? 0 : end_grain(stages, stage, round, err);
    rc = ash_stages_recv_gradient(stages, slot, err);
    if (rc < 0) return rc;
    rc = weigh(now, slot, grain, err);
    if (rc < 0) return rc;
    grads =
        (struct ash_pass_grads){.sums = stage->grad_buffer,
                                .expert_sums = stages->mesh->size[ASH_MESH_EP] > 1 ? stage->expert_grad_buffers : NULL};
    rc = ash_pass_backward(slot->pass, now->task->scale, &grads, slot->feed.losses, err);
    if (rc < 0) return rc;
    ash_fault_point_meet(ASH_FAULT_BACKWARD);
    rc = ash_stages_send_gradient(stages, slot, err);
    if (rc < 0) return rc;
    rc = note_losses(now, slot, grain, err);
    if (rc < 0) return rc;
    return in_grain + 1 < stages->grain_micros ? 0 : end_grain(stages, stage, round, err);
}

int ash_stages_share_losses(const struct ash_stages *stages, double *losses, size_t count, struct ash_err *err)
{
    struct ash_mesh *mesh = stages->mesh;
    int rc;

    if (mesh->world == NULL) return 0;
    if (!ash_mesh_is_reporting_rank(mesh)) memset(losses, 0, count * sizeof(*losses));
    ash_meter_begin(&mesh->meter);
    rc = ash_group_all_reduce(mesh->world, losses, losses, count, ASH_COLL_F64, ASH_COLL_SUM, err);
    ash_meter_end(&mesh->meter, ASH_METER_COMM);
    return rc;
}

static void reset(struct ash_stage *stage)
{
    ash_grains_reset(&stage->grains);
    ash_grains_reset(&stage->experts);
    ash_fsdp_reset(&stage->fsdp);
    if (stage->overlap_reduce)
        memset(stage->reduce_started, 0, stage->state.shards->unit_count * sizeof(*stage->reduce_started));
}

static size_t count_grains(const struct step *now)
{
    size_t rounds = now->order.micros / now->stages->grain_micros, count = 0;

    for (size_t round = 0; round < rounds; round++)
        count += grain_of(now->stages, round) != SIZE_MAX;
    return count;
}

/* Drop salvaged sums of an earlier step, and take those of this one. */
static int begin_step(struct step *now, struct ash_err *err)
{
    struct ash_stages *stages = now->stages;
    const struct ash_stages_task *task = now->task;
    int rc = ash_stages_catch_up(stages, err);

    if (rc < 0) return rc;
    memset(now->losses, 0, (size_t)stages->job->train.grains * sizeof(*now->losses));
    for (size_t i = 0; i < stages->chunk_count; i++) {
        reset(&stages->chunks[i]);
        stages->chunks[i].leaf_sums = stages->chunks[i].fsdp.leaf_sums = task->sums;
        stages->chunks[i].listener = task->listener;
    }
    now->order = stages->order;
    stages->todo = NULL;
    stages->summed_step = 0;
    if (task->shift > 0) return 0;
    stages->summed_step = ash_stages_can_keep(stages) ? now->step + 1 : 0;
    if (!ash_stages_begin_kept(stages, now->step, now->losses)) return 0;
    stages->todo = stages->kept.todo;
    now->order.micros = stages->kept.todo_count * stages->grain_micros;
    /* not all ranks may have a pass that gathers weights */
    for (size_t i = 0; rc == 0 && i < stages->chunk_count; i++)
        rc = ash_fsdp_flush(&stages->chunks[i].fsdp, err);
    return rc;
}

/* All grains of the step are in the tree. */
static int end_step(struct step *now, struct ash_err *err)
{
    struct ash_stages *stages = now->stages;
    int rc = 0;

    for (size_t i = 0; rc == 0 && stages->todo != NULL && i < stages->chunk_count; i++)
        if (stages->chunks[i].overlap_reduce) rc = ash_stages_start_all(&stages->chunks[i], err);
    if (rc == 0) rc = ash_stages_reduce(stages, err);
    if (rc < 0) return rc;
    ash_stages_drop_kept(stages); /* it is in the sums */
    rc = ash_stages_share_losses(stages, now->losses, (size_t)stages->job->train.grains, err);
    if (rc < 0) stages->summed_step = 0; /* the losses were overwritten */
    return rc;
}

int ash_stages_train(struct ash_stages *stages, const struct ash_stages_task *task, uint64_t step, double *losses,
                     struct ash_err *err)
{
    struct step now = {.stages = stages, .task = task, .step = step, .losses = losses};
    int rc = begin_step(&now, err);

    stages->step_grains = count_grains(&now);
    for (size_t i = 0; rc == 0 && i < ash_stage_order_count(&now.order); i++) {
        struct ash_stage_op op = ash_stage_order_at(&now.order, i);
        struct ash_stage *stage = &stages->chunks[op.chunk];

        rc = op.backward ? run_backward(&now, stage, op.micro, err) : run_forward(&now, stage, op.micro, err);
    }
    return rc < 0 ? rc : end_step(&now, err);
}
