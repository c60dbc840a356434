/* stages: what travels between the stages of a pipeline: the stream forward, its gradient backward, and between the
 * first and the last stage what a tied embedding shares. */
#include "train/layout/stages_priv.h"

/* The first stage has the embedding, the last a copy of it. */
static bool is_tied(const struct ash_stages *stages, const struct ash_model_config *config)
{
    return config->tied && stages->pipeline.ranks > 1;
}

static int open_line(const struct ash_stages *stages, size_t from, size_t to, size_t bytes,
                     struct ash_channel **line_out, struct ash_err *err)
{
    size_t slots = 2 * stages->pipeline.ranks * stages->chunk_count + 2; /* more than a stage runs ahead */

    return ash_channel_open(stages->mesh->world, ash_mesh_stage_rank(stages->mesh, from),
                            ash_mesh_stage_rank(stages->mesh, to), bytes, slots, line_out, err);
}

/* What is sent into is opened first: nobody waits for that. */
static int open_ring(struct ash_stages *stages, size_t bytes, struct ash_err *err)
{
    const struct ash_pipeline *p = &stages->pipeline;
    struct ash_stage_lines *lines = &stages->lines;
    bool ring = p->chunks > 1, next = ring || p->rank + 1 < p->ranks, before = ring || p->rank > 0;
    size_t behind = (p->rank + 1) % p->ranks, front = (p->rank + p->ranks - 1) % p->ranks;
    int rc;

    if (next && (rc = open_line(stages, p->rank, behind, bytes, &lines->forward_to, err)) < 0) return rc;
    if (before && (rc = open_line(stages, p->rank, front, bytes, &lines->backward_to, err)) < 0) return rc;
    if (before && (rc = open_line(stages, front, p->rank, bytes, &lines->forward_from, err)) < 0) return rc;
    if (next && (rc = open_line(stages, behind, p->rank, bytes, &lines->backward_from, err)) < 0) return rc;
    return 0;
}

#define TIE_BYTES ((size_t)1 << 20) /* the embedding travels in pieces */

/* The embedding of the first stage, or its copy on the last. */
static const struct ash_param *tied_of(const struct ash_stage *stage)
{
    const struct ash_model *model = stage->state.model;

    return ash_model_param(model, ash_model_slice(model)->embed ? 0 : ash_model_param_count(model) - 1);
}

static int open_tie(struct ash_stages *stages, struct ash_err *err)
{
    size_t rank = stages->pipeline.rank, last = stages->pipeline.ranks - 1, other = rank == 0 ? last : 0;
    struct ash_stage_lines *lines = &stages->lines;
    const struct ash_param *embed;
    int rc;

    if (rank != 0 && rank != last) return 0;
    embed = tied_of(&stages->chunks[rank == 0 ? 0 : stages->chunk_count - 1]);
    rc = ash_buffer_init(&stages->tie, stages->exec->memory, embed->count * sizeof(float), "a tied embedding", err);
    if (rc < 0) return rc;
    if ((rc = open_line(stages, rank, other, TIE_BYTES, &lines->tie_to, err)) < 0) return rc;
    return open_line(stages, other, rank, TIE_BYTES, &lines->tie_from, err);
}

int ash_stages_open_lines(struct ash_stages *stages, const struct ash_model_config *config, struct ash_err *err)
{
    size_t rows = stages->micro_batch * (size_t)stages->job->data.seq_tokens;
    int rc;

    if (stages->pipeline.ranks == 1) return 0;
    if ((rc = open_ring(stages, rows * config->hidden * sizeof(float), err)) < 0) return rc;
    return is_tied(stages, config) ? open_tie(stages, err) : 0;
}

