/* trainer: one step after another: sequences through the stages, the guard, and AdamW. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

int ash_trainer_step(struct ash_trainer *trainer, struct ash_step *step_out, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    struct ash_stages *stages = &trainer->stages;
    struct ash_state *state = ash_trainer_state(trainer);
    uint64_t slots = (uint64_t)job->train.global_batch;
    struct ash_feed_slice whole = {
        .source = &trainer->train, .step = state->step, .slots_per_step = slots, .count = slots};
    struct ash_step step = {.step = state->step + 1, .tokens = slots * (uint64_t)job->data.seq_tokens};
    struct ash_meter *meter = &trainer->mesh.meter;
    struct ash_stages_task task = {.source = &trainer->train, .objective = trainer->parts.objective};
    double loss_sum;
    int rc;

    if (trainer->parts.prepare != NULL) {
        rc = trainer->parts.prepare(trainer->parts.ctx, trainer, state->step, err);
        if (rc < 0) return rc;
    }
    ash_meter_open(meter);
    ash_meter_begin(meter);
    rc = ash_feed_count(&stages->feed, &whole, &step.targets, err);
    ash_meter_end(meter, ASH_METER_DATA);
    if (rc < 0) return rc;
    task.scale = step.targets > 0 ? (float)(1.0 / (double)step.targets) : 0.0f;
    rc = ash_stages_train(stages, &task, state->step, trainer->losses, err);
    if (rc < 0) return rc;
    loss_sum = ash_grains_fold(trainer->losses, (size_t)job->train.grains);
    step.loss = step.targets > 0 && task.objective == NULL ? loss_sum / (double)step.targets : loss_sum;
    rc = ash_stages_norm(stages, &step.norm, err);
    if (rc < 0) return rc;
    step.lr = ash_lr_schedule_at(&trainer->schedule, state->step);
    step.verdict = ash_guard_check(&trainer->guard, &state->guard, step.targets, step.loss, step.norm);
    ash_guard_describe(step.verdict, &state->guard, step.loss, step.norm, step.reason, sizeof(step.reason));
    if (step.verdict == ASH_GUARD_OK) {
        rc = ash_stages_update(stages, step.norm, step.lr, err);
        if (rc < 0) return rc;
    }
    ash_stages_count_step(stages);
    if (trainer->parts.finish != NULL) {
        rc = trainer->parts.finish(trainer->parts.ctx, trainer, step.step, err);
        if (rc < 0) return rc;
    }
    ash_meter_close(meter);
    step.meter = *meter;
    *step_out = step;
    return 0;
}

int ash_trainer_validate(struct ash_trainer *trainer, double *loss_out, struct ash_err *err)
{
    size_t sequences = trainer->valid_sequences;
    struct ash_feed_slice all = {.source = &trainer->valid, .slots_per_step = sequences, .count = sequences};
    double *losses = calloc(sequences, sizeof(*losses)), sum = 0.0;
    uint64_t targets = 0;
    int rc;

    ash_assert(sequences > 0);
    if (losses == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the losses of %zu sequences", sequences);
    rc = ash_stages_eval(&trainer->stages, &trainer->valid, sequences, losses, err);
    if (rc == 0) rc = ash_feed_count(&trainer->stages.feed, &all, &targets, err);
    for (size_t s = 0; s < sequences; s++)
        sum += losses[s];
    free(losses);
    if (rc < 0) return rc;
    *loss_out = targets > 0 ? sum / (double)targets : 0.0;
    return 0;
}

struct ash_stages *ash_trainer_stages(struct ash_trainer *trainer)
{
    return &trainer->stages;
}

struct ash_exec *ash_trainer_exec(struct ash_trainer *trainer)
{
    return &trainer->exec;
}

struct ash_state *ash_trainer_state(struct ash_trainer *trainer)
{
    return &trainer->stages.chunks[0].state;
}

struct ash_trainer_facts ash_trainer_get_facts(const struct ash_trainer *trainer)
{
    const struct ash_model_config *config = ash_model_get_config(trainer->stages.chunks[0].state.model);
    const json_t *type = json_object_get(config->source, "model_type");

    return (struct ash_trainer_facts){
        .family = json_is_string(type) ? json_string_value(type) : "model",
        .backend = trainer->exec.ops->name,
        .tokenizer_dir = trainer->tokenizer_dir[0] != '\0' ? trainer->tokenizer_dir : NULL,
        .mesh = &trainer->mesh,
        .whole = ash_mesh_is_whole(&trainer->mesh),
        .threads = ash_workers_count(trainer->exec.workers),
        .weights = trainer->weights,
        .layers = config->layers,
        .hidden = config->hidden,
        .heads = config->heads,
        .vocab = config->vocab,
        .train_tokens = trainer->train.tokens,
        .train_windows = trainer->train.windows,
        .valid_tokens = trainer->valid.tokens,
        .valid_sequences = trainer->valid_sequences,
        .memory = trainer->memory,
        .data_hash = trainer->train.hash,
        .arithmetic = trainer->arithmetic,
    };
}
