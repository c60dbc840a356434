/* pass_batch: a batch is checked, split along cp and tp, and copied to the device. */
#include <errno.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/cache_step.h"
#include "model/pass/pass_priv.h"
#include "model/pass/split.h"

/* ---- is it one? -------------------------------------------------------------------------------------------------- */

/* *positions_out: one past the last position of any document. */
static int check_docs(const struct ash_model_config *c, const struct ash_batch *batch, bool has_cache,
                      size_t *positions_out, struct ash_err *err)
{
    size_t row = 0, positions = 0;

    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];

        if (doc->row != row || doc->count == 0 || doc->count > batch->rows - row)
            return ash_err_set(err, -EINVAL, "document %zu does not follow the one before it", i);
        if (!has_cache && doc->pos != 0)
            return ash_err_set(err, -EINVAL, "document %zu starts at %zu without a cache", i, doc->pos);
        if (doc->pos > c->max_positions || doc->count > c->max_positions - doc->pos)
            return ash_err_set(err, -EOVERFLOW, "the model's context is %zu tokens; %zu are wanted", c->max_positions,
                               doc->pos + doc->count);
        positions = ash_max(positions, doc->pos + doc->count);
        row += doc->count;
    }
    if (row != batch->rows) return ash_err_set(err, -EINVAL, "documents cover %zu of %zu rows", row, batch->rows);
    *positions_out = positions;
    return 0;
}

static int check_rows(const struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err)
{
    const struct ash_model_config *whole = &pass->model->whole;
    int32_t vocab = (int32_t)(whole->embed_vocab > 0 ? whole->embed_vocab : whole->vocab);

    if ((batch->states != NULL) != pass->model->config.fuses_states)
        return ash_err_set(err, -EINVAL, "states of the tokens before go with a head for drafts, and only with it");
    if (batch->rows == 0 || batch->rows > pass->opts.max_rows)
        return ash_err_set(err, -EINVAL, "a batch of %zu rows does not fit a pass of %zu", batch->rows,
                           pass->opts.max_rows);
    if (batch->seq_rows != 0 && batch->rows % batch->seq_rows != 0)
        return ash_err_set(err, -EINVAL, "a batch of %zu rows is not whole sequences of %zu", batch->rows,
                           batch->seq_rows);
    for (size_t i = 0; i < batch->rows; i++) {
        if (!batch->follows_choice && (batch->ids[i] < 0 || batch->ids[i] >= vocab))
            return ash_err_set(err, -EINVAL, "token %d is outside the vocabulary of %d", batch->ids[i], vocab);
        if (batch->targets != NULL && batch->targets[i] >= vocab)
            return ash_err_set(err, -EINVAL, "target %d is outside the vocabulary of %d", batch->targets[i], vocab);
    }
    return 0;
}

/* Can cp split the batch's tokens? */
static int check_split(const struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err)
{
    size_t size = pass->axes.cp.size;

    if (size == 1) return 0;
    if (batch->seq_rows != 0 && batch->seq_rows != batch->rows)
        return ash_err_set(err, -EINVAL, "along cp a batch is one sequence, not %zu", batch->rows / batch->seq_rows);
    if (pass->model->round_bf16 && batch->rows < size * ASH_K_GROUP)
        return ash_err_set(err, -EINVAL,
                           "a sequence of %zu tokens cannot be cut into %zu parts: in bf16 each needs %d, so mesh.cp "
                           "can be at most %zu",
                           batch->rows, size, ASH_K_GROUP, ash_max(batch->rows / ASH_K_GROUP, 1));
    if (batch->rows < size)
        return ash_err_set(err, -EINVAL, "a sequence of %zu tokens cannot be cut into %zu parts", batch->rows, size);
    return 0;
}

static int check_batch(const struct ash_pass *pass, const struct ash_batch *batch, bool has_cache,
                       size_t *positions_out, struct ash_err *err)
{
    int rc = check_rows(pass, batch, err);

    if (rc < 0) return rc;
    rc = check_docs(&pass->model->config, batch, has_cache, positions_out, err);
    return rc < 0 ? rc : check_split(pass, batch, err);
}

/* ---- make it the current one ------------------------------------------------------------------------------------- */

/* Which text of a pair rows belong to. A table of one kind of text gives all of them the same. */
static int copy_segments(struct ash_pass *pass, const struct ash_batch *batch, struct ash_range rows)
{
    bool has_two = pass->model->config.segments > 1;
    int32_t *segments = pass->positions + pass->opts.max_rows;

    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];

        for (size_t j = 0; j < doc->count; j++)
            segments[doc->row + j] = has_two && doc->second > 0 && j >= doc->second;
    }
    return ash_exec_upload(pass->exec, pass->acts.block.segments, segments + rows.first,
                           rows.count * sizeof(*segments));
}

