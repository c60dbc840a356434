/* stages: opening and closing the chunks of a rank. Micro-batches are in stages_run.c, reduction and update in
 * stages_update.c. */
#include "train/layout/stages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/host/window.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "train/layout/stages_priv.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static struct ash_pass_opts pass_opts(const struct ash_job *job, struct ash_mesh *mesh, size_t hidden)
{
    struct ash_pass_opts opts = ash_job_get_pass_opts(job);
    size_t micro = mesh->size[ASH_MESH_CP] > 1 ? 1 : (size_t)job->train.micro_batch;

    opts.max_rows = micro * (size_t)job->data.seq_tokens;
    opts.tp = ash_mesh_pass_axis(mesh, ASH_MESH_TP,
                                 ASH_AXIS_MESSAGE); /* pipelined reductions count their tiles as messages */
    opts.cp = ash_mesh_pass_axis(mesh, ASH_MESH_CP, opts.max_rows * hidden);
    opts.ep = ash_mesh_pass_axis(mesh, ASH_MESH_EP, opts.max_rows * hidden);
    opts.node = ash_mesh_tp_cp_axis(mesh);
    opts.shared_grads = ash_mesh_shares_gradients(mesh);
    return opts;
}

#define DEVICE_LOGITS_BYTES ((size_t)8 << 30)

/* On a device the gradients of all rows' logits at once, if they fit: then the output matrix's gradient is one product.
 * 0: as the pass likes it. */
static size_t head_rows(const struct ash_exec *exec, const struct ash_model_config *config, size_t max_rows,
                        bool is_bf16)
{
    size_t most = DEVICE_LOGITS_BYTES / (config->vocab * (is_bf16 ? sizeof(uint16_t) : sizeof(float)));

    return exec->memory->host_visible ? 0 : ash_min(max_rows, ash_max(most, ASH_K_GROUP));
}

