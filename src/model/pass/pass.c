/* pass: opens and closes the parts of a pass, and runs them over batches. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "compute/ops_state.h"
#include "model/load.h"
#include "model/lora_priv.h"
#include "model/pass/cache_step.h"
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

/* Can the batch's step be recorded and replayed? Rows that decode in pages; layers that wait for nothing. */
static bool may_replay(const struct ash_pass *pass)
{
    const struct ash_pass_step *step = &pass->step;
    const struct ash_model_config *config = &pass->model->config;

    return step->cache != NULL && !step->has_adapters && !ash_gathers(step) && config->attn == ASH_ATTN_GROUPED &&
           config->expert.experts == 0 && config->state.heads == 0 && pass->opts.hooks.need == NULL &&
           step->batch->doc_count == step->rows;
}

/* Contents of a recorded step besides the batch's numbers: addresses. */
static uint64_t step_shape(const struct ash_pass *pass)
{
    uint64_t shape = ash_hash_mix((uintptr_t)pass->acts.final_in ^ pass->step.rows);

    shape = ash_hash_mix(shape ^ (uintptr_t)ash_rope_cos(&pass->rope, ASH_ROPE_AT_ALL));
    return ash_hash_mix(shape ^ (uintptr_t)ash_cache_data(pass->step.cache));
}

static void run_layers(struct ash_pass *pass)
{
    enum ash_step_way way = ASH_STEP_RUN;

    if (may_replay(pass)) {
        for (size_t i = 0; i < pass->step.rows; i++) {
            const struct ash_doc *doc = &pass->step.batch->docs[i];

            pass->seqs[i] =
                (struct ash_attn_seq){.q_row = doc->row, .q_count = 1, .pos = doc->pos, .pages = doc->pages};
        }
        way = ash_exec_step_begin(
            pass->exec,
            &(struct ash_exec_step){.shape = step_shape(pass), .seqs = pass->seqs, .seq_count = pass->step.rows});
    }
    if (way == ASH_STEP_REPLAYED) return;
    ash_pass_run_forward(&pass->step);
    if (!ash_exec_step_end(pass->exec, way)) ash_pass_run_forward(&pass->step);
}

int ash_pass_infer_layers(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache,
                          struct ash_err *err)
{
    int rc;

    if (pass->axes.cp.size > 1 || pass->axes.tp.size > 1)
        return ash_err_set(err, -EINVAL, "a pass along cp or tp trains and evaluates; it does not infer");
    rc = ash_pass_begin(pass, batch, cache, err);
    if (rc < 0) return rc;
    run_layers(pass);
    rc = ash_axes_result(&pass->axes, err);
    if (rc < 0) return rc;
    return ash_load_check(pass->model->load, err);
}

/* How many of the rows from the first on follow each other. */
static size_t adjacent_rows(const size_t *rows, size_t count)
{
    size_t run = 1;

    while (run < count && rows[run] == rows[0] + run)
        run++;
    return ash_min(run, count);
}

/* Only the wanted rows go through the norm and the head; one row's result does not depend on the others. Rows that
 * follow each other are read where they are. Returns 0 and where all of them are, or a negative errno. */
static int gather_rows(struct ash_pass *pass, const size_t *rows, size_t count, const float **rows_out,
                       struct ash_err *err)
{
    size_t hidden = pass->model->config.hidden, run;
    float *out = pass->acts.scratch.residual;

    if (adjacent_rows(rows, count) == count) {
        *rows_out = pass->acts.final_in + (count > 0 ? rows[0] * hidden : 0);
        return 0;
    }
    for (size_t i = 0; i < count; i += run) {
        int rc;

        run = adjacent_rows(rows + i, count - i);
        ash_assert(rows[i] + run <= pass->step.batch->rows && (i == 0 || rows[i] > rows[i - 1]));
        rc = pass->exec->memory->copy(out + i * hidden, pass->acts.final_in + rows[i] * hidden,
                                      run * hidden * sizeof(float));
        if (rc < 0) return ash_err_set(err, rc, "cannot copy the wanted rows");
    }
    *rows_out = out;
    return 0;
}

