/* pass_replay: on a GPU the work of a batch that trains is recorded at the second batch of its shape, and replayed from
 * then on: one call of the driver for each direction. What differs from batch to batch is data in the same places. */
#include <string.h>

#include "base/hash.h"
#include "compute/backends/backends.h"
#include "model/pass/head.h"
#include "model/pass/pass_priv.h"

/* Can it be? One rank, no host in between: no wait, no copy to the host, no hook. */
static bool may_record(const struct ash_pass *pass)
{
    const struct ash_axes *axes = &pass->axes;
    const struct ash_model_config *config = &pass->model->config;
    const struct ash_pass_step *step = &pass->step;

    return pass->exec->cuda != NULL && step->rows > 0 && step->cache == NULL && !step->has_adapters &&
           axes->tp.size * axes->cp.size * axes->ep.size == 1 && config->attn == ASH_ATTN_GROUPED &&
           config->expert.experts == 0 && pass->model->load == NULL && pass->opts.hooks.need == NULL &&
           pass->opts.hooks.done == NULL;
}

static uint64_t mix_place(uint64_t shape, const void *place)
{
    return ash_hash_mix(shape ^ (uintptr_t)place);
}

static uint64_t mix_float(uint64_t shape, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return ash_hash_mix(shape ^ bits);
}

/* Contents of recorded work besides the batch's numbers: row counts and addresses. */
static uint64_t shape_of(const struct ash_pass *pass)
{
    uint64_t shape = ash_hash_mix(pass->step.rows ^ (uint64_t)pass->step.seq_rows << 32);

    shape = mix_place(shape, pass->acts.final_in);
    shape = mix_place(shape, pass->acts.losses);
    shape = mix_place(shape, ash_rope_cos(&pass->rope, ASH_ROPE_AT_ALL));
    for (size_t i = 0; i < pass->model->param_count; i++)
        shape = mix_place(shape, pass->model->params[i].data);
    return shape;
}

static enum ash_step_way begin(struct ash_pass *pass, uint64_t shape)
{
    const struct ash_batch *batch = pass->step.batch;

    for (size_t i = 0; i < batch->doc_count; i++)
        pass->seqs[i] = (struct ash_attn_seq){
            .q_row = batch->docs[i].row, .q_count = batch->docs[i].count, .pos = batch->docs[i].pos};
    return ash_exec_batch_begin(
        pass->exec, &(struct ash_exec_step){.shape = shape, .seqs = pass->seqs, .seq_count = batch->doc_count});
}

void ash_pass_replay_forward(struct ash_pass *pass)
{
    enum ash_step_way way = may_record(pass) ? begin(pass, shape_of(pass)) : ASH_STEP_RUN;

    if (way == ASH_STEP_REPLAYED) return;
    ash_pass_run_forward(&pass->step);
    if (!ash_exec_step_end(pass->exec, way)) ash_pass_run_forward(&pass->step);
}

/* The same for the head and the way back. */
static bool may_record_backward(const struct ash_pass *pass)
{
    const struct ash_batch *batch = pass->step.batch;

    return may_record(pass) && batch->kept == NULL && batch->teacher == NULL && pass->model->config.labels == 0 &&
           !ash_head_skips_rows(&pass->step);
}

static uint64_t backward_shape(const struct ash_pass *pass, const struct ash_grad_sink *sink, float scale)
{
    const struct ash_batch *batch = pass->step.batch;
    unsigned kinds = 1u + 2u * sink->overwrite + 4u * (batch->scales != NULL) + 8u * (batch->entropy_scales != NULL);
    uint64_t shape = mix_place(shape_of(pass), sink->grads);

    shape = mix_float(shape, scale);
    shape = mix_float(shape, batch->sharpness);
    return ash_hash_mix(shape ^ kinds);
}

void ash_pass_replay_backward(struct ash_pass *pass, struct ash_grad_sink *sink, float scale)
{
    enum ash_step_way way = may_record_backward(pass) ? begin(pass, backward_shape(pass, sink, scale)) : ASH_STEP_RUN;

    if (way == ASH_STEP_REPLAYED) return;
    ash_pass_run_backward(&pass->step, sink, scale);
    if (!ash_exec_step_end(pass->exec, way)) ash_pass_run_backward(&pass->step, sink, scale);
}
