/* stages: opening the chunks of a rank, and what follows a step: joining, norm, update. The way of micro-batches is in
 * stages_run.c. */
#include "train/layout/stages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collective/host/window.h"
#include "train/layout/stages_priv.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static struct ash_pass_opts pass_opts(const struct ash_job *job, struct ash_mesh *mesh, size_t hidden)
{
    struct ash_pass_opts opts = ash_job_pass_opts(job);
    size_t micro = mesh->size[ASH_MESH_CP] > 1 ? 1 : (size_t)job->train.micro_batch;

    opts.max_rows = micro * (size_t)job->data.seq_tokens;
    opts.tp = ash_mesh_axis(mesh, ASH_MESH_TP, ASH_AXIS_MESSAGE); /* chains count their tiles as messages */
    opts.cp = ash_mesh_axis(mesh, ASH_MESH_CP, opts.max_rows * hidden);
    opts.ep = ash_mesh_axis(mesh, ASH_MESH_EP, opts.max_rows * hidden);
    opts.node = ash_mesh_together(mesh);
    opts.shared_grads = ash_mesh_one_sum(mesh);
    return opts;
}

static int open_slots(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    size_t hidden = ash_model_config(stage->state.model)->hidden;
    struct ash_pass_opts opts = pass_opts(stages->job, stages->mesh, hidden);
    int rc;

    opts.hooks = ash_stages_hooks(stage);
    opts.tp.weights = stage->tp_weights;
    stage->slots = calloc(stage->slot_count, sizeof(*stage->slots));
    if (stage->slots == NULL) return ash_err_set(err, -ENOMEM, "out of memory for micro-batches");
    for (size_t i = 0; i < stage->slot_count; i++) {
        struct ash_stage_slot *slot = &stage->slots[i];
        rc = ash_feed_init(&slot->feed, (size_t)stages->job->data.seq_tokens, stages->micro_batch, err);
        if (rc == 0) rc = ash_pass_open(stage->state.model, stages->exec, &opts, &slot->pass, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int open_model(const struct ash_stages *stages, const struct ash_stages_source *source, size_t chunk,
                      struct ash_model **model_out, struct ash_err *err)
{
    struct ash_slice slice = ash_mesh_slice(stages->mesh, source->config, chunk, stages->chunk_count);

    if (source->dir != NULL) return ash_model_open_slice(source->dir, &slice, model_out, err);
    json_incref(source->config->source); /* a new model takes over one reference */
    return ash_model_create_slice(source->config, &slice, (uint64_t)stages->job->train.seed, stages->exec->workers,
                                  model_out, err);
}

/* Does no rank of the sum but this one ask for its part: have all of them parts of their own? */
static bool parts_differ(const struct ash_stages *stages, const struct ash_stage *stage)
{
    const struct ash_mesh *mesh = stages->mesh;

    if (mesh->data == NULL || mesh->size[ASH_MESH_CP] > 1) return false;
    if (mesh->zero > 0) return ash_group_size(mesh->data) == stage->state.shards->size;
    return ash_state_parted(&stage->state) && ash_group_size(mesh->data) == ash_mesh_replicas(mesh);
}

/* What of a step's gradients this rank updates. */
static int list_wanted(const struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_shards *shards = stage->state.shards;

    if (!parts_differ(stages, stage)) return 0;
    stage->wanted = calloc(shards->unit_count, sizeof(*stage->wanted));
    if (stage->wanted == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a shard's parts");
    if (stages->mesh->zero == 0)
        stage->wanted[stage->wanted_count++] = (struct ash_range){stage->state.own.first, stage->state.own.count};
    for (size_t i = 0; stages->mesh->zero > 0 && i < shards->unit_count; i++)
        stage->wanted[stage->wanted_count++] =
            (struct ash_range){shards->units[i].own.first, shards->units[i].own.count};
    return 0;
}

/* Where gradients are whole. Every rank's batches are grains of their own, so experts that serve several ranks have a
 * tree of sums for each. */
static int open_sums(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_mesh *mesh = stages->mesh;
    const struct ash_model *model = stage->state.model;
    size_t size = ash_model_size(model), experts = ash_model_expert_size(model);
    bool served = mesh->size[ASH_MESH_EP] > 1 && experts > 0;
    struct ash_grains_opts opts = {.exec = stages->exec,
                                   .group = mesh->data,
                                   .along = ash_mesh_one_sum(mesh) ? mesh->groups[ASH_MESH_CP] : NULL,
                                   .grain_count = (size_t)stages->job->train.grains,
                                   .lane_count = 1,
                                   .sum_size = size,
                                   .leaf_size = ash_model_grad_size(model),
                                   .in_windows = true};
    int rc = list_wanted(stages, stage, err);

    if (rc < 0) return rc;
    opts.wanted = stage->wanted;
    opts.wanted_count = stage->wanted_count;
    opts.runs = stage->joins ? stage->state.shards->unit_count : 0;
    if (served) {
        opts.sum_size = size - experts;
        opts.unused = (struct ash_range){size - experts, experts};
    }
    if ((rc = ash_grains_init(&stage->grains, &opts, err)) < 0 || !served) return rc;
    opts.group = mesh->experts;
    opts.lane_count = mesh->size[ASH_MESH_EP];
    opts.sum_size = opts.leaf_size = experts;
    opts.unused = (struct ash_range){0};
    opts.in_windows = false;
    opts.wanted_count = opts.runs = 0;
    return ash_grains_init(&stage->experts, &opts, err);
}

/* The memory that the weights of the ranks of tp are in, as this process sees it. */
static int find_weights(struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_window *window = stage->state.readable != NULL ? stage->state.readable : stage->fsdp.slot_window;
    size_t ranks = ash_group_size(stage->state.part.readers);

    stage->tp_weights = calloc(ranks, sizeof(*stage->tp_weights));
    if (stage->tp_weights == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        stage->tp_weights[r] = ash_window_data_of(window, r);
    return 0;
}

static int open_chunk(struct ash_stages *stages, const struct ash_stages_source *source, size_t chunk,
                      struct ash_err *err)
{
    struct ash_mesh *mesh = stages->mesh;
    struct ash_stage *stage = &stages->chunks[chunk];
    size_t grains = (size_t)stages->job->train.grains;
    struct ash_state_part part = {.stands = ash_mesh_is_whole(mesh) || /* then nobody sums over ranks */
                                            (mesh->at[ASH_MESH_DP] == 0 && mesh->at[ASH_MESH_CP] == 0),
                                  .stands_dense = mesh->at[ASH_MESH_EP] == 0,
                                  .replica = ash_mesh_replica(mesh),
                                  .replicas = ash_mesh_replicas(mesh),
                                  .twins = mesh->twins,
                                  .sharers = ash_mesh_sharers(mesh),
                                  .readers = ash_mesh_readers(mesh)};
    struct ash_model *model = NULL;
    int rc = open_model(stages, source, chunk, &model, err);

    if (rc < 0) return rc;
    rc = ash_state_init(&stage->state, stages->exec, model, stages->job->train.precision == ASH_PRECISION_BF16, &part,
                        err);
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    ash_optimizer_init(&stage->optimizer, &stages->job->optimizer, &stage->state);
    stage->optimizer.flat = mesh->zero < 2;
    rc = ash_fsdp_init(&stage->fsdp, &stage->state, mesh, grains, stages->grain_micros, err);
    if (rc < 0) return rc;
    if ((rc = ash_stages_open_joins(stages, stage, err)) < 0) return rc;
    stage->slot_count = ash_pipeline_depth(&stages->pipeline, chunk);
    if (part.readers != NULL && (rc = find_weights(stage, err)) < 0) return rc;
    if ((rc = open_slots(stages, stage, err)) < 0) return rc;
    stage->expert_leaves = calloc(mesh->size[ASH_MESH_EP], sizeof(*stage->expert_leaves));
    if (stage->expert_leaves == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the experts' gradients");
    return mesh->zero > 1 ? 0 : open_sums(stages, stage, err);
}

/* Grains that this rank goes through in a step: its own, and along ep as many as the rank with the most, since all
 * serve all. */
static size_t rounds_of(const struct ash_stages *stages)
{
    const struct ash_mesh *mesh = stages->mesh;
    size_t rank = ash_mesh_data_rank(mesh), first = rank - mesh->at[ASH_MESH_EP], most = 0;

    if (mesh->zero > 1) return ash_fsdp_rounds(mesh, (size_t)stages->job->train.grains);
    for (size_t r = first; r < first + mesh->size[ASH_MESH_EP]; r++) {
        size_t count = ash_grains_dealt((size_t)stages->job->train.grains, r, ash_mesh_data_size(mesh)).count;
        if (count > most) most = count;
    }
    return most;
}

/* How the rank's share of a step is cut. */
static int plan(struct ash_stages *stages, struct ash_err *err)
{
    const struct ash_job_train *train = &stages->job->train;
    const struct ash_mesh *mesh = stages->mesh;
    size_t grain_slots = (size_t)(train->global_batch / train->grains);

    stages->micro_batch = mesh->size[ASH_MESH_CP] > 1 ? 1 : (size_t)train->micro_batch;
    stages->grain_micros = grain_slots / stages->micro_batch;
    stages->own = ash_grains_dealt((size_t)train->grains, ash_mesh_data_rank(mesh), ash_mesh_data_size(mesh));
    stages->pipeline = (struct ash_pipeline){.rank = mesh->at[ASH_MESH_PP],
                                             .ranks = mesh->size[ASH_MESH_PP],
                                             .chunks = stages->chunk_count,
                                             .micros = rounds_of(stages) * stages->grain_micros};
    return ash_pipeline_check(&stages->pipeline, err);
}

int ash_stages_open(struct ash_stages *stages, const struct ash_job *job, struct ash_exec *exec, struct ash_mesh *mesh,
                    const struct ash_stages_source *source, struct ash_err *err)
{
    int rc;

    memset(stages, 0, sizeof(*stages));
    stages->job = job;
    stages->exec = exec;
    stages->mesh = mesh;
    stages->chunk_count = (size_t)job->mesh.interleave;
    if ((rc = ash_mesh_check(mesh, source->config, job, err)) < 0) return rc;
    if ((rc = plan(stages, err)) < 0) return rc;
    stages->chunks = calloc(stages->chunk_count, sizeof(*stages->chunks));
    if (stages->chunks == NULL) return ash_err_set(err, -ENOMEM, "out of memory for stages");
    if ((rc = ash_feed_init(&stages->feed, (size_t)job->data.seq_tokens, stages->micro_batch, err)) < 0) goto fail;
    for (size_t i = 0; i < stages->chunk_count; i++)
        if ((rc = open_chunk(stages, source, i, err)) < 0) goto fail;
    if ((rc = ash_stages_open_lines(stages, source->config, err)) < 0) goto fail;
    return 0;

fail:
    ash_stages_close(stages);
    return rc;
}

static void close_chunk(struct ash_stage *stage)
{
    ash_grains_fini(&stage->grains);
    ash_grains_fini(&stage->experts);
    free(stage->wanted);
    free(stage->joined);
    free(stage->expert_leaves);
    for (size_t i = 0; stage->slots != NULL && i < stage->slot_count; i++) {
        ash_pass_close(stage->slots[i].pass);
        ash_feed_fini(&stage->slots[i].feed);
    }
    free(stage->slots);
    free(stage->tp_weights);
    ash_fsdp_fini(&stage->fsdp);
    ash_state_fini(&stage->state);
}

void ash_stages_close(struct ash_stages *stages)
{
    ash_stages_close_lines(stages);
    for (size_t i = 0; stages->chunks != NULL && i < stages->chunk_count; i++)
        close_chunk(&stages->chunks[i]);
    free(stages->chunks);
    ash_feed_fini(&stages->feed);
    memset(stages, 0, sizeof(*stages));
}

/* ---- behind the last micro-batch ----------------------------------------------------------------------------------
 */

/* The last rank of cp holds the sums over all tokens, unless they have one. */
static int spread_over_tokens(struct ash_stages *stages, struct ash_stage *stage, size_t count, struct ash_err *err)
{
    struct ash_group *cp = stages->mesh->groups[ASH_MESH_CP];

    return cp == NULL || ash_mesh_one_sum(stages->mesh)
               ? 0
               : ash_group_broadcast(cp, stage->grads, count * sizeof(float), ash_group_size(cp) - 1, err);
}

/* Over the ranks' grains. */
static int join_sums(struct ash_stage *stage, struct ash_err *err)
{
    int rc = ash_grains_finish(&stage->grains, NULL, err);

    if (rc < 0 || stage->experts.opts.lane_count == 0) return rc;
    return ash_grains_finish(&stage->experts, stage->grads + ash_model_dense_size(stage->state.model), err);
}

static int join_chunk(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    int rc;

    if (stages->mesh->zero > 1) {
        rc = ash_fsdp_finish(&stage->fsdp, &stage->grads, err);
        return rc < 0 ? rc : spread_over_tokens(stages, stage, stage->state.shards->total, err);
    }
    stage->grads = ash_grains_sum(&stage->grains);
    if ((rc = ash_mesh_meet_tokens(stages->mesh, err)) < 0) return rc;
    if (ash_mesh_leads(stages->mesh) && (rc = join_sums(stage, err)) < 0) return rc;
    if ((rc = ash_mesh_meet_tokens(stages->mesh, err)) < 0) return rc;
    return spread_over_tokens(stages, stage, ash_model_size(stage->state.model), err);
}

int ash_stages_join(struct ash_stages *stages, struct ash_err *err)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        int rc;

        ash_meter_begin(&stages->mesh->meter);
        rc = join_chunk(stages, &stages->chunks[i], err);
        ash_meter_end(&stages->mesh->meter, ASH_METER_COMM);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_stages_norm(struct ash_stages *stages, double *norm_out, struct ash_err *err)
{
    struct ash_optimizer *optimizers[ASH_MODEL_LAYERS_MAX];
    const float *grads[ASH_MODEL_LAYERS_MAX];

    for (size_t i = 0; i < stages->chunk_count; i++) {
        optimizers[i] = &stages->chunks[i].optimizer;
        grads[i] = stages->chunks[i].grads;
    }
    return ash_optimizer_norm(optimizers, grads, stages->chunk_count, stages->mesh, norm_out, err);
}

int ash_stages_update(struct ash_stages *stages, double norm, double lr, struct ash_err *err)
{
    struct ash_meter *meter = &stages->mesh->meter;

    for (size_t i = 0; i < stages->chunk_count; i++) {
        int rc;

        ash_optimizer_update(&stages->chunks[i].optimizer, stages->chunks[i].grads, norm, lr);
        ash_meter_begin(meter);
        rc = ash_state_advance(&stages->chunks[i].state, err);
        if (rc == 0) rc = ash_fsdp_spread(&stages->chunks[i].fsdp, err);
        ash_meter_end(meter, ASH_METER_COMM);
        if (rc < 0) return rc;
    }
    ash_meter_begin(meter);
    int rc = ash_stages_follow(stages, err);
    ash_meter_end(meter, ASH_METER_COMM);
    return rc;
}

void ash_stages_count_step(struct ash_stages *stages)
{
    for (size_t i = 0; i < stages->chunk_count; i++)
        stages->chunks[i].state.step++;
}

int ash_stages_hash(const struct ash_stages *stages, uint64_t *hash_out, struct ash_err *err)
{
    const struct ash_state *states[ASH_MODEL_LAYERS_MAX];

    for (size_t i = 0; i < stages->chunk_count; i++)
        states[i] = &stages->chunks[i].state;
    return ash_state_hash_all(states, stages->chunk_count, ash_mesh_is_whole(stages->mesh) ? NULL : stages->mesh->world,
                              hash_out, err);
}
