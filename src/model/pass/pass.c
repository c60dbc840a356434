/* One pass over a batch: embedding, layers, head; and the way back. The same forward serves training, evaluation and
 * inference. */
#include "model/pass/pass_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

static struct ash_axis axis_or_alone(const struct ash_axis *axis)
{
    return axis->size > 1 ? *axis : (struct ash_axis){.size = 1};
}

static void set_axes(struct ash_pass *pass)
{
    pass->tp = axis_or_alone(&pass->opts.tp);
    pass->cp = axis_or_alone(&pass->opts.cp);
    pass->ep = axis_or_alone(&pass->opts.ep);
    pass->together = axis_or_alone(&pass->opts.together);
    if (pass->tp.size == 1 || pass->cp.size == 1) pass->together = pass->tp.size > 1 ? pass->tp : pass->cp;
    pass->cp.near = pass->cp.size > 1 && pass->together.near && pass->together.size == pass->tp.size * pass->cp.size;
    if (pass->tp.size > 1 && pass->cp.size > 1 && !pass->cp.near) pass->together = pass->tp;
    pass->shares_sums = pass->cp.near && pass->opts.one_sum && pass->opts.backward;
}

/* Small lists that exchanges along tp need. */
static int open_lists(struct ash_pass *pass, struct ash_err *err)
{
    struct ash_slice slice = pass->model->slice;
    size_t ranks = pass->tp.size;

    if (ranks == 1) return 0;
    pass->tp_counts = calloc(5 * ranks, sizeof(size_t));
    pass->lookup.host = calloc(3 * pass->opts.max_rows, sizeof(int32_t));
    pass->late = calloc(pass->model->param_count, sizeof(*pass->late));
    if (pass->tp_counts == NULL || pass->lookup.host == NULL || pass->late == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a pass over %zu rows", pass->opts.max_rows);
    pass->tp_more_counts = pass->tp_counts + ranks;
    pass->vocab_ends = pass->tp_counts + 2 * ranks;
    pass->lookup.send = pass->tp_counts + 3 * ranks;
    pass->lookup.recv = pass->tp_counts + 4 * ranks;
    for (slice.tp_rank = 0; slice.tp_rank < ranks; slice.tp_rank++) {
        struct ash_range vocab = ash_slice_vocab(&pass->model->whole, &slice);
        pass->vocab_ends[slice.tp_rank] = vocab.first + vocab.count;
    }
    return 0;
}

static int check_axes(const struct ash_model *model, const struct ash_pass_opts *opts, struct ash_err *err)
{
    const struct ash_slice *slice = &model->slice;

    if ((opts->tp.size > 1 ? opts->tp.size : 1) != slice->tp_size || opts->tp.rank != slice->tp_rank)
        return ash_err_set(err, -EINVAL,
                           "the model's slice is that of rank %zu of mesh.tp=%zu, but the pass is rank %zu of %zu",
                           slice->tp_rank, slice->tp_size, opts->tp.rank, opts->tp.size);
    if (opts->cp.size <= model->config.kv_heads) return 0;
    return ash_err_set(err, -EINVAL, "mesh.cp=%zu wants more parts than there are key-value heads (%zu%s)",
                       opts->cp.size, model->config.kv_heads, model->slice.tp_size > 1 ? " on a rank of mesh.tp" : "");
}

int ash_pass_open(struct ash_model *model, struct ash_exec *exec, const struct ash_pass_opts *opts,
                  struct ash_pass **pass_out, struct ash_err *err)
{
    struct ash_pass *pass;
    int rc;

    if (opts->max_rows == 0) return ash_err_set(err, -EINVAL, "a pass needs at least one row");
    if (opts->backward && model->gguf != NULL)
        return ash_err_set(err, -ENOTSUP, "a model from a GGUF file cannot be trained: use its Hugging Face folder");
    if ((rc = check_axes(model, opts, err)) < 0) return rc;
    pass = calloc(1, sizeof(*pass));
    if (pass == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a pass");
    rc = -ENOMEM;
    pass->model = model;
    pass->exec = exec;
    pass->opts = *opts;
    set_axes(pass);
    pass->layers = calloc(model->config.layers, sizeof(*pass->layers));
    pass->seqs = calloc(opts->max_rows, sizeof(*pass->seqs));
    pass->host_positions = calloc(opts->max_rows, sizeof(*pass->host_positions));
    pass->cp_there = calloc(ASH_ATTN_PARTS * pass->cp.size, sizeof(*pass->cp_there));
    pass->cp_back = calloc(ASH_ATTN_PARTS * pass->cp.size, sizeof(*pass->cp_back));
    pass->begun = calloc(model->param_count + 1, sizeof(*pass->begun));
    if (pass->layers == NULL || pass->seqs == NULL || pass->host_positions == NULL || pass->cp_there == NULL ||
        pass->cp_back == NULL || pass->begun == NULL) {
        ash_err_set(err, rc, "out of memory for a pass over %zu rows", opts->max_rows);
        goto fail;
    }
    if ((rc = ash_pass_layout(pass, err)) < 0) goto fail;
    if ((rc = ash_moe_open(pass, err)) < 0) goto fail;
    if ((rc = open_lists(pass, err)) < 0) goto fail;
    *pass_out = pass;
    return 0;

fail:
    ash_pass_close(pass);
    return rc;
}

void ash_pass_close(struct ash_pass *pass)
{
    if (pass == NULL) return;
    ash_moe_close(pass);
    ash_buffer_fini(&pass->memory);
    ash_buffer_fini(&pass->rope);
    if (pass->common.memory.data != NULL) pass->together.ops->common_close(pass->together.ctx, &pass->common.memory);
    free(pass->lookup.host);
    free(pass->late);
    free(pass->tp_counts);
    free(pass->cp_there);
    free(pass->cp_back);
    free(pass->begun);
    free(pass->host_positions);
    free(pass->seqs);
    free(pass->layers);
    free(pass);
}

size_t ash_pass_bytes(const struct ash_pass *pass)
{
    return pass->size_bytes;
}

int ash_pass_measure(const struct ash_model *model, const struct ash_pass_opts *opts, size_t *bytes_out,
                     struct ash_err *err)
{
    struct ash_pass pass = {.model = (struct ash_model *)model, .opts = *opts}; /* measuring changes nothing of it */

    pass.layers = calloc(model->config.layers, sizeof(*pass.layers));
    if (pass.layers == NULL) return ash_err_set(err, -ENOMEM, "out of memory to measure a pass");
    set_axes(&pass);
    *bytes_out = ash_pass_layout_bytes(&pass);
    free(pass.layers);
    return 0;
}

/* ---- the batch --------------------------------------------------------------------------------------------------- */

static int check_docs(const struct ash_pass *pass, const struct ash_batch *batch, bool cached, size_t *positions_out,
                      struct ash_err *err)
{
    size_t row = 0, positions = 0;

    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];
        if (doc->row != row || doc->count == 0 || doc->count > batch->rows - row)
            return ash_err_set(err, -EINVAL, "document %zu does not follow the one before it", i);
        if (!cached && doc->pos != 0)
            return ash_err_set(err, -EINVAL, "document %zu starts at %zu without a cache", i, doc->pos);
        if (doc->pos > pass->model->config.max_positions || doc->count > pass->model->config.max_positions - doc->pos)
            return ash_err_set(err, -EOVERFLOW, "the model's context is %zu tokens; %zu are wanted",
                               pass->model->config.max_positions, doc->pos + doc->count);
        if (doc->pos + doc->count > positions) positions = doc->pos + doc->count;
        row += doc->count;
    }
    if (row != batch->rows) return ash_err_set(err, -EINVAL, "documents cover %zu of %zu rows", row, batch->rows);
    *positions_out = positions;
    return 0;
}

