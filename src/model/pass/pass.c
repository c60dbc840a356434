/* pass: opens and closes the parts of a pass, and runs them over batches that train or are measured. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/ops_state.h"
#include "model/load.h"
#include "model/lora_priv.h"
#include "model/pass/gather.h"
#include "model/pass/head_priv.h"
#include "model/pass/pass_priv.h"
#include "model/pass/split.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Ranks of tp pass each other adapters' sums as messages, also on one node: their operands are not in shared memory. */
static int check_adapters(struct ash_model *model, struct ash_exec *exec, const struct ash_pass_opts *opts,
                          struct ash_err *err)
{
    int rc;

    if (model->adapters == NULL) return 0;
    ash_assert(opts->tp.size <= 1 || !opts->tp.same_node);
    rc = opts->backward ? ash_lora_reserve_dense(model, exec, err) : 0;
    if (rc == 0 && opts->backward) rc = ash_model_pack_base(model, exec, err);
    if (rc == 0 && opts->backward) rc = ash_lora_reserve_dropout(model, exec, opts->max_rows, err);
    return rc < 0 ? rc : ash_lora_reserve(model, exec, opts->max_rows, err);
}

static int open_parts(struct ash_pass *pass, struct ash_err *err)
{
    struct ash_model *model = pass->model;
    const struct ash_pass_opts *opts = &pass->opts;
    struct ash_axes *axes = &pass->axes;
    int rc = ash_axes_init(axes, opts, err);

    if (rc < 0) return rc;
    pass->seqs = calloc(opts->max_rows, sizeof(*pass->seqs));
    pass->state_seqs = calloc(opts->max_rows, sizeof(*pass->state_seqs));
    pass->positions = calloc(opts->max_rows, 2 * sizeof(*pass->positions));
    pass->few_kept = calloc(opts->max_rows, sizeof(*pass->few_kept));
    if (!pass->exec->memory->host_visible) pass->kept_row = calloc(ash_max(model->vocab.count, 1), sizeof(float));
    if (pass->seqs == NULL || pass->state_seqs == NULL || pass->positions == NULL || pass->few_kept == NULL ||
        (pass->kept_row == NULL && !pass->exec->memory->host_visible))
        return ash_err_set(err, -ENOMEM, "out of memory for a pass over %zu rows", opts->max_rows);
    rc = ash_gather_open(axes, model, pass->exec, opts->max_rows, err);
    if (rc < 0) return rc;
    rc = ash_acts_open(&pass->acts, model, pass->exec, opts, axes, err);
    if (rc < 0) return rc;
    rc = ash_moe_open(&pass->moe, model, pass->exec, opts, axes, err);
    if (rc < 0) return rc;
    rc = ash_ulysses_open(&pass->ulysses, axes, err);
    if (rc < 0) return rc;
    rc = ash_embed_open(&pass->embed, model, axes, opts->max_rows, err);
    if (rc < 0) return rc;
    return ash_grad_order_open(&pass->order, model, pass->exec, axes, err);
}

int ash_pass_open(struct ash_model *model, struct ash_exec *exec, const struct ash_pass_opts *opts,
                  struct ash_pass **pass_out, struct ash_err *err)
{
    struct ash_pass *pass;
    int rc;

    rc = ash_pass_check_ops(model, exec, err);
    if (rc < 0) return rc;
    if (opts->max_rows == 0) return ash_err_set(err, -EINVAL, "a pass needs at least one row");
    rc = check_adapters(model, exec, opts, err);
    if (rc < 0) return rc;
    if (opts->backward && model->gguf != NULL)
        return ash_err_set(err, -ENOTSUP, "a model from a GGUF file cannot be trained: use its Hugging Face folder");
    rc = ash_pass_check_axes(model, opts, err);
    if (rc < 0) return rc;
    rc = ash_model_place(model, exec, err);
    if (rc < 0) return rc;
    pass = calloc(1, sizeof(*pass));
    if (pass == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a pass");
    pass->model = model;
    pass->exec = exec;
    pass->opts = *opts;
    rc = open_parts(pass, err);
    if (rc < 0) {
        ash_pass_close(pass);
        return rc;
    }
    *pass_out = pass;
    return 0;
}

void ash_pass_close(struct ash_pass *pass)
{
    if (pass == NULL) return;
    ash_grad_order_close(&pass->order);
    ash_embed_close(&pass->embed);
    ash_ulysses_close(&pass->ulysses);
    ash_moe_close(&pass->moe);
    ash_rope_fini(&pass->rope);
    ash_acts_close(&pass->acts);
    ash_axes_fini(&pass->axes);
    free(pass->kept_row);
    free(pass->few_kept);
    free(pass->positions);
    free(pass->state_seqs);
    free(pass->seqs);
    free(pass);
}

size_t ash_pass_bytes(const struct ash_pass *pass)
{
    return pass->acts.size_bytes;
}

size_t ash_pass_head_rows(const struct ash_pass *pass, size_t *bytes_out)
{
    const struct ash_acts *acts = &pass->acts;

    *bytes_out = acts->logit_rows * ash_head_width(pass->model) * sizeof(float) +
                 acts->head_rows * acts->scratch.dlogits_stride * sizeof(uint16_t);
    return acts->head_rows;
}

int ash_pass_measure(const struct ash_model *model, const struct ash_pass_opts *opts, size_t *bytes_out,
                     struct ash_err *err)
{
    struct ash_axes axes;
    size_t bytes = 0;
    int rc = ash_axes_init(&axes, opts, err);

