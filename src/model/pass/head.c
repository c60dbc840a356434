/* The output matrix and the loss, a few rows at a time: logits of all tokens never exist at once.
 * A weight gradient is one chain over tokens that may be cut at the ends of sequences and, inside one, at whole groups
 * of k; pieces end there, so their size changes no bit. */
#include "model/pass/pass_priv.h"

static int32_t head_param(const struct ash_model *model)
{
    return model->config.tied ? model->top.param[ASH_ROLE_EMBED] : model->top.param[ASH_ROLE_HEAD];
}

/* The sum that the head's gradient goes to: a tied head has one of its own beside the embedding's (see
 * ash_model_grad_fold). */
static int32_t head_sum(const struct ash_model *model)
{
    return model->config.tied && model->slice.embed ? ASH_TIED_HEAD : head_param(model);
}

void ash_head_place(struct ash_pass *pass)
{
    struct ash_scratch *s = &pass->scratch;

    if (s->logits_all != NULL) s->logits = s->logits_all + pass->first_row * pass->model->vocab.count;
}

void ash_head_logits(struct ash_pass *pass, const float *x, int32_t norm, size_t count, float *logits_out)
{
    const struct ash_model_config *c = &pass->model->config;

    ash_linear_project(pass->model, pass->exec,
                       &(struct ash_linear_group){
                           .rows = count,
                           .x = x,
                           .x_stride = c->hidden,
                           .norm = norm,
                           .out_count = 1,
                           .outs[0] = {head_param(pass->model), ASH_NO_PARAM, logits_out, pass->model->vocab.count}});
}

/* ---- the loss where the vocabulary is dealt out ------------------------------------------------------------------ */

/* The part of the loss of rows, of which piece has more. */
static struct ash_loss_part part_of(const struct ash_loss_part *piece, size_t first, struct ash_range rows, bool start)
{
    struct ash_loss_part part = *piece;
    size_t skip = rows.first - first;

    part.rows = rows.count;
    part.start = start;
    part.logits += skip * part.cols;
    part.targets += skip;
    part.top += 2 * skip;
    part.lanes += ASH_LANES * skip;
    part.loss += skip;
    return part;
}

struct piece {
    size_t first;
    struct ash_loss_part part;
};

static void top_step(struct ash_pass *pass, void *ctx, const struct ash_terms *terms, struct ash_range rows, bool start,
                     float *sums)
{
    const struct piece *piece = ctx;
    struct ash_loss_part part = part_of(&piece->part, piece->first, rows, start);

    (void)terms;
    part.top = sums;
    pass->exec->ops->loss->part_top(pass->exec, &part);
}

static void sum_step(struct ash_pass *pass, void *ctx, const struct ash_terms *terms, struct ash_range rows, bool start,
                     float *sums)
{
    const struct piece *piece = ctx;
    struct ash_loss_part part = part_of(&piece->part, piece->first, rows, start);

    (void)terms;
    part.lanes = sums;
    pass->exec->ops->loss->part_sum(pass->exec, &part);
}

/* What step makes of rows, rank by rank, on every rank: all [rows of the batch, cols]. */
static void go_round(struct ash_pass *pass, struct piece *piece,
                     void (*step)(struct ash_pass *, void *, const struct ash_terms *, struct ash_range, bool, float *),
                     float *all, size_t cols)
{
    struct ash_chain chain = {
        .rows = {piece->first, piece->part.rows}, .cols = cols, .rounds = 1, .step = step, .ctx = piece, .all = all};

    ash_chain_run(pass, &chain);
}

/* All of the loss of the piece's rows that this rank takes, over everyone's logits, where ranks share memory. */
static void loss_by_rows(struct ash_pass *pass, const struct piece *piece)
{
    const struct ash_loss_ops *ops = pass->exec->ops->loss;
    void (*const steps[])(struct ash_exec *, const struct ash_loss_part *) = {ops->part_top, ops->part_sum,
                                                                              ops->part_end};
    struct ash_range all = {piece->first, piece->part.rows}, rows = ash_rows_share(pass, all);
    struct ash_terms own = {.rank = pass->tp.rank, .x = piece->part.logits, .x_stride = piece->part.cols};

    ash_terms_post(pass, &own, 1);
    ash_terms_await(pass);
    for (size_t i = 0; rows.count > 0 && pass->failed == 0 && i < 3 * pass->tp.size; i++) {
        size_t rank = i % pass->tp.size;
        struct ash_loss_part part = piece->part;

        part.logits = pass->common.memory.data + (ash_terms_of(pass, rank, 0).x - pass->common.memory.data);
        part.first = rank == 0 ? 0 : pass->vocab_ends[rank - 1];
        part.cols = pass->vocab_ends[rank] - part.first;
        part.loss = pass->common.losses + all.first;
        part = part_of(&part, all.first, rows, rank == 0);
        steps[i / pass->tp.size](pass->exec, &part);
    }
    ash_share_meet(pass, ASH_SHARE_POSTS, ++pass->common.posts);
    pass->exec->memory->copy(piece->part.loss, pass->common.losses + all.first, all.count * sizeof(float));
}