static int open_slots(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    size_t hidden = ash_model_get_config(stage->state.model)->hidden;
    struct ash_pass_opts opts = pass_opts(stages->job, stages->mesh, hidden);
    int rc;

    opts.bf16_acts = stages->exec->ops->takes_bf16;
    opts.head_rows = head_rows(stages->exec, ash_model_get_config(stage->state.model), opts.max_rows,
                               opts.bf16_acts && stages->job->train.precision != ASH_JOB_FP32);
    opts.hooks = ash_stages_hooks(stage);
    opts.tp.weights = stage->tp_weights;
    if (ash_model_get_config(stage->state.model)->lora != NULL) /* the base is not in shared memory */
        opts.tp.same_node = opts.node.same_node = false;
    stage->slots = calloc(stage->slot_count, sizeof(*stage->slots));
    if (stage->slots == NULL) return ash_err_set(err, -ENOMEM, "out of memory for micro-batches");
    for (size_t i = 0; i < stage->slot_count; i++) {
        struct ash_stage_slot *slot = &stage->slots[i];
        rc = ash_feed_init(&slot->feed, (size_t)stages->job->data.seq_tokens, stages->micro_batch, err);
        if (rc < 0) return rc;
        rc = ash_pass_open(stage->state.model, stages->exec, &opts, &slot->pass, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Adapters over a base that stays mapped: new ones, those of a PEFT folder, or of a checkpoint. */
static int open_adapted(const struct ash_stages *stages, const struct ash_stages_source *source,
                        const struct ash_slice *slice, struct ash_model **model_out, struct ash_err *err)
{
    const struct ash_job *job = stages->job;
    const char *from = source->dir != NULL && ash_lora_exists(source->dir) ? source->dir : job->lora.adapter;
    struct ash_model *model = NULL;
    int rc;

    json_incref(source->config->source); /* a new model takes over one reference */
    rc = ash_model_blank_slice(source->config, slice, &model, err);
    if (rc < 0) {
        json_decref(source->config->source);
        return rc;
    }
    if (!source->is_blank)
        rc = from != NULL ? ash_lora_read(model, from, err) : ash_lora_init(model, (uint64_t)job->train.seed, err);
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    *model_out = model;
    return 0;
}

static int open_model(const struct ash_stages *stages, const struct ash_stages_source *source, size_t chunk,
                      struct ash_model **model_out, struct ash_err *err)
{
    struct ash_slice slice = ash_mesh_slice(stages->mesh, source->config, chunk, stages->chunk_count);

    ash_assert(chunk < stages->chunk_count);
    if (source->config->lora != NULL) return open_adapted(stages, source, &slice, model_out, err);
    if (source->is_blank) {
        json_incref(source->config->source); /* a new model takes over one reference */
        return ash_model_blank_slice(source->config, &slice, model_out, err);
    }
    if (source->dir != NULL && source->config->labels > 0)
        return ash_model_open_scorer(source->dir, &slice, (uint64_t)stages->job->train.seed, model_out, err);
    if (source->dir != NULL) return ash_model_open_slice(source->dir, &slice, model_out, err);
    json_incref(source->config->source); /* a new model takes over one reference */
    return ash_model_create_slice(source->config, &slice, (uint64_t)stages->job->train.seed, stages->exec->workers,
                                  model_out, err);
}

/* Has every rank of the sum a part that no other rank needs? */
static bool parts_differ(const struct ash_stages *stages, const struct ash_stage *stage)
{
    const struct ash_mesh *mesh = stages->mesh;

    if (mesh->data == NULL || mesh->size[ASH_MESH_CP] > 1) return false;
    if (mesh->zero > 0) return ash_group_size(mesh->data) == stage->state.shards->size;
    return ash_state_is_partitioned(&stage->state) && ash_group_size(mesh->data) == ash_mesh_replicas(mesh);
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

/* For gradients that are not sharded. Every rank's batches are separate grains, so experts that serve several ranks
 * have a strand of sums for each. */
static int open_sums(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_mesh *mesh = stages->mesh;
    const struct ash_model *model = stage->state.model;
    size_t size = ash_model_size(model), experts = ash_model_expert_size(model);
    bool served = mesh->size[ASH_MESH_EP] > 1 && experts > 0;
    struct ash_grains_opts opts = {.exec = stages->exec,
                                   .group = mesh->data,
                                   .peers = ash_mesh_shares_gradients(mesh) ? mesh->groups[ASH_MESH_CP] : NULL,
                                   .grain_count = (size_t)stages->job->train.grains,
                                   .strand_count = 1,
                                   .sum_size = size,
                                   .leaf_size = ash_model_grad_size(model),
                                   .in_windows = !mesh->is_device};
    int rc = list_wanted(stages, stage, err);

    if (rc < 0) return rc;
    opts.wanted = stage->wanted;
    opts.wanted_count = stage->wanted_count;
    opts.range_count = stage->overlap_reduce ? stage->state.shards->unit_count : 0;
    if (served) {
        opts.sum_size = size - experts;
        opts.unused = (struct ash_range){size - experts, experts};
    }
    rc = ash_grains_init(&stage->grains, &opts, err);
    if (rc < 0 || !served) return rc;
    opts.group = mesh->experts;
    opts.strand_count = mesh->size[ASH_MESH_EP];
    opts.sum_size = opts.leaf_size = experts;
    opts.unused = (struct ash_range){0};
    opts.in_windows = false;
    opts.wanted_count = opts.range_count = 0;
    return ash_grains_init(&stage->experts, &opts, err);
}

/* The weights of the tp peers in memory that this process sees. */
static int find_weights(struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_window *window = stage->state.tp_window != NULL ? stage->state.tp_window : stage->fsdp.slot_window;
    size_t ranks = ash_group_size(stage->state.part.tp_peers);

    stage->tp_weights = calloc(ranks, sizeof(*stage->tp_weights));
    if (stage->tp_weights == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        stage->tp_weights[r] = ash_window_data_of(window, r);
    return 0;
}

/* Take the model, also if it fails, in the job's precision. */
static int open_state(const struct ash_stages *stages, struct ash_stage *stage, struct ash_model *model,
                      const struct ash_state_part *part, struct ash_err *err)
{
    int precision = stages->job->train.precision;
    int rc = ash_state_init(&stage->state, stages->exec, model, precision != ASH_JOB_FP32, part, err);

    if (rc < 0)
        ash_model_close(model);
    else
        ash_model_use_fp8(model, precision == ASH_JOB_FP8);
    return rc;
}

static int open_chunk(struct ash_stages *stages, const struct ash_stages_source *source, size_t chunk,
                      struct ash_err *err)
{
    struct ash_mesh *mesh = stages->mesh;
    struct ash_stage *stage = &stages->chunks[chunk];
    size_t grains = (size_t)stages->job->train.grains;
    struct ash_state_part part = {.is_counted = ash_mesh_is_whole(mesh) || /* then there is no sum over ranks */
                                                (mesh->at[ASH_MESH_DP] == 0 && mesh->at[ASH_MESH_CP] == 0),
                                  .is_dense_counted = mesh->at[ASH_MESH_EP] == 0,
                                  .replica = ash_mesh_replica(mesh),
                                  .replicas = ash_mesh_replicas(mesh),
                                  .node_replicas = mesh->node_replicas,
                                  .node_shard_group = ash_mesh_node_shard_group(mesh),
                                  .tp_peers = source->config->lora == NULL ? ash_mesh_tp_peers(mesh) : NULL,
                                  .is_blank = source->is_blank};
    struct ash_model *model = NULL;
    int rc = open_model(stages, source, chunk, &model, err);

    if (rc < 0) return rc;
    rc = open_state(stages, stage, model, &part, err);
    if (rc < 0) return rc;
    ash_optimizer_init(&stage->optimizer, &stages->job->optimizer, &stage->state);
    stage->optimizer.flat = mesh->zero < 2;
    rc = ash_fsdp_init(&stage->fsdp, &stage->state, mesh, grains, stages->grain_micros, err);
    if (rc < 0) return rc;
    rc = ash_stages_open_overlap(stages, stage, err);
    if (rc < 0) return rc;
    stage->slot_count = ash_stage_order_depth(&stages->order, chunk);
    if (part.tp_peers != NULL) {
        rc = find_weights(stage, err);
        if (rc < 0) return rc;
    }
    rc = open_slots(stages, stage, err);
    if (rc < 0) return rc;
    stage->expert_grad_buffers = calloc(mesh->size[ASH_MESH_EP], sizeof(*stage->expert_grad_buffers));
    if (stage->expert_grad_buffers == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for the experts' gradients");
    return mesh->zero > 1 ? 0 : open_sums(stages, stage, err);
}

/* Of this many grains, those that this rank works through in a step: its own, and along ep as many as the rank with the
 * most, since all serve all. */
static size_t rounds_of(const struct ash_mesh *mesh, size_t grains)
{
    size_t rank = ash_mesh_data_rank(mesh), first = rank - mesh->at[ASH_MESH_EP], most = 0;

    if (mesh->zero > 1) return ash_fsdp_rounds(mesh, grains);
    for (size_t r = first; r < first + mesh->size[ASH_MESH_EP]; r++)
        most = ash_max(most, ash_grains_partition(grains, r, ash_mesh_data_size(mesh)).count);
    return most;
}

static size_t micro_batch_of(const struct ash_job *job, const struct ash_mesh *mesh)
{
    return mesh->size[ASH_MESH_CP] > 1 ? 1 : (size_t)job->train.micro_batch;
}

/* Micro-batches of a grain. */
static size_t grain_micros(const struct ash_job *job, const struct ash_mesh *mesh)
{
    return (size_t)(job->train.global_batch / job->train.grains) / micro_batch_of(job, mesh);
}

static struct ash_stage_order order_of(const struct ash_job *job, const struct ash_mesh *mesh)
{
    return (struct ash_stage_order){.rank = mesh->at[ASH_MESH_PP],
                                    .ranks = mesh->size[ASH_MESH_PP],
                                    .chunks = (size_t)job->mesh.interleave,
                                    .micros = rounds_of(mesh, (size_t)job->train.grains) * grain_micros(job, mesh)};
}

int ash_stages_check(const struct ash_job *job, const struct ash_mesh *mesh, struct ash_err *err)
{
    struct ash_stage_order order = order_of(job, mesh);

    return ash_stage_order_check(&order, err);
}

/* How the rank's share of a step is cut. */
static int plan(struct ash_stages *stages, struct ash_err *err)
{
    const struct ash_job *job = stages->job;
    const struct ash_mesh *mesh = stages->mesh;

    stages->micro_batch = micro_batch_of(job, mesh);
    stages->grain_micros = grain_micros(job, mesh);
    stages->own = ash_grains_partition((size_t)job->train.grains, ash_mesh_data_rank(mesh), ash_mesh_data_size(mesh));
    stages->order = order_of(job, mesh);
    return ash_stage_order_check(&stages->order, err);
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
    rc = ash_mesh_check(mesh, source->config, job, err);
    if (rc < 0) return rc;
    rc = plan(stages, err);
    if (rc < 0) return rc;
    stages->chunks = calloc(stages->chunk_count, sizeof(*stages->chunks));
    if (stages->chunks == NULL) return ash_err_set(err, -ENOMEM, "out of memory for stages");
    rc = ash_feed_init(&stages->feed, (size_t)job->data.seq_tokens, stages->micro_batch, err);
    if (rc < 0) goto fail;
    for (size_t i = 0; i < stages->chunk_count; i++) {
        rc = open_chunk(stages, source, i, err);
        if (rc < 0) goto fail;
    }
    rc = ash_stages_open_channels(stages, source->config, err);
    if (rc < 0) goto fail;
    return 0;

fail:
    ash_stages_close(stages);
    return rc;
}

void ash_stage_close_slots(struct ash_stage *stage)
{
    for (size_t i = 0; stage->slots != NULL && i < stage->slot_count; i++) {
        ash_pass_close(stage->slots[i].pass);
        ash_feed_fini(&stage->slots[i].feed);
    }
    free(stage->slots);
    stage->slots = NULL;
}

static void close_chunk(struct ash_stage *stage)
{
    ash_stage_close_slots(stage);
    ash_grains_fini(&stage->grains);
    ash_grains_fini(&stage->experts);
    free(stage->wanted);
    free(stage->reduce_started);
    free(stage->expert_grad_buffers);
    free(stage->tp_weights);
    ash_fsdp_fini(&stage->fsdp);
    ash_state_fini(&stage->state);
}

void ash_stages_close(struct ash_stages *stages)
{
    ash_stages_close_channels(stages);
    for (size_t i = 0; stages->chunks != NULL && i < stages->chunk_count; i++)
        close_chunk(&stages->chunks[i]);
    ash_stages_drop_kept(stages);
    free(stages->chunks);
    ash_feed_fini(&stages->feed);
    memset(stages, 0, sizeof(*stages));
}