    if (rc < 0) return rc;
    rc = ash_acts_measure(model, opts, &axes, &bytes, err);
    bytes += ash_gather_bytes(model, &axes, opts->max_rows);
    if (rc == 0) *bytes_out = bytes + ash_moe_exchange_bytes(model, opts, &axes);
    ash_axes_fini(&axes);
    return rc;
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

bool ash_pass_has_embed(const struct ash_pass *pass)
{
    return ash_split_has_embed(pass->model);
}

bool ash_pass_has_head(const struct ash_pass *pass)
{
    return ash_split_has_head(pass->model);
}

size_t ash_pass_stream_count(const struct ash_pass *pass, const struct ash_batch *batch)
{
    const struct ash_axes *axes = &pass->axes;
    size_t rows = ash_split_rows_cp(axes, batch->rows, axes->cp.rank).count;

    return ash_split_rows_tp(axes, rows, ash_split_seq_rows(batch, rows), axes->tp.rank).count *
           pass->model->config.hidden;
}

float *ash_pass_input(struct ash_pass *pass)
{
    return pass->acts.layers[0].in;
}

const float *ash_pass_output(const struct ash_pass *pass)
{
    return pass->acts.final_in;
}

float *ash_pass_gradient(struct ash_pass *pass)
{
    return pass->acts.scratch.dx;
}

int ash_pass_forward(struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err)
{
    int rc = ash_pass_begin(pass, batch, NULL, err);

    if (rc < 0) return rc;
    ash_pass_replay_forward(pass);
    return ash_axes_result(&pass->axes, err);
}

static int copy_losses(struct ash_pass *pass, float *losses, struct ash_err *err)
{
    size_t rows = pass->step.batch->rows;
    int rc = rows == 0 ? 0 : pass->exec->memory->copy(losses, pass->acts.losses, rows * sizeof(float));

    return rc < 0 ? ash_err_set(err, rc, "cannot copy the losses") : 0;
}

int ash_pass_losses(struct ash_pass *pass, float *losses, float *entropies, struct ash_err *err)
{
    int rc = ash_pass_check_logits(pass->model, err);
    size_t rows;

    if (rc < 0) return rc;
    ash_assert(pass->step.batch != NULL);
    rows = pass->step.batch->rows;
    ash_pass_run_losses(&pass->step, entropies != NULL);
    rc = ash_axes_result(&pass->axes, err);
    if (rc == 0) rc = copy_losses(pass, losses, err);
    if (rc < 0 || entropies == NULL || rows == 0) return rc;
    rc = pass->exec->memory->copy(entropies, pass->acts.entropies, rows * sizeof(float));
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the entropies") : 0;
}

/* An objective's scales of this rank's rows go to the device. */
static int copy_scales(struct ash_pass *pass, struct ash_err *err)
{
    const struct ash_batch *batch = pass->step.batch;
    const struct ash_batch_block *block = &pass->acts.block;
    size_t first = pass->step.first_row, bytes = pass->step.rows * sizeof(float);
    int rc = 0;

    ash_assert(batch->entropy_scales == NULL || batch->scales != NULL);
    if (batch->scales == NULL || bytes == 0 || !ash_pass_has_head(pass)) return 0;
    rc = pass->exec->memory->copy(block->scales, batch->scales + first, bytes);
    if (rc == 0 && batch->entropy_scales != NULL)
        rc = pass->exec->memory->copy(block->entropy_scales, batch->entropy_scales + first, bytes);
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the scales of the losses") : 0;
}

/* Can the batch's products write what they would else add to zeros? Along ep, and along cp with buffers of their own,
 * others add to the same sums. */
static bool may_overwrite(const struct ash_axes *axes)
{
    return (axes->cp.size == 1 || axes->shared_grads) && axes->ep.size == 1;
}

int ash_pass_backward(struct ash_pass *pass, float scale, const struct ash_pass_grads *grads, float *losses,
                      struct ash_err *err)
{
    const struct ash_pass_step *step = &pass->step;
    struct ash_grad_sink sink = {.order = &pass->order, .source_expert_grads = grads->expert_sums};
    int rc;

    ash_assert(pass->opts.backward && step->batch != NULL);
    rc = ash_moe_check_grads(pass->model, &pass->axes, grads->expert_sums, err);
    if (rc < 0) return rc;
    sink.grads = step->rows > 0 ? grads->sums : NULL;
    sink.overwrite = step->rows > 0 && (step->batch->flags & ASH_BATCH_OVERWRITES) != 0;
    ash_assert(!sink.overwrite || may_overwrite(&pass->axes));
    rc = copy_scales(pass, err);
    if (rc < 0) return rc;
    ash_pass_replay_backward(pass, &sink, scale);
    rc = ash_axes_result(&pass->axes, err);
    if (rc < 0) return rc;
    return ash_pass_has_head(pass) ? copy_losses(pass, losses, err) : 0;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

int ash_pass_eval(struct ash_pass *pass, const struct ash_batch *batch, float *losses, struct ash_err *err)
{
    int rc = ash_pass_forward(pass, batch, err);

    if (rc < 0) return rc;
    rc = ash_pass_losses(pass, losses, NULL, err);
    return rc < 0 ? rc : ash_load_check(pass->model->load, err);
}

int ash_pass_train(struct ash_pass *pass, const struct ash_batch *batch, float scale,
                   const struct ash_pass_grads *grads, float *losses, struct ash_err *err)
{
    int rc = ash_moe_check_grads(pass->model, &pass->axes, grads->expert_sums, err);

    if (rc < 0) return rc;
    rc = ash_pass_forward(pass, batch, err);
    return rc < 0 ? rc : ash_pass_backward(pass, scale, grads, losses, err);
}
