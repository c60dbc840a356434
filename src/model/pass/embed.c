/* The embedding: from tokens to the stream, and the gradient's way back. Where tensor-parallel ranks have parts of the
 * vocabulary, each looks up the tokens that it holds and hands the rows to the ranks that keep them: rows move, nothing
 * is added. */
#include "model/pass/pass_priv.h"

#include <errno.h>

#include "base/file.h"

/* ---- which rank holds which token's row -------------------------------------------------------------------------- */

static size_t holder_of(const struct ash_pass *pass, int32_t id)
{
    size_t rank = 0;

    while ((size_t)id >= pass->vocab_ends[rank])
        rank++;
    return rank;
}

/* The tokens that this rank holds, and how many of their rows each rank keeps. */
static void list_held(struct ash_pass *pass, const int32_t *tokens, int32_t *ids, int32_t *rows)
{
    struct ash_lookup *look = &pass->lookup;
    size_t hidden = pass->model->config.hidden;

    look->held = 0;
    for (size_t r = 0; r < pass->tp.size; r++) {
        struct ash_range kept = ash_stream_rows(pass, r);

        look->send[r] = 0;
        for (size_t i = kept.first; i < kept.first + kept.count; i++) {
            if (holder_of(pass, tokens[i]) != pass->tp.rank) continue;
            ids[look->held] = tokens[i] - (int32_t)pass->model->vocab.first;
            rows[look->held++] = (int32_t)i;
            look->send[r] += hidden;
        }
    }
}

/* Where in what the ranks hand over, one behind the other, each row that this rank keeps is. */
static void list_own(struct ash_pass *pass, const int32_t *tokens, int32_t *index)
{
    struct ash_lookup *look = &pass->lookup;
    int32_t at = 0;

    for (size_t r = 0; r < pass->tp.size; r++) {
        int32_t from = at;

        for (size_t i = 0; i < pass->own.count; i++)
            if (holder_of(pass, tokens[pass->own.first + i]) == r) index[i] = at++;
        look->recv[r] = (size_t)(at - from) * pass->model->config.hidden;
    }
}

int ash_embed_begin(struct ash_pass *pass, const int32_t *ids, struct ash_err *err)
{
    const struct ash_memory_ops *memory = pass->exec->memory;
    struct ash_lookup *look = &pass->lookup;
    size_t most = pass->opts.max_rows;
    int rc;

    if (pass->tp.size == 1 || !ash_pass_embeds(pass)) return 0;
    list_held(pass, ids, look->host, look->host + most);
    list_own(pass, ids, look->host + 2 * most);
    rc = memory->copy(look->ids, look->host, look->held * sizeof(int32_t));
    if (rc == 0) rc = memory->copy(look->rows, look->host + most, look->held * sizeof(int32_t));
    if (rc == 0) rc = memory->copy(look->index, look->host + 2 * most, pass->own.count * sizeof(int32_t));
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the batch") : 0;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void round_rows(struct ash_pass *pass, enum ash_dtype dtype, float *x)
{
    if (pass->model->round_bf16 && dtype != ASH_BF16)
        pass->exec->ops->row->round_bf16(pass->exec, x, pass->own.count * pass->model->config.hidden, x);
}

/* A table that is only looked up is not loaded: its rows are asked for together, and no more than these. */
static void want_rows(const struct ash_pass *pass, const struct ash_param *table)
{
    size_t row_bytes = ash_dtype_size(table->dtype, pass->model->config.hidden);

    for (size_t i = 0; pass->model->load != NULL && i < pass->rows; i++)
        ash_map_want((const char *)table->data + (size_t)pass->ids[i] * row_bytes, row_bytes);
}

static void look_up(struct ash_pass *pass, const struct ash_param *table, float *x)
{
    const struct ash_ops *ops = pass->exec->ops;
    const struct ash_lookup *look = &pass->lookup;
    struct ash_scratch *s = &pass->scratch;
    size_t hidden = pass->model->config.hidden;

    if (pass->tp.size == 1) {
        want_rows(pass, table);
        ops->embed->gather(pass->exec, table->data, table->dtype, hidden, pass->ids, pass->rows, false, x);
        return;
    }
    ops->embed->gather(pass->exec, table->data, table->dtype, hidden, look->ids, look->held, false, s->x_all);
    ash_share_exchange(pass, &pass->tp, s->x_all, look->send, s->residual, look->recv);
    ops->row->gather(pass->exec, s->residual, hidden, look->index, pass->own.count, x);
}

void ash_embed_forward(struct ash_pass *pass, float *x)
{
    const struct ash_model *model = pass->model;
    const struct ash_ops *ops = pass->exec->ops;
    const struct ash_param *table = &model->params[model->top.param[ASH_ROLE_EMBED]];
    size_t hidden = model->config.hidden;

    look_up(pass, table, x);
    round_rows(pass, table->dtype, x);
    if (!ash_layer_has(&model->top, ASH_ROLE_POSITION)) return;
    const struct ash_param *places = &model->params[model->top.param[ASH_ROLE_POSITION]];
    float *place = pass->scratch.residual;
    ops->embed->gather(pass->exec, places->data, places->dtype, hidden, pass->positions + pass->own.first,
                       pass->own.count, false, place);
    round_rows(pass, places->dtype, place);
    ops->row->add(pass->exec, x, place, pass->own.count * hidden, x);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The gradient of the rows of a table that ids looked up. */
static void scatter_grad(struct ash_pass *pass, int32_t table, const int32_t *ids, size_t rows, const float *grad)
{
    pass->exec->ops->embed->scatter_add(pass->exec, ash_grad_begin(pass, table, ASH_GRAD_ALL),
                                        pass->model->config.hidden, ids, rows, grad);
    ash_grad_end(pass, table, ASH_GRAD_ALL);
}

void ash_embed_backward(struct ash_pass *pass)
{
    const struct ash_layer *top = &pass->model->top;
    const struct ash_lookup *look = &pass->lookup;
    struct ash_scratch *s = &pass->scratch;
    const float *dx = ash_stream_gather(pass, s->dx, s->dy_all);

    if (pass->tp.size == 1) {
        scatter_grad(pass, top->param[ASH_ROLE_EMBED], pass->ids, pass->rows, dx);
    } else {
        pass->exec->ops->row->gather(pass->exec, dx, pass->model->config.hidden, look->rows, look->held, s->x_all);
        scatter_grad(pass, top->param[ASH_ROLE_EMBED], look->ids, look->held, s->x_all);
    }
    if (ash_layer_has(top, ASH_ROLE_POSITION))
        scatter_grad(pass, top->param[ASH_ROLE_POSITION], pass->positions, pass->rows, dx);
}