/* Copy this rank's rows to the device. */
static int copy_rows(struct ash_pass *pass, const struct ash_batch *batch, struct ash_range rows, struct ash_err *err)
{
    const struct ash_batch_block *block = &pass->acts.block;
    size_t bytes = rows.count * sizeof(int32_t), first = pass->model->config.first_position;
    int rc;

    for (size_t i = 0; i < batch->doc_count; i++)
        for (size_t j = 0; j < batch->docs[i].count; j++)
            pass->positions[batch->docs[i].row + j] = (int32_t)(batch->docs[i].pos + j + first);
    if (!batch->follows_choice) {
        rc = ash_exec_upload(pass->exec, block->ids, batch->ids + rows.first, bytes);
        if (rc < 0) goto fail;
    }
    rc = ash_exec_upload(pass->exec, block->positions, pass->positions + rows.first, bytes);
    if (rc < 0) goto fail;
    if (block->segments != NULL) rc = copy_segments(pass, batch, rows);
    if (rc < 0) goto fail;
    if (batch->targets == NULL) return 0;
    rc = ash_exec_upload(pass->exec, block->targets, batch->targets + rows.first, bytes);
    if (rc < 0) goto fail;
    if (block->sequences == NULL || batch->dropout.numbers == NULL) return 0;
    rc = ash_exec_upload(pass->exec, block->sequences, batch->dropout.numbers,
                         (batch->seq_rows != 0 ? batch->rows / batch->seq_rows : 1) * sizeof(uint64_t));
    if (rc < 0) goto fail;
    return 0;

fail:
    return ash_err_set(err, rc, "cannot copy the batch");
}

static bool has_adapters(const struct ash_pass *pass, const struct ash_batch *batch)
{
    for (size_t i = 0; i < batch->doc_count; i++)
        if (batch->docs[i].adapters != NULL) return true;
    return pass->model->adapters != NULL;
}

/* A batch without rows on this rank. */
static struct ash_pass_step empty_step(struct ash_pass *pass, const struct ash_batch *batch)
{
    return (struct ash_pass_step){.model = pass->model,
                                  .exec = pass->exec,
                                  .opts = &pass->opts,
                                  .axes = &pass->axes,
                                  .acts = &pass->acts,
                                  .rope = &pass->rope,
                                  .ulysses = &pass->ulysses,
                                  .moe = &pass->moe,
                                  .embed = &pass->embed,
                                  .seqs = pass->seqs,
                                  .state_seqs = pass->state_seqs,
                                  .few_kept = pass->few_kept,
                                  .kept_row = pass->kept_row,
                                  .kv_dtype = ash_model_kv_dtype(pass->model),
                                  .has_adapters = pass->model->adapters != NULL,
                                  .batch = batch};
}

/* May a rank have no rows to compute? Then it serves the experts of others, or only calls the hooks. */
static bool may_be_empty(const struct ash_pass *pass)
{
    return pass->axes.ep.size > 1 || pass->opts.hooks.need != NULL;
}

int ash_pass_begin(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, struct ash_err *err)
{
    struct ash_axes *axes = &pass->axes;
    struct ash_range rows;
    size_t positions = 0;
    int rc;

    pass->step = empty_step(pass, batch);
    if (batch->rows == 0 && may_be_empty(pass)) return 0;
    rc = check_batch(pass, batch, cache != NULL, &positions, err);
    if (rc == 0 && cache != NULL) rc = ash_pass_check_logits(pass->model, err); /* encoders keep nothing */
    if (rc < 0) return rc;
    if (cache != NULL) {
        rc = ash_cache_begin(cache, pass->model, batch, err);
        if (rc < 0) return rc;
    }
    rc = ash_rope_reserve(&pass->rope, pass->model, pass->exec, positions, err);
    if (rc < 0) return rc;
    rows = ash_split_rows_cp(axes, batch->rows, axes->cp.rank);
    ash_assert(rows.count > 0 && rows.count <= ash_split_max_rows(&pass->opts, axes));
    rc = copy_rows(pass, batch, rows, err);
    if (rc < 0) return rc;
    pass->step.cache = cache;
    pass->step.has_adapters = has_adapters(pass, batch);
    pass->step.first_row = rows.first;
    pass->step.kept = batch->kept != NULL ? batch->kept + rows.first : NULL;
    pass->step.rows = rows.count;
    pass->step.seq_rows = ash_split_seq_rows(batch, rows.count);
    pass->step.own = ash_split_rows_tp(axes, rows.count, pass->step.seq_rows, axes->tp.rank);
    ash_acts_bind(&pass->acts, pass->model, axes, rows.first, pass->step.own.first);
    if (axes->tp.same_node) ash_axes_enter_batch(axes);
    return ash_embed_begin(&pass->step, batch->ids + rows.first, err);
}
