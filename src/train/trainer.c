/* trainer: one step after another: sequences through the stages, the guard, and AdamW. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/fault_point.h"
#include "model/flops.h"

/* Copies of a new mesh, or of a state that has just been loaded, are filled while the step runs; but if this step
 * checks them they have to be complete before it. */
static int begin_copies(struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    return ash_trainer_is_checked(trainer, step) ? ash_trainer_fill_copies(trainer, err)
                                                 : ash_trainer_begin_refill(trainer, err);
}

/* More sums are complete. */
static int on_layer(void *ctx, struct ash_err *err)
{
    struct ash_trainer *trainer = ctx;

    ash_trainer_offer_growth(trainer, false);
    return trainer->refill != NULL ? 0 : ash_copies_send_some(&trainer->now->copies, &trainer->now->stages, err);
}

/* Gradients for copies and joining ranks are sent during the backward pass; those of copies not while these are being
 * filled, which uses the same group. */
static int begin_sending(struct ash_trainer *trainer, struct ash_stages_task *task, struct ash_err *err)
{
    struct ash_copies *copies = &trainer->now->copies;

    ash_copies_begin(copies);
    if (copies->group == NULL && trainer->growth == NULL) return 0;
    task->listener = (struct ash_stages_listener){on_layer, trainer};
    return trainer->refill != NULL ? 0 : ash_copies_open_lane(copies, err);
}

/* Gradients and loss of the next step: everything before its norm. */
static int run_passes(struct ash_trainer *trainer, struct ash_step *step, struct ash_err *err)
{
    struct ash_stages *stages = &trainer->now->stages;
    uint64_t slots = (uint64_t)trainer->job->train.global_batch, before = step->step - 1;
    struct ash_feed_slice whole = {.source = &trainer->train, .step = before, .slots_per_step = slots, .count = slots};
    struct ash_stages_task task = {
        .source = &trainer->train, .objective = trainer->parts.objective, .teacher = trainer->parts.teacher};
    struct ash_meter *meter = &trainer->now->mesh.meter;
    int rc;

    if (trainer->parts.prepare != NULL) {
        rc = trainer->parts.prepare(trainer->parts.ctx, trainer, before, err);
        if (rc < 0) return rc;
    }
    rc = ash_trainer_begin_audit(trainer, step->step, err);
    if (rc < 0) return rc;
    ash_meter_begin(meter);
    step->targets = ash_feed_count(&whole);
    ash_meter_end(meter, ASH_METER_DATA);
    task.scale = step->targets > 0 ? (float)(1.0 / (double)step->targets) : 0.0f;
    if (ash_trainer_audits(trainer, step->step) || trainer->wrong_notes > 0) {
        rc = ash_trainer_begin_sums(trainer, ASH_AUDIT_OWN, &task.sums, err);
        if (rc < 0) return rc;
    }
    rc = begin_sending(trainer, &task, err);
    if (rc == 0) rc = ash_stages_train(stages, &task, before, trainer->losses, err);
    if (rc < 0) return rc;
    step->loss = ash_grains_fold(trainer->losses, (size_t)trainer->job->train.grains);
    if (task.objective == NULL) step->loss = step->targets > 0 ? step->loss / (double)step->targets : 0.0;
    ash_meter_begin(meter);
    rc = ash_trainer_end_refill(trainer, err);
    if (rc == 0) rc = ash_copies_send(&trainer->now->copies, stages, err);
    if (rc == 0) rc = ash_trainer_send_growth(trainer, err);
    ash_meter_end(meter, ASH_METER_COMM);
    return rc;
}

void ash_trainer_finish_update(struct ash_trainer *trainer, struct ash_kept_state *kept)
{
    struct ash_pending_step *pending = &trainer->pending;
    struct ash_step *step = &pending->step;
    struct ash_stages *stages = kept != NULL ? &kept->stages : &trainer->now->stages;
    struct ash_copies *copies = kept != NULL ? &kept->copies : &trainer->now->copies;
    struct ash_state *state = &stages->chunks[0].state;

    ash_assert(pending->phase == ASH_PHASE_SUMMED && pending->norm_step == state->step + 1);
    ash_seals_break(&trainer->seals);
    step->norm = pending->norm;
    step->lr = ash_lr_schedule_at(&trainer->schedule, state->step);
    step->verdict = ash_guard_check(&trainer->guard, &state->guard, step->targets, step->loss, step->norm);
    ash_guard_describe(step->verdict, &state->guard, step->loss, step->norm, step->reason, sizeof(step->reason));
    pending->is_updated = step->verdict == ASH_GUARD_OK;
    if (pending->is_updated) {
        ash_stages_update(stages, step->norm, step->lr);
        ash_fault_point_meet(ASH_FAULT_IN_UPDATE);
        ash_copies_update(copies, &stages->chunks[0].optimizer, trainer->outline, step->norm, step->lr);
    }
    pending->phase = ASH_PHASE_UPDATED;
}