void ash_stages_close_lines(struct ash_stages *stages)
{
    struct ash_stage_lines *lines = &stages->lines;

    ash_channel_close(lines->forward_to);
    ash_channel_close(lines->forward_from);
    ash_channel_close(lines->backward_to);
    ash_channel_close(lines->backward_from);
    ash_channel_close(lines->tie_to);
    ash_channel_close(lines->tie_from);
    ash_buffer_fini(&stages->tie);
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static size_t stream_bytes(const struct ash_stage_slot *slot)
{
    return ash_pass_stream_count(slot->pass, slot->feed.batch.rows) * sizeof(float);
}

/* Waiting for another stage is idling; the copy itself is little beside it. */
static int take(struct ash_stages *stages, struct ash_channel *line, float *data, size_t bytes, struct ash_err *err)
{
    int rc;

    ash_meter_begin(&stages->mesh->meter);
    rc = ash_channel_recv(line, data, bytes, err);
    ash_meter_end(&stages->mesh->meter, ASH_METER_IDLE);
    return rc;
}

static int pass_on(struct ash_stages *stages, struct ash_channel *line, const float *data, size_t bytes,
                   struct ash_err *err)
{
    int rc;

    ash_meter_begin(&stages->mesh->meter);
    rc = ash_channel_send(line, data, bytes, err);
    ash_meter_end(&stages->mesh->meter, ASH_METER_COMM);
    return rc;
}

int ash_stages_take_input(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_embed(slot->pass)) return 0;
    return take(stages, stages->lines.forward_from, ash_pass_input(slot->pass), stream_bytes(slot), err);
}

int ash_stages_pass_output(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_head(slot->pass)) return 0;
    return pass_on(stages, stages->lines.forward_to, ash_pass_output(slot->pass), stream_bytes(slot), err);
}

int ash_stages_take_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_head(slot->pass)) return 0;
    return take(stages, stages->lines.backward_from, ash_pass_gradient(slot->pass), stream_bytes(slot), err);
}

int ash_stages_pass_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_embed(slot->pass)) return 0;
    return pass_on(stages, stages->lines.backward_to, ash_pass_gradient(slot->pass), stream_bytes(slot), err);
}

/* ---- a tied embedding -------------------------------------------------------------------------------------------- */

/* This chunk's embedding, or its copy; NULL where it has none or nobody shares it. */
static const struct ash_param *tied_param(const struct ash_stages *stages, const struct ash_stage *stage)
{
    const struct ash_slice *slice = ash_model_slice(stage->state.model);

    if (stages->lines.tie_to == NULL || !(slice->embed || slice->head)) return NULL;
    return tied_of(stage);
}

int ash_stages_tie(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_param *param = tied_param(stages, stage);
    float *sum;
    int rc;

    if (param == NULL) return 0;
    sum = stage->leaf + param->grad_offset;
    if (param->is_tied_copy) return ash_channel_send(stages->lines.tie_to, sum, param->count * sizeof(float), err);
    rc = ash_channel_recv(stages->lines.tie_from, stages->tie.data, param->count * sizeof(float), err);
    if (rc < 0) return rc;
    stages->exec->ops->row->add(stages->exec, sum, stages->tie.data, param->count, sum);
    return 0;
}

int ash_stages_follow(struct ash_stages *stages, struct ash_err *err)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        struct ash_stage *stage = &stages->chunks[i];
        const struct ash_param *param = tied_param(stages, stage);
        const void *data;
        size_t bytes;
        int rc;

        if (param == NULL) continue;
        bytes = param->count * ash_fsdp_width(&stage->fsdp);
        if ((rc = ash_fsdp_settle(&stage->fsdp, err)) < 0) return rc;
        if (!param->is_tied_copy) {
            rc = ash_fsdp_whole(&stage->fsdp, param, &data, err);
            if (rc == 0) rc = ash_channel_send(stages->lines.tie_to, data, bytes, err);
        } else {
            rc = ash_channel_recv(stages->lines.tie_from, stages->tie.data, bytes, err);
            if (rc == 0) ash_fsdp_keep(&stage->fsdp, param, stages->tie.data);
            if (rc == 0) rc = ash_state_meet(&stage->state, err);
        }
        if (rc < 0) return rc;
    }
    return 0;
}
