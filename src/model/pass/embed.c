/* embed: look tokens up, or the gradients of their rows, in the part of the table that is here. */
#include "model/pass/embed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/file.h"
#include "model/load.h"
#include "model/pass/fuse.h"
#include "model/pass/norm.h"
#include "model/pass/split.h"
#include "model/pass/stream.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_embed_open(struct ash_embed_plan *plan, const struct ash_model *model, const struct ash_axes *axes,
                   size_t max_rows, struct ash_err *err)
{
    size_t ranks = axes->tp.size;

    *plan = (struct ash_embed_plan){0};
    if (ranks == 1) return 0;
    plan->held_ids = calloc(max_rows, sizeof(*plan->held_ids));
    plan->held_rows = calloc(max_rows, sizeof(*plan->held_rows));
    plan->own_index = calloc(max_rows, sizeof(*plan->own_index));
    plan->send = calloc(ranks, sizeof(*plan->send));
    plan->recv = calloc(ranks, sizeof(*plan->recv));
    plan->vocab_ends = calloc(ranks, sizeof(*plan->vocab_ends));
    if (plan->held_ids == NULL || plan->held_rows == NULL || plan->own_index == NULL || plan->send == NULL ||
        plan->recv == NULL || plan->vocab_ends == NULL) {
        ash_embed_close(plan);
        return ash_err_set(err, -ENOMEM, "out of memory for a pass over %zu rows", max_rows);
    }
    for (size_t r = 0; r < ranks; r++)
        plan->vocab_ends[r] = ash_range_end(ash_split_vocab_tp(model, axes, r));
    return 0;
}

void ash_embed_close(struct ash_embed_plan *plan)
{
    free(plan->held_ids);
    free(plan->held_rows);
    free(plan->own_index);
    free(plan->send);
    free(plan->recv);
    free(plan->vocab_ends);
    memset(plan, 0, sizeof(*plan));
}

/* ---- which rank holds which token's row -------------------------------------------------------------------------- */

static size_t holder_of(const struct ash_embed_plan *plan, int32_t id)
{
    size_t rank = 0;

    while ((size_t)id >= plan->vocab_ends[rank])
        rank++;
    return rank;
}

/* The tokens that this rank holds, and how many of their rows each rank keeps. */
static void list_held(const struct ash_pass_step *step, const int32_t *tokens)
{
    struct ash_embed_plan *plan = step->embed;

    plan->held_count = 0;
    for (size_t r = 0; r < step->axes->tp.size; r++) {
        struct ash_range kept = ash_split_rows_tp(step->axes, step->rows, step->seq_rows, r);
        size_t before = plan->held_count;

        for (size_t i = kept.first; i < ash_range_end(kept); i++) {
            if (holder_of(plan, tokens[i]) != step->axes->tp.rank) continue;
            plan->held_ids[plan->held_count] = tokens[i] - (int32_t)step->model->vocab.first;
            plan->held_rows[plan->held_count++] = (int32_t)i;
        }
        plan->send[r] = (plan->held_count - before) * step->model->config.hidden;
    }
}

/* Where in what the ranks send, one after the other, each row that this rank keeps is. */
static void list_own(const struct ash_pass_step *step, const int32_t *tokens)
{
    struct ash_embed_plan *plan = step->embed;
    int32_t at = 0;

    for (size_t r = 0; r < step->axes->tp.size; r++) {
        int32_t from = at;

        for (size_t i = 0; i < step->own.count; i++)
            if (holder_of(plan, tokens[step->own.first + i]) == r) plan->own_index[i] = at++;
        plan->recv[r] = (size_t)(at - from) * step->model->config.hidden;
    }
}

static int copy_lists(const struct ash_pass_step *step)
{
    const struct ash_memory_ops *memory = step->exec->memory;
    const struct ash_embed_plan *plan = step->embed;
    const struct ash_batch_block *block = &step->acts->block;
    int rc = memory->copy(block->held_ids, plan->held_ids, plan->held_count * sizeof(int32_t));

    if (rc < 0) return rc;
    rc = memory->copy(block->held_rows, plan->held_rows, plan->held_count * sizeof(int32_t));
    if (rc < 0) return rc;
    return memory->copy(block->own_index, plan->own_index, step->own.count * sizeof(int32_t));
}

