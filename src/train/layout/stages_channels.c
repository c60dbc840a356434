/* stages: messages between the stages of a pipeline: activations forward, their gradients backward, and between the
 * first and the last stage the tied embedding's weights and gradients. */
#include "train/layout/stages_priv.h"

#include "base/assert.h"

/* The first stage has the embedding, the last a copy of it. */
static bool is_tied(const struct ash_stages *stages, const struct ash_model_config *config)
{
    return config->tied && config->lora == NULL && stages->order.ranks > 1; /* a frozen embedding stays as it is */
}

/* A channel's messages. */
struct cargo {
    const char *name; /* for the flight recorder */
    size_t bytes;     /* of a slot */
};

static int open_channel(const struct ash_stages *stages, size_t from, size_t to, const struct cargo *cargo,
                        struct ash_channel **channel_out, struct ash_err *err)
{
    size_t slots = 2 * stages->order.ranks * stages->chunk_count + 2; /* more than a stage runs ahead */
    int rc = ash_channel_open(stages->mesh->world, ash_mesh_stage_rank(stages->mesh, from),
                              ash_mesh_stage_rank(stages->mesh, to), cargo->bytes, slots, channel_out, err);

    ash_assert(from < stages->order.ranks);
    ash_assert(to < stages->order.ranks);
    if (rc == 0) ash_channel_set_name(*channel_out, cargo->name);
    return rc;
}

/* Sending ends are opened first: that never blocks. */
static int open_ring(struct ash_stages *stages, size_t bytes, struct ash_err *err)
{
    const struct ash_stage_order *p = &stages->order;
    struct ash_stage_channels *channels = &stages->channels;
    bool ring = p->chunks > 1, next = ring || p->rank + 1 < p->ranks, before = ring || p->rank > 0;
    size_t after = (p->rank + 1) % p->ranks, previous = (p->rank + p->ranks - 1) % p->ranks;
    const struct cargo forward = {"pp fwd", bytes}, backward = {"pp bwd", bytes};
    int rc;

    ash_assert(p->rank < p->ranks);
    if (next) {
        rc = open_channel(stages, p->rank, after, &forward, &channels->forward_to, err);
        if (rc < 0) return rc;
    }
    if (before) {
        rc = open_channel(stages, p->rank, previous, &backward, &channels->backward_to, err);
        if (rc < 0) return rc;
    }
    if (before) {
        rc = open_channel(stages, previous, p->rank, &forward, &channels->forward_from, err);
        if (rc < 0) return rc;
    }
    if (next) {
        rc = open_channel(stages, after, p->rank, &backward, &channels->backward_from, err);
        if (rc < 0) return rc;
    }
    return 0;
}

#define TIE_BYTES ((size_t)1 << 20) /* the embedding is sent in pieces */

/* The embedding of the first stage, or its copy on the last. */
static const struct ash_param *tied_of(const struct ash_stage *stage)
{
    const struct ash_model *model = stage->state.model;

    return ash_model_param(model, ash_model_slice(model)->embed ? 0 : ash_model_param_count(model) - 1);
}

static int open_tie(struct ash_stages *stages, struct ash_err *err)
{
    size_t rank = stages->order.rank, last = stages->order.ranks - 1, other = rank == 0 ? last : 0;
    const struct cargo tie = {"pp tie", TIE_BYTES};
    struct ash_stage_channels *channels = &stages->channels;
    const struct ash_param *embed;
    int rc;

    if (rank != 0 && rank != last) return 0;
    embed = tied_of(&stages->chunks[rank == 0 ? 0 : stages->chunk_count - 1]);
    rc = ash_buffer_init(&stages->tie, stages->exec->memory, embed->count * sizeof(float), "a tied embedding", err);
    if (rc < 0) return rc;
    rc = open_channel(stages, rank, other, &tie, &channels->tie_to, err);
    if (rc < 0) return rc;
    return open_channel(stages, other, rank, &tie, &channels->tie_from, err);
}

int ash_stages_open_channels(struct ash_stages *stages, const struct ash_model_config *config, struct ash_err *err)
{
    size_t rows = stages->micro_batch * (size_t)stages->job->data.seq_tokens;
    int rc;

    if (stages->order.ranks == 1) return 0;
    rc = open_ring(stages, rows * config->hidden * sizeof(float), err);
    if (rc < 0) return rc;
    return is_tied(stages, config) ? open_tie(stages, err) : 0;
}