static int check_batch(const struct ash_pass *pass, const struct ash_batch *batch, bool cached, size_t *positions_out,
                       struct ash_err *err)
{
    int32_t vocab = (int32_t)pass->model->whole.vocab;

    if (batch->rows == 0 || batch->rows > pass->opts.max_rows)
        return ash_err_set(err, -EINVAL, "a batch of %zu rows does not fit a pass of %zu", batch->rows,
                           pass->opts.max_rows);
    if (batch->seq_rows != 0 && batch->rows % batch->seq_rows != 0)
        return ash_err_set(err, -EINVAL, "a batch of %zu rows is not whole sequences of %zu", batch->rows,
                           batch->seq_rows);
    for (size_t i = 0; i < batch->rows; i++) {
        if (batch->ids[i] < 0 || batch->ids[i] >= vocab)
            return ash_err_set(err, -EINVAL, "token %d is outside the vocabulary of %d", batch->ids[i], vocab);
        if (batch->targets != NULL && batch->targets[i] >= vocab)
            return ash_err_set(err, -EINVAL, "target %d is outside the vocabulary of %d", batch->targets[i], vocab);
    }
    return check_docs(pass, batch, cached, positions_out, err);
}

/* Can the batch's tokens be dealt out along cp? */
static int check_share(const struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err)
{
    size_t size = pass->cp.size;

    if (size == 1) return 0;
    if (batch->seq_rows != 0 && batch->seq_rows != batch->rows)
        return ash_err_set(err, -EINVAL, "along cp a batch is one sequence, not %zu", batch->rows / batch->seq_rows);
    if (pass->model->round_bf16 && batch->rows < size * ASH_K_GROUP)
        return ash_err_set(err, -EINVAL,
                           "a sequence of %zu tokens cannot be cut into %zu parts: in bf16 each needs %d, so mesh.cp "
                           "can be at most %zu",
                           batch->rows, size, ASH_K_GROUP, batch->rows >= ASH_K_GROUP ? batch->rows / ASH_K_GROUP : 1);
    if (batch->rows < size)
        return ash_err_set(err, -EINVAL, "a sequence of %zu tokens cannot be cut into %zu parts", batch->rows, size);
    return 0;
}