/* Logits of rows of the stream, on the device; logits_out is the host's. Of several ranks only the first has it. */
static int logits_of(struct ash_pass *pass, const float *rows, size_t count, float *logits_out)
{
    const struct ash_memory_ops *memory = pass->exec->memory;
    size_t hidden = pass->model->config.hidden, vocab = pass->model->config.vocab, some;
    size_t fit = ash_gathers(&pass->step) ? ash_gather_logit_rows(&pass->step) : count;
    size_t most = memory->host_visible ? fit : ash_min(fit, pass->acts.logit_rows);

    for (size_t first = 0; first < count; first += some) {
        float *out = logits_out != NULL ? logits_out + first * vocab : NULL;
        bool copies = out != NULL && !memory->host_visible;
        int rc;

        some = ash_min(count - first, most);
        ash_pass_run_logits(&pass->step, rows + first * hidden, some, copies ? pass->acts.scratch.logits : out);
        rc = copies ? memory->copy(out, pass->acts.scratch.logits, some * vocab * sizeof(float)) : 0;
        if (rc < 0) return rc;
    }
    return pass->axes.failed;
}

int ash_pass_infer_logits(struct ash_pass *pass, const size_t *rows, size_t count, float *logits_out,
                          struct ash_err *err)
{
    const float *gathered;
    int rc = ash_pass_check_logits(pass->model, err);

    if (rc < 0) return rc;
    rc = gather_rows(pass, rows, count, &gathered, err);
    if (rc < 0) return rc;
    rc = count > 0 ? logits_of(pass, gathered, count, logits_out) : 0;
    if (pass->axes.failed < 0) return ash_axes_result(&pass->axes, err);
    if (rc < 0) return ash_err_set(err, rc, "cannot copy the logits");
    return ash_load_check(pass->model->load, err);
}

int ash_pass_choose(struct ash_pass *pass, const size_t *rows, size_t count, const struct ash_pass_choice *choice,
                    unsigned fetch, struct ash_err *err)
{
    size_t hidden = pass->model->config.hidden, some;
    int32_t *ids = pass->acts.block.targets; /* there are none in inference */
    const float *gathered;
    int rc = gather_rows(pass, rows, count, &gathered, err);

    if (rc < 0) return rc;
    ash_assert(choice->vocab <= pass->model->config.vocab && count <= pass->opts.max_rows);
    for (size_t first = 0; first < count; first += some) {
        some = ash_min(count - first, pass->acts.logit_rows);
        ash_pass_run_logits(&pass->step, gathered + first * hidden, some, pass->acts.scratch.logits);
        pass->exec->ops->sample->choose(pass->exec, &(struct ash_sample_args){.rows = some,
                                                                              .vocab = choice->vocab,
                                                                              .logits = pass->acts.scratch.logits,
                                                                              .stride = pass->model->config.vocab,
                                                                              .row = choice->row + first,
                                                                              .ids = ids + first,
                                                                              .next = pass->acts.block.ids + first});
    }
    rc = ash_exec_fetch(pass->exec, fetch, ids, count * sizeof(*ids));
    return rc < 0 ? ash_err_set(err, rc, "cannot fetch the chosen tokens") : 0;
}

int ash_pass_chosen(struct ash_pass *pass, unsigned fetch, size_t count, int32_t *ids_out, struct ash_err *err)
{
    int rc = ash_exec_fetched(pass->exec, fetch, ids_out, count * sizeof(*ids_out), err);

    return rc < 0 ? rc : ash_load_check(pass->model->load, err);
}

int ash_pass_infer_states(struct ash_pass *pass, const size_t *rows, size_t count, float *states_out,
                          struct ash_err *err)
{
    const float *gathered, *normed;
    int rc = gather_rows(pass, rows, count, &gathered, err);

    if (rc < 0 || count == 0) return rc;
    normed = ash_pass_run_states(&pass->step, gathered, count);
    rc = pass->exec->memory->copy(states_out, normed, count * pass->model->config.hidden * sizeof(float));
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the wanted states") : 0;
}

int ash_pass_infer(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, const size_t *wanted,
                   size_t wanted_count, float *logits_out, struct ash_err *err)
{
    int rc = ash_pass_infer_layers(pass, batch, cache, err);

    return rc < 0 ? rc : ash_pass_infer_logits(pass, wanted, wanted_count, logits_out, err);
}