int ash_embed_begin(const struct ash_pass_step *step, const int32_t *ids, struct ash_err *err)
{
    int rc;

    if (step->model->config.fuses_states) return ash_fuse_begin(step, err);
    if (step->axes->tp.size == 1 || !ash_split_has_embed(step->model)) return 0;
    ash_assert(ids != NULL && step->rows <= step->opts->max_rows);
    list_held(step, ids);
    list_own(step, ids);
    rc = copy_lists(step);
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the batch") : 0;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void round_rows(const struct ash_pass_step *step, enum ash_dtype dtype, float *x)
{
    if (step->model->round_bf16 && dtype != ASH_BF16)
        step->exec->ops->row->round_bf16(step->exec, x, step->own.count * step->model->config.hidden, x);
}

/* The factor on looked-up rows, or their gradients; in a bf16 model it is a bf16 number. */
static void scale_rows(const struct ash_pass_step *step, float *x)
{
    float factor = (float)step->model->config.form.embed_scale;

    if (factor == 0) return;
    if (step->model->round_bf16) factor = ash_bf16_round(factor);
    step->exec->ops->row->scale(step->exec, x, factor, step->own.count * step->model->config.hidden);
}

/* A table that is only looked up is not loaded: only the rows of these tokens are prefetched, all at once. */
static void want_rows(const struct ash_pass_step *step, const struct ash_param *table)
{
    size_t row_bytes = ash_dtype_size(table->dtype, step->model->config.hidden);

    for (size_t i = 0; step->model->load != NULL && i < step->rows; i++)
        ash_map_want((const char *)table->data + (size_t)step->acts->block.ids[i] * row_bytes, row_bytes);
}

/* out [count, hidden]: the rows of a table that ids name. */
static void gather(const struct ash_pass_step *step, const struct ash_param *table, const int32_t *ids, size_t count,
                   float *out)
{
    struct ash_embed_args args = {.table = table->data,
                                  .dtype = table->dtype,
                                  .cols = step->model->config.hidden,
                                  .rows = count,
                                  .ids = ids,
                                  .out = out};

    step->exec->ops->embed->gather(step->exec, &args);
}

static void look_up(const struct ash_pass_step *step, const struct ash_param *table, float *x)
{
    const struct ash_ops *ops = step->exec->ops;
    const struct ash_embed_plan *plan = step->embed;
    struct ash_scratch *s = &step->acts->scratch;
    size_t hidden = step->model->config.hidden;

    if (step->axes->tp.size == 1) {
        want_rows(step, table);
        gather(step, table, step->acts->block.ids, step->rows, x);
        return;
    }
    gather(step, table, step->acts->block.held_ids, plan->held_count, s->x_gathered);
    ash_axes_all_to_all(step->axes, &step->axes->tp, s->x_gathered, plan->send, s->residual, plan->recv);
    ops->row->gather(step->exec, s->residual, hidden, step->acts->block.own_index, step->own.count, x);
}

/* Add the rows of another table, if there is one. */
static void add_rows(const struct ash_pass_step *step, enum ash_role role, const int32_t *ids, float *x)
{
    const struct ash_model *model = step->model;
    int32_t param = model->top.param[role];
    float *more = step->acts->scratch.residual;

    if (param == ASH_NO_PARAM) return;
    ash_load_wait_rows(model->load, param);
    gather(step, &model->params[param], ids, step->own.count, more);
    round_rows(step, model->params[param].dtype, more);
    step->exec->ops->row->add(step->exec, x, more, step->own.count * model->config.hidden, x);
}

/* A norm over what was looked up, if there is one. */
static void norm_rows(const struct ash_pass_step *step, float *x)
{
    const int32_t *param = step->model->top.param;

    ash_norm_in_place(step, (struct ash_norm_params){param[ASH_ROLE_EMBED_NORM], param[ASH_ROLE_EMBED_NORM_BIAS]}, x);
}

void ash_embed_forward(const struct ash_pass_step *step, float *x)
{
    const struct ash_model *model = step->model;
    const struct ash_param *table = &model->params[model->top.param[ASH_ROLE_EMBED]];

    ash_load_wait_rows(model->load, model->top.param[ASH_ROLE_EMBED]);
    look_up(step, table, x);
    round_rows(step, table->dtype, x);
    scale_rows(step, x);
    add_rows(step, ASH_ROLE_POSITION, step->acts->block.positions + step->own.first, x);
    add_rows(step, ASH_ROLE_SEGMENT, step->acts->block.segments, x);
    norm_rows(step, x);
    if (model->config.fuses_states) ash_fuse_forward(step, x);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The gradient of the rows of a table that ids looked up. */
static void scatter_grad(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t table,
                         const int32_t *ids, size_t rows, const float *grad)
{
    float *sum = ash_grad_acquire(sink, table, ASH_GRAD_ALL);

    if (sum == NULL && step->model->adapters != NULL) return; /* frozen */
    ash_assert(sum != NULL);
    step->exec->ops->embed->scatter_add(step->exec, sum, step->model->config.hidden, ids, rows, grad);
    ash_grad_release(sink, table, ASH_GRAD_ALL);
}

void ash_embed_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink)
{
    const struct ash_layer *top = &step->model->top;
    const struct ash_embed_plan *plan = step->embed;
    struct ash_scratch *s = &step->acts->scratch;
    const float *dx;

    scale_rows(step, s->dx);
    dx = ash_stream_gather(step, s->dx, s->dy_gathered);

    if (step->axes->tp.size == 1) {
        scatter_grad(step, sink, top->param[ASH_ROLE_EMBED], step->acts->block.ids, step->rows, dx);
    } else {
        step->exec->ops->row->gather(step->exec, dx, step->model->config.hidden, step->acts->block.held_rows,
                                     plan->held_count, s->x_gathered);
        scatter_grad(step, sink, top->param[ASH_ROLE_EMBED], step->acts->block.held_ids, plan->held_count,
                     s->x_gathered);
    }
    if (ash_layer_has(top, ASH_ROLE_POSITION))
        scatter_grad(step, sink, top->param[ASH_ROLE_POSITION], step->acts->block.positions, step->rows, dx);
}