/* Report the result of filling copies during the step. */
static void tell_refill(struct ash_trainer *trainer, struct ash_step *step)
{
    step->repeated = trainer->refilled.repeated;
    step->damaged_from = trainer->refilled.damaged_from;
    step->damaged_to = trainer->refilled.damaged_to;
    trainer->refilled = (struct ash_exchange_counts){0};
}

/* Follow-up of a finished step. Other ranks get new weights once the mesh is known to stay (ash_trainer_spread), or
 * before they are read. */
static int follow_step(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_stages *stages = &trainer->now->stages;
    uint64_t step = trainer->pending.step.step;
    int rc = ash_trainer_update_growth(trainer, err);

    stages->owes_spread = trainer->pending.is_updated;
    if (rc == 0 && trainer->parts.finish != NULL) rc = ash_stages_catch_up(stages, err);
    if (rc == 0 && trainer->parts.finish != NULL) rc = trainer->parts.finish(trainer->parts.ctx, trainer, step, err);
    return rc < 0 ? rc : ash_trainer_seal(trainer, step + 1, err);
}

static int make_step(struct ash_trainer *trainer, struct ash_step *step_out, struct ash_err *err)
{
    struct ash_state *state = ash_trainer_state(trainer);
    struct ash_stages *stages = &trainer->now->stages;
    struct ash_pending_step *pending = &trainer->pending;
    struct ash_meter *meter = &trainer->now->mesh.meter;
    int rc = begin_copies(trainer, state->step + 1, err);

    if (rc == 0) rc = ash_trainer_seal(trainer, state->step + 1, err);
    if (rc == 0) rc = ash_trainer_begin_growth(trainer, err);
    if (rc < 0) return rc;
    ash_meter_open(meter);
    pending->phase = ASH_PHASE_RUNNING;
    pending->step =
        (struct ash_step){.step = state->step + 1,
                          .tokens = (uint64_t)(trainer->job->train.global_batch * trainer->job->data.seq_tokens)};
    rc = run_passes(trainer, &pending->step, err);
    pending->step.grains = stages->step_grains;
    if (rc == 0) rc = ash_trainer_end_audit(trainer, err);
    if (rc == 0) rc = ash_trainer_check_seals(trainer, err);
    if (rc < 0) return rc;
    if (trainer->before_update != NULL) trainer->before_update(trainer->before_update_ctx);
    pending->phase = ASH_PHASE_SUMMED;
    ash_fault_point_meet(ASH_FAULT_BEFORE_UPDATE);
    rc = ash_stages_norm(stages, &pending->norm, err);
    if (rc < 0) return rc;
    ash_trainer_drop_kept(trainer); /* all have their copies */
    pending->norm_step = pending->step.step;
    ash_trainer_finish_update(trainer, NULL);
    ash_fault_point_meet(ASH_FAULT_AFTER_UPDATE);
    rc = ash_stages_commit(stages, pending->is_updated, err);
    if (rc < 0) return rc;
    pending->phase = ASH_PHASE_NONE;
    ash_meter_close(meter);
    pending->step.meter = *meter;
    tell_refill(trainer, &pending->step);
    *step_out = pending->step; /* done, also where the next calls fail */
    return follow_step(trainer, err);
}

int ash_trainer_step(struct ash_trainer *trainer, struct ash_step *step_out, struct ash_err *err)
{
    return ash_backend_outcome(&trainer->exec, make_step(trainer, step_out, err), err);
}

int ash_trainer_spread(struct ash_trainer *trainer, struct ash_err *err)
{
    return ash_backend_outcome(&trainer->exec, ash_stages_catch_up(&trainer->now->stages, err), err);
}

void ash_trainer_on_update(struct ash_trainer *trainer, void (*before)(void *ctx), void *ctx)
{
    trainer->before_update = before;
    trainer->before_update_ctx = ctx;
}