static int begin(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, struct ash_err *err)
{
    const struct ash_memory_ops *memory = pass->exec->memory;
    size_t positions = 0, bytes;
    struct ash_range own;
    int rc;

    pass->batch = batch;
    pass->rows = pass->seq_rows = 0;
    pass->own = (struct ash_range){0};
    pass->cache = NULL;
    if (batch->rows == 0 && (pass->ep.size > 1 || pass->opts.hooks.need != NULL)) return 0;
    if ((rc = check_batch(pass, batch, cache != NULL, &positions, err)) < 0) return rc;
    if ((rc = check_share(pass, batch, err)) < 0) return rc;
    if (cache != NULL && (rc = ash_cache_begin(cache, pass, batch, err)) < 0) return rc;
    if ((rc = ash_pass_rope_reserve(pass, positions, err)) < 0) return rc;
    own = ash_pass_rows_of(pass, pass->cp.rank);
    bytes = own.count * sizeof(int32_t);
    pass->first_row = own.first;
    pass->rows = own.count;
    pass->seq_rows = batch->seq_rows != 0 && batch->seq_rows < own.count ? batch->seq_rows : own.count;
    pass->losses = pass->all_losses + own.first;
    pass->cache = cache;
    for (size_t i = 0; i < batch->doc_count; i++)
        for (size_t j = 0; j < batch->docs[i].count; j++)
            pass->host_positions[batch->docs[i].row + j] = (int32_t)(batch->docs[i].pos + j);
    rc = memory->copy(pass->ids, batch->ids + own.first, bytes);
    if (rc == 0) rc = memory->copy(pass->positions, pass->host_positions + own.first, bytes);
    if (rc == 0 && batch->targets != NULL) rc = memory->copy(pass->targets, batch->targets + own.first, bytes);
    if (rc < 0) return ash_err_set(err, rc, "cannot copy the batch");
    pass->own = ash_stream_rows(pass, pass->tp.rank);
    ash_stream_place(pass);
    ash_attn_place(pass);
    ash_head_place(pass);
    ash_ffn_place(pass);
    if (pass->tp.near) ash_share_meet(pass, ASH_SHARE_BATCHES, ++pass->common.batches); /* through with the last */
    return ash_embed_begin(pass, batch->ids + own.first, err);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* The stream behind a layer is the stream before the next. */
static float *layer_output(struct ash_pass *pass, size_t layer)
{
    return layer + 1 < pass->model->config.layers ? pass->layers[layer + 1].in : pass->final_in;
}

static void layer_forward(struct ash_pass *pass, size_t layer, float *out)
{
    struct ash_layer_acts *acts = &pass->layers[layer];

    if (pass->rows == 0) {
        if (pass->model->config.sparse[layer]) ash_moe_forward(pass, layer, NULL, NULL);
        return;
    }
    ash_attn_block_forward(pass, layer, acts->in, acts->mid);
    ash_ffn_block_forward(pass, layer, acts->mid, out);
}

static void need(struct ash_pass *pass, int unit, bool backward)
{
    const struct ash_pass_hooks *hooks = &pass->opts.hooks;

    if (hooks->need != NULL && pass->failed == 0)
        pass->failed = hooks->need(hooks->ctx, unit, backward, &pass->failure);
}

/* Gradients of the batch at hand so far are complete. */
static void settle(struct ash_pass *pass)
{
    ash_grad_settle(pass);
    if (!pass->shares_sums) return;
    ash_parts_take(pass, 0);
    ash_share_meet_heads(pass);
}

static void done(struct ash_pass *pass, int unit, bool backward)
{
    const struct ash_pass_hooks *hooks = &pass->opts.hooks;

    if (hooks->done != NULL && backward) settle(pass);
    if (hooks->done != NULL && pass->failed == 0)
        pass->failed = hooks->done(hooks->ctx, unit, backward, &pass->failure);
}

static void forward(struct ash_pass *pass)
{
    if (ash_pass_embeds(pass)) {
        need(pass, ASH_UNIT_EMBED, false);
        if (pass->rows > 0) ash_embed_forward(pass, pass->layers[0].in);
        done(pass, ASH_UNIT_EMBED, false);
    }
    for (size_t i = 0; i < pass->model->config.layers; i++) {
        need(pass, (int)i, false);
        layer_forward(pass, i, layer_output(pass, i));
        done(pass, (int)i, false);
    }
}

static void final_norm(struct ash_pass *pass, const float *x)
{
    const struct ash_layer *top = &pass->model->top;

    ash_norm_block_forward(pass, top->param[ASH_ROLE_FINAL_NORM], top->param[ASH_ROLE_FINAL_NORM_BIAS], x,
                           &pass->final_norm);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Full recomputation runs the layer's forward again; its last product is not needed, so it goes to a buffer nobody
 * reads. */
static void layer_backward(struct ash_pass *pass, size_t layer)
{
    bool again = pass->opts.recompute == ASH_RECOMPUTE_FULL;

    /* what is recomputed, and experts' gradients, have one place for all layers */
    if (pass->opts.recompute != ASH_RECOMPUTE_NONE || pass->model->config.sparse[layer]) ash_parts_await(pass);
    if (again && pass->tp.near) ash_share_meet(pass, ASH_SHARE_POSTS, ++pass->common.posts); /* norms are shared */
    if (again) layer_forward(pass, layer, pass->scratch.residual);
    if (pass->rows == 0) {
        if (pass->model->config.sparse[layer]) ash_moe_backward(pass, layer, NULL, NULL, NULL);
        return;
    }
    ash_ffn_block_backward(pass, layer);
    ash_attn_block_backward(pass, layer);
    ash_parts_take(pass, 0);
}

/* From the loss to the gradient of the stream behind the last layer. */
static void loss_backward(struct ash_pass *pass)
{
    const struct ash_layer *top = &pass->model->top;

    ash_norm_block_backward(pass, top->param[ASH_ROLE_FINAL_NORM], top->param[ASH_ROLE_FINAL_NORM_BIAS], pass->final_in,
                            &pass->final_norm, pass->scratch.dnorm, false, pass->scratch.dx);
}

static void backward(struct ash_pass *pass)
{
    for (size_t i = pass->model->config.layers; i-- > 0;) {
        need(pass, (int)i, true);
        layer_backward(pass, i);
        ash_grad_complete(pass, (int)i);
        done(pass, (int)i, true);
    }
    if (ash_pass_embeds(pass)) {
        if (pass->rows > 0) ash_embed_backward(pass);
        done(pass, ASH_UNIT_EMBED, true);
    }
    ash_grad_settle(pass);
    ash_grad_hand_over(pass);
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

bool ash_pass_embeds(const struct ash_pass *pass)
{
    return pass->model->slice.embed && pass->model->layer_ids[0] == 0;
}

bool ash_pass_ends(const struct ash_pass *pass)
{
    return pass->model->slice.head &&
           pass->model->layer_ids[pass->model->config.layers - 1] + 1 == pass->model->whole.layers;
}

size_t ash_pass_stream_count(const struct ash_pass *pass, size_t rows)
{
    size_t here = ash_slice_deal(rows, ASH_K_GROUP, pass->cp.rank, pass->cp.size).count;
    size_t own = here * (pass->tp.rank + 1) / pass->tp.size - here * pass->tp.rank / pass->tp.size;

    return own * pass->model->config.hidden;
}

float *ash_pass_input(struct ash_pass *pass)
{
    return pass->layers[0].in;
}

const float *ash_pass_output(const struct ash_pass *pass)
{
    return pass->final_in;
}

float *ash_pass_gradient(struct ash_pass *pass)
{
    return pass->scratch.dx;
}

int ash_pass_forward(struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err)
{
    int rc = begin(pass, batch, NULL, err);

    if (rc < 0) return rc;
    forward(pass);
    return ash_share_result(pass, err);
}

/* A tied output matrix is the embedding. */
static void need_head(struct ash_pass *pass, bool backward)
{
    need(pass, ASH_UNIT_HEAD, backward);
    if (pass->model->config.tied && ash_pass_embeds(pass)) need(pass, ASH_UNIT_EMBED, backward);
}

static void done_head(struct ash_pass *pass, bool backward)
{
    if (pass->model->config.tied && ash_pass_embeds(pass)) done(pass, ASH_UNIT_EMBED, false); /* its gradients go on */
    done(pass, ASH_UNIT_HEAD, backward);
}

/* Losses of the whole batch, and where gradients are wanted those of the head. */
static void end_with_losses(struct ash_pass *pass, float scale)
{
    if (pass->rows == 0) return;
    ash_assert(pass->batch->targets != NULL);
    final_norm(pass, pass->final_in);
    ash_head_loss(pass, scale);
    for (size_t r = 0; r < pass->cp.size; r++)
        pass->cp_there[r] = ash_pass_rows_of(pass, r).count;
    ash_share_gather(pass, &pass->cp, pass->all_losses, pass->cp_there);
}

static int copy_losses(struct ash_pass *pass, float *losses, struct ash_err *err)
{
    size_t rows = pass->batch->rows;
    int rc = rows == 0 ? 0 : pass->exec->memory->copy(losses, pass->all_losses, rows * sizeof(float));

    return rc < 0 ? ash_err_set(err, rc, "cannot copy the losses") : 0;
}

int ash_pass_losses(struct ash_pass *pass, float *losses, struct ash_err *err)
{
    int rc;

    pass->grads = NULL;
    need_head(pass, false);
    end_with_losses(pass, 0);
    done_head(pass, false);
    if ((rc = ash_share_result(pass, err)) < 0) return rc;
    return copy_losses(pass, losses, err);
}

int ash_pass_backward(struct ash_pass *pass, float scale, float *grads, float *losses, struct ash_err *err)
{
    int rc;

    ash_assert(pass->opts.backward);
    if ((rc = ash_moe_check_sums(pass, err)) < 0) return rc;
    ash_assert(!pass->batch->starts || ((pass->cp.size == 1 || pass->shares_sums) && pass->ep.size == 1));
    pass->grads = pass->rows > 0 ? grads : NULL;
    memset(pass->begun, 0, (pass->model->param_count + 1) * sizeof(*pass->begun));
    if (ash_pass_ends(pass)) {
        need_head(pass, true);
        end_with_losses(pass, scale);
        if (pass->rows > 0) loss_backward(pass);
        ash_grad_complete(pass, -1);
        done_head(pass, true);
    }
    backward(pass);
    if ((rc = ash_share_result(pass, err)) < 0) return rc;
    return ash_pass_ends(pass) ? copy_losses(pass, losses, err) : 0;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

int ash_pass_eval(struct ash_pass *pass, const struct ash_batch *batch, float *losses, struct ash_err *err)
{
    int rc = ash_pass_forward(pass, batch, err);

    if (rc == 0) rc = ash_pass_losses(pass, losses, err);
    return rc < 0 ? rc : ash_load_check(pass->model->load, err);
}

int ash_pass_train(struct ash_pass *pass, const struct ash_batch *batch, float scale, float *grads, float *losses,
                   struct ash_err *err)
{
    int rc = ash_moe_check_sums(pass, err);

    if (rc == 0) rc = ash_pass_forward(pass, batch, err);
    return rc < 0 ? rc : ash_pass_backward(pass, scale, grads, losses, err);
}

/* Of the rows in the scratch. */
static void wanted_logits(struct ash_pass *pass, size_t count, float *logits)
{
    const float *rows = pass->scratch.residual;

    pass->rows = pass->own.count = count;
    if (ash_pass_fuses_norm(pass)) {
        ash_head_logits(pass, rows, pass->model->top.param[ASH_ROLE_FINAL_NORM], count, logits);
        return;
    }
    final_norm(pass, rows);
    ash_head_logits(pass, pass->final_norm.out, ASH_NO_PARAM, count, logits);
}

int ash_pass_infer(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, const size_t *wanted,
                   size_t wanted_count, float *logits_out, struct ash_err *err)
{
    size_t hidden = pass->model->config.hidden;
    int rc;

    if (pass->cp.size > 1 || pass->tp.size > 1)
        return ash_err_set(err, -EINVAL, "a pass along cp or tp trains and evaluates; it does not infer");
    if ((rc = begin(pass, batch, cache, err)) < 0) return rc;
    forward(pass);
    /* only the wanted rows go through the norm and the head; one row's result does not depend on the others */
    for (size_t i = 0; i < wanted_count; i++) {
        ash_assert(wanted[i] < batch->rows && (i == 0 || wanted[i] > wanted[i - 1]));
        rc = pass->exec->memory->copy(pass->scratch.residual + i * hidden, pass->final_in + wanted[i] * hidden,
                                      hidden * sizeof(float));
        if (rc < 0) return ash_err_set(err, rc, "cannot copy the wanted rows");
    }
    if (wanted_count > 0) wanted_logits(pass, wanted_count, logits_out);
    return ash_load_check(pass->model->load, err);
}