static void shared_loss(struct ash_pass *pass, size_t first, size_t count, float scale)
{
    const struct ash_range *vocab = &pass->model->vocab;
    struct ash_scratch *s = &pass->scratch;
    struct piece piece = {first,
                          {.rows = count,
                           .cols = vocab->count,
                           .first = vocab->first,
                           .logits = s->logits,
                           .targets = pass->targets + first,
                           .scale = scale,
                           .top = s->top + 2 * first,
                           .lanes = s->lanes + ASH_LANES * first,
                           .loss = pass->losses + first}};

    if (pass->tp.near) {
        loss_by_rows(pass, &piece);
        return;
    }
    go_round(pass, &piece, top_step, s->top, 2);
    go_round(pass, &piece, sum_step, s->lanes, ASH_LANES);
    pass->exec->ops->loss->part_end(pass->exec, &piece.part);
}

/* ---- a few rows -------------------------------------------------------------------------------------------------- */

/* Has every rank of cp one piece? They must know alike how turns at the head go. */
static bool one_piece(const struct ash_pass *pass)
{
    for (size_t r = 0; r < pass->cp.size; r++)
        if (ash_pass_rows_of(pass, r).count > pass->head_rows) return false;
    return true;
}

/* The output matrix's gradient over the rows of a piece. All pieces are one turn; where there is only one, it is taken
 * in parts of the matrix. */
static void weight_grads(struct ash_pass *pass, const struct ash_columns *columns)
{
    int32_t sum = head_sum(pass->model), head = columns->columns[0].weight;
    struct ash_linear_io io = {.rows = columns->rows,
                               .x = columns->x,
                               .x_stride = columns->in,
                               .dy = columns->columns[0].dy,
                               .dy_stride = columns->columns[0].dy_stride,
                               .seq_rows = columns->seq_rows,
                               .among_all = columns->among_all};

    if (one_piece(pass)) {
        ash_pass_weight_backward(pass, sum, head, &io);
        return;
    }
    if (columns->first == 0) ash_grad_begin(pass, sum, ASH_GRAD_ALL);
    ash_linear_weight_grad(pass->model, pass->exec, head, &io, ash_grad_starts(pass, sum), ash_grad_sum(pass, sum));
    if (columns->first + columns->rows == pass->rows) ash_grad_end(pass, sum, ASH_GRAD_ALL);
}

/* From logits, which are gradients by now, to those of the output matrix and to dnorm. */
static void backward_rows(struct ash_pass *pass, const float *x, size_t first, size_t count)
{
    struct ash_scratch *s = &pass->scratch;
    int32_t head = head_param(pass->model);
    size_t hidden = pass->model->config.hidden, vocab = pass->model->vocab.count;
    struct ash_columns columns = {.first = first,
                                  .rows = count,
                                  .in = hidden,
                                  .seq_rows = count < pass->seq_rows ? count : pass->seq_rows,
                                  .x = x,
                                  .dx = s->dnorm,
                                  .among_all = s->logits_all != NULL,
                                  .count = 1,
                                  .columns[0] = {head, ASH_NO_PARAM, s->logits, vocab}};
    struct ash_linear_io io = {
        .rows = count, .dy = s->logits, .dy_stride = vocab, .dx = s->dnorm + first * hidden, .dx_stride = hidden};

    if (pass->tp.size > 1) {
        ash_columns_backward_rows(pass, &columns, weight_grads);
        return;
    }
    /* as in ash_pass_linear_backward: who has to wait for a turn does dx first */
    bool waits = pass->cp.rank > 0 && !columns.among_all;
    if (waits) ash_linear_input_grad(pass->model, pass->exec, head, &io);
    weight_grads(pass, &columns);
    if (!waits) ash_linear_input_grad(pass->model, pass->exec, head, &io);
}

/* x: the normed stream, all rows. */
static void loss_rows(struct ash_pass *pass, const float *x, size_t first, size_t count, float scale)
{
    size_t hidden = pass->model->config.hidden, vocab = pass->model->vocab.count;
    struct ash_scratch *s = &pass->scratch;
    float used_scale = pass->grads != NULL ? scale : 0;

    x += first * hidden;
    ash_head_logits(pass, x, ASH_NO_PARAM, count, s->logits);
    if (pass->tp.size > 1)
        shared_loss(pass, first, count, used_scale);
    else
        pass->exec->ops->loss->cross_entropy(pass->exec, s->logits, count, vocab, pass->targets + first, used_scale,
                                             pass->losses + first);
    if (pass->grads == NULL) return;
    backward_rows(pass, x, first, count);
    /* others have made sums of these logits, and sums for rows that this rank keeps */
    if (pass->tp.near) ash_share_meet(pass, ASH_SHARE_POSTS, ++pass->common.posts);
}

/* Rows of the piece that starts at row first: as many as fit, of whole groups where sequences are that; else whole
 * sequences; else a part of one. */
static size_t piece_rows(const struct ash_pass *pass, size_t first)
{
    size_t in_sequence = pass->seq_rows - first % pass->seq_rows, left = pass->rows - first;
    size_t most = pass->head_rows;

    if (pass->seq_rows % ASH_K_GROUP != 0) {
        if (pass->seq_rows <= most)
            most = most / pass->seq_rows * pass->seq_rows;
        else
            left = in_sequence;
    }
    return left < most ? left : most;
}

void ash_head_loss(struct ash_pass *pass, float scale)
{
    const float *x = ash_stream_gather(pass, pass->final_norm.out, pass->scratch.x_all);

    for (size_t first = 0, count; first < pass->rows; first += count) {
        count = piece_rows(pass, first);
        loss_rows(pass, x, first, count, scale);
    }
}