void ash_stages_close_channels(struct ash_stages *stages)
{
    struct ash_stage_channels *channels = &stages->channels;

    ash_channel_close(channels->forward_to);
    ash_channel_close(channels->forward_from);
    ash_channel_close(channels->backward_to);
    ash_channel_close(channels->backward_from);
    ash_channel_close(channels->tie_to);
    ash_channel_close(channels->tie_from);
    ash_buffer_fini(&stages->tie);
    *channels = (struct ash_stage_channels){0};
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static size_t activation_bytes(const struct ash_stage_slot *slot)
{
    return ash_pass_stream_count(slot->pass, &slot->feed.batch) * sizeof(float);
}

/* Waiting for another stage is idling; the copy itself is short compared with it. */
static int receive(struct ash_stages *stages, struct ash_channel *channel, float *data, size_t bytes,
                   struct ash_err *err)
{
    int rc;

    ash_meter_begin(&stages->mesh->meter);
    rc = ash_channel_recv(channel, data, bytes, err);
    ash_meter_end(&stages->mesh->meter, ASH_METER_IDLE);
    return rc;
}

static int send(struct ash_stages *stages, struct ash_channel *channel, const float *data, size_t bytes,
                struct ash_err *err)
{
    int rc;

    ash_meter_begin(&stages->mesh->meter);
    rc = ash_channel_send(channel, data, bytes, err);
    ash_meter_end(&stages->mesh->meter, ASH_METER_COMM);
    return rc;
}

int ash_stages_recv_input(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_embed(slot->pass)) return 0;
    return receive(stages, stages->channels.forward_from, ash_pass_input(slot->pass), activation_bytes(slot), err);
}

int ash_stages_send_output(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_head(slot->pass)) return 0;
    return send(stages, stages->channels.forward_to, ash_pass_output(slot->pass), activation_bytes(slot), err);
}

int ash_stages_recv_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_head(slot->pass)) return 0;
    return receive(stages, stages->channels.backward_from, ash_pass_gradient(slot->pass), activation_bytes(slot), err);
}

int ash_stages_send_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err)
{
    if (ash_pass_has_embed(slot->pass)) return 0;
    return send(stages, stages->channels.backward_to, ash_pass_gradient(slot->pass), activation_bytes(slot), err);
}

/* ---- a tied embedding -------------------------------------------------------------------------------------------- */

/* This chunk's embedding, or its copy; NULL if it has none or does not share it. */
static const struct ash_param *tied_param(const struct ash_stages *stages, const struct ash_stage *stage)
{
    const struct ash_slice *slice = ash_model_slice(stage->state.model);

    if (stages->channels.tie_to == NULL || !(slice->embed || slice->head)) return NULL;
    return tied_of(stage);
}

int ash_stages_add_tied(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_param *param = tied_param(stages, stage);
    float *sum;
    int rc;

    if (param == NULL) return 0;
    sum = stage->grad_buffer + param->grad_offset;
    if (param->is_tied_copy) return ash_channel_send(stages->channels.tie_to, sum, param->count * sizeof(float), err);
    rc = ash_channel_recv(stages->channels.tie_from, stages->tie.data, param->count * sizeof(float), err);
    if (rc < 0) return rc;
    stages->exec->ops->row->add(stages->exec, sum, stages->tie.data, param->count, sum);
    return 0;
}

int ash_stages_update_tied(struct ash_stages *stages, struct ash_err *err)
{
    for (size_t i = 0; i < stages->chunk_count; i++) {
        struct ash_stage *stage = &stages->chunks[i];
        const struct ash_param *param = tied_param(stages, stage);
        const void *data;
        size_t bytes;
        int rc;

        if (param == NULL) continue;
        bytes = param->count * ash_fsdp_weight_bytes(&stage->fsdp);
        rc = ash_fsdp_flush(&stage->fsdp, err);
        if (rc < 0) return rc;
        if (!param->is_tied_copy) {
            rc = ash_fsdp_gather_param(&stage->fsdp, param, &data, err);
            if (rc == 0) rc = ash_channel_send(stages->channels.tie_to, data, bytes, err);
        } else {
            rc = ash_channel_recv(stages->channels.tie_from, stages->tie.data, bytes, err);
            if (rc == 0) ash_fsdp_store_param(&stage->fsdp, param, stages->tie.data);
            if (rc == 0) rc = ash_state_barrier(&stage->state, err);
        }
        if (rc < 0) return rc;
    }
    return 0;
}