/* Validation with the parts' own function of every row. */
static int validate_rows(struct ash_trainer *trainer, double *loss_out, struct ash_pair_figures *figures_out,
                         struct ash_err *err)
{
    size_t sequences = trainer->valid_sequences, seq_tokens = (size_t)trainer->job->data.seq_tokens;
    float *rows = calloc(sequences * seq_tokens, sizeof(*rows));
    int rc;

    if (rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the losses of %zu sequences", sequences);
    rc = ash_stages_eval_rows(&trainer->now->stages, &trainer->valid, sequences, rows, err);
    rc = ash_backend_outcome(&trainer->exec, rc, err);
    if (rc == 0) rc = trainer->parts.weigh_valid(trainer->parts.ctx, rows, sequences, loss_out, figures_out, err);
    free(rows);
    return rc;
}

/* The mean over targets. */
static int validate_mean(struct ash_trainer *trainer, double *loss_out, struct ash_err *err)
{
    size_t sequences = trainer->valid_sequences;
    struct ash_feed_slice all = {.source = &trainer->valid, .slots_per_step = sequences, .count = sequences};
    double *losses = calloc(sequences, sizeof(*losses)), sum = 0.0;
    uint64_t targets;
    int rc;

    if (losses == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the losses of %zu sequences", sequences);
    rc = ash_stages_eval(&trainer->now->stages, &trainer->valid, sequences, losses, err);
    targets = ash_feed_count(&all);
    for (size_t s = 0; s < sequences; s++)
        sum += losses[s];
    free(losses);
    rc = ash_backend_outcome(&trainer->exec, rc, err);
    if (rc < 0) return rc;
    *loss_out = targets > 0 ? sum / (double)targets : 0.0;
    return 0;
}

int ash_trainer_validate(struct ash_trainer *trainer, double *loss_out, struct ash_pair_figures *figures_out,
                         struct ash_err *err)
{
    struct ash_pair_figures figures = ASH_NO_PAIRS;
    int rc;

    ash_assert(trainer->valid_sequences > 0);
    ash_fault_point_meet(ASH_FAULT_VALIDATION);
    rc = trainer->parts.weigh_valid != NULL ? validate_rows(trainer, loss_out, &figures, err)
                                            : validate_mean(trainer, loss_out, err);
    if (rc == 0 && figures_out != NULL) *figures_out = figures;
    return rc;
}

const struct ash_model *ash_trainer_outline(const struct ash_trainer *trainer)
{
    return trainer->outline;
}

struct ash_stages *ash_trainer_stages(struct ash_trainer *trainer)
{
    return &trainer->now->stages;
}

int ash_trainer_check_copies(struct ash_trainer *trainer, struct ash_err *err)
{
    int rc = ash_trainer_check_seals(trainer, err);

    if (rc == 0) rc = ash_trainer_fill_copies(trainer, err);
    return rc < 0 ? rc : ash_copies_check(&trainer->now->copies, &trainer->now->stages, trainer->outline, err);
}

struct ash_group *ash_trainer_group(struct ash_trainer *trainer)
{
    return trainer->now->group;
}

struct ash_exec *ash_trainer_exec(struct ash_trainer *trainer)
{
    return &trainer->exec;
}

struct ash_state *ash_trainer_state(struct ash_trainer *trainer)
{
    return &trainer->now->stages.chunks[0].state;
}

struct ash_trainer_facts ash_trainer_get_facts(const struct ash_trainer *trainer)
{
    const struct ash_model_config *config = &trainer->config;
    const json_t *type = json_object_get(config->source, "model_type");

    return (struct ash_trainer_facts){
        .family = json_is_string(type) ? json_string_value(type) : "model",
        .backend = trainer->exec.ops->name,
        .exec = &trainer->exec,
        .why_cpu = trainer->choice.why,
        .tokenizer_dir = trainer->tokenizer_dir[0] != '\0' ? trainer->tokenizer_dir : NULL,
        .mesh = &trainer->now->mesh,
        .whole = ash_mesh_is_whole(&trainer->now->mesh),
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
        .memory = trainer->now->memory,
        .token_flops = ash_model_train_flops(config, (double)trainer->job->data.seq_tokens),
        .data_hash = trainer->train.hash,
        .arithmetic = trainer->arithmetic,
    };
}
