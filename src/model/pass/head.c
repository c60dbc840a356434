/* head: logits, the loss over them, and back. A weight gradient is one chain over tokens that may be cut at the ends of
 * sequences and, inside one, at whole groups of k; pieces of rows end there, so their size changes no bit. */
#include "model/pass/head.h"

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/linear_grads.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/reduce.h"
#include "model/pass/reduce_shm.h"
#include "model/pass/split.h"
#include "model/pass/stream.h"

static int32_t head_param(const struct ash_model *model)
{
    return model->config.tied ? model->top.param[ASH_ROLE_EMBED] : model->top.param[ASH_ROLE_HEAD];
}

/* The sum that the head's gradient goes to: a tied head has one of its own, apart from the embedding's (see
 * ash_model_grad_fold). */
static int32_t head_sum(const struct ash_model *model)
{
    return model->config.tied && model->slice.embed ? ASH_TIED_HEAD : head_param(model);
}

void ash_head_logits(const struct ash_pass_step *step, const float *x, int32_t norm, size_t count, float *logits_out)
{
    ash_assert(x != NULL && logits_out != NULL && head_param(step->model) != ASH_NO_PARAM);
    ash_linear_project(step->model, step->exec,
                       &(struct ash_linear_group){
                           .rows = count,
                           .x = x,
                           .x_stride = step->model->config.hidden,
                           .norm = norm,
                           .out_count = 1,
                           .outs[0] = {head_param(step->model), ASH_NO_PARAM, logits_out, step->model->vocab.count}});
}

/* ---- the loss over a vocabulary that tp splits ------------------------------------------------------------------- */

/* A few rows of the step, and this rank's part of their loss. */
struct piece {
    size_t first;
    struct ash_loss_part part;
};

/* The part of the loss of some of the piece's rows. */
static struct ash_loss_part part_of(const struct piece *piece, struct ash_range rows, bool start)
{
    struct ash_loss_part part = piece->part;
    size_t skip = rows.first - piece->first;

    ash_assert(rows.first >= piece->first && skip + rows.count <= piece->part.rows);
    part.rows = rows.count;
    part.start = start;
    part.logits += skip * part.cols;
    part.targets += skip;
    part.top += 2 * skip;
    part.lanes += ASH_LANES * skip;
    part.loss += skip;
    return part;
}

static void accumulate_top(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                           struct ash_range rows, bool overwrite, float *sums)
{
    struct ash_loss_part part = part_of(ctx, rows, overwrite);

    (void)operand;
    part.top = sums;
    step->exec->ops->loss->part_top(step->exec, &part);
}

static void accumulate_lanes(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                             struct ash_range rows, bool overwrite, float *sums)
{
    struct ash_loss_part part = part_of(ctx, rows, overwrite);

    (void)operand;
    part.lanes = sums;
    step->exec->ops->loss->part_sum(step->exec, &part);
}

/* all [rows, cols] of every rank: what accumulate makes of the piece's rows, rank by rank. */
static void reduce_piece(const struct ash_pass_step *step, struct piece *piece, ash_accumulate_fn *accumulate,
                         float *all, size_t cols)
{
    struct ash_reduction reduction = {.rows = {piece->first, piece->part.rows},
                                      .cols = cols,
                                      .chunk_count = 1,
                                      .accumulate = accumulate,
                                      .ctx = piece,
                                      .all = all};

    ash_reduce(step, &reduction);
}

/* All of the loss of the piece's rows that this rank takes, over everyone's logits, where ranks share memory. */
static void loss_shm(const struct ash_pass_step *step, const struct piece *piece)
{
    const struct ash_loss_ops *ops = step->exec->ops->loss;
    void (*const steps[])(struct ash_exec *, const struct ash_loss_part *) = {ops->part_top, ops->part_sum,
                                                                              ops->part_end};
    struct ash_range all = {piece->first, piece->part.rows}, rows = ash_reduce_shm_rows(step, all);
    size_t ranks = step->axes->tp.size;
    struct ash_operand own = {.rank = step->axes->tp.rank, .x = piece->part.logits, .x_stride = piece->part.cols};

    ash_operands_publish(step, &own, 1);
    ash_operands_wait(step);
    for (size_t i = 0; rows.count > 0 && step->axes->failed == 0 && i < 3 * ranks; i++) {
        size_t rank = i % ranks;
        struct ash_range vocab = ash_split_vocab_tp(step->model, step->axes, rank);
        struct piece theirs = *piece;

        theirs.part.logits = ash_operand_rows(step, rank, 0); /* they become gradients */
        theirs.part.first = vocab.first;
        theirs.part.cols = vocab.count;
        theirs.part.loss = step->acts->shared_losses + all.first;
        struct ash_loss_part part = part_of(&theirs, rows, rank == 0);
        steps[i / ranks](step->exec, &part);
    }
    ash_axes_barrier_tp(step->axes);
    step->exec->memory->copy(piece->part.loss, step->acts->shared_losses + all.first, all.count * sizeof(float));
}

static void split_loss(const struct ash_pass_step *step, struct ash_range rows, float scale)
{
    const struct ash_range *vocab = &step->model->vocab;
    struct ash_scratch *s = &step->acts->scratch;
    struct piece piece = {rows.first,
                          {.rows = rows.count,
                           .cols = vocab->count,
                           .first = vocab->first,
                           .logits = s->logits,
                           .targets = step->acts->block.targets + rows.first,
                           .scale = scale,
                           .top = s->top + 2 * rows.first,
                           .lanes = s->lanes + ASH_LANES * rows.first,
                           .loss = step->acts->losses + step->first_row + rows.first}};

    if (step->axes->tp.same_node) {
        loss_shm(step, &piece);
        return;
    }
    reduce_piece(step, &piece, accumulate_top, s->top, 2);
    reduce_piece(step, &piece, accumulate_lanes, s->lanes, ASH_LANES);
    step->exec->ops->loss->part_end(step->exec, &piece.part);
}

/* ---- a few rows -------------------------------------------------------------------------------------------------- */

/* Has every rank of cp one piece? They must know alike how the head's sum is acquired. */
static bool is_one_piece(const struct ash_pass_step *step)
{
    for (size_t r = 0; r < step->axes->cp.size; r++)
        if (ash_split_rows_cp(step->axes, step->batch->rows, r).count > step->acts->head_rows) return false;
    return true;
}

/* The output matrix's gradient over the rows of a piece. All pieces are accumulated between one acquire and release;
 * where there is only one, it is accumulated in parts of the matrix. */
static void weight_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                         const struct ash_column_parallel *columns)
{
    int32_t sum = head_sum(step->model), head = columns->outputs[0].weight;
    struct ash_linear_io io = {.rows = columns->rows,
                               .x = columns->x,
                               .x_stride = columns->in,
                               .dy = columns->outputs[0].dy,
                               .dy_stride = columns->outputs[0].dy_stride,
                               .seq_rows = columns->seq_rows,
                               .shared_rows = columns->shared_rows};

    if (is_one_piece(step)) {
        ash_linear_weight_backward(step, sink, sum, head, &io);
        return;
    }
    if (columns->first == 0) ash_grad_acquire(sink, sum, ASH_GRAD_ALL);
    ash_linear_weight_grad(
        step->model, step->exec, &io,
        ash_weight_grad_all(step->model, head, ash_grad_sum_of(sink, sum).data, ash_grad_overwrites_first(sink, sum)));
    if (columns->first + columns->rows == step->rows) ash_grad_release(sink, sum, ASH_GRAD_ALL);
}

/* From logits, which are gradients by now, to those of the output matrix and to dnorm. x: of the piece's first row. */
static void backward_rows(const struct ash_pass_step *step, struct ash_grad_sink *sink, const float *x,
                          struct ash_range rows)
{
    struct ash_scratch *s = &step->acts->scratch;
    int32_t head = head_param(step->model);
    size_t hidden = step->model->config.hidden, vocab = step->model->vocab.count;
    struct ash_column_parallel columns = {.first = rows.first,
                                          .rows = rows.count,
                                          .in = hidden,
                                          .seq_rows = ash_min(rows.count, step->seq_rows),
                                          .x = x,
                                          .dx = s->dnorm,
                                          .shared_rows = s->logits_all != NULL,
                                          .count = 1,
                                          .outputs[0] = {head, ASH_NO_PARAM, s->logits, vocab}};
    struct ash_linear_io io = {.rows = rows.count,
                               .dy = s->logits,
                               .dy_stride = vocab,
                               .dx = s->dnorm + rows.first * hidden,
                               .dx_stride = hidden};

    if (step->axes->tp.size > 1) {
        ash_column_parallel_backward_with(step, sink, &columns, weight_grads);
        return;
    }
    /* as in ash_linear_backward: a rank that has to wait for the sum computes dx first */
    bool dx_first = step->axes->cp.rank > 0 && !columns.shared_rows;
    if (dx_first) ash_linear_input_grad(step->model, step->exec, head, &io);
    weight_grads(step, sink, &columns);
    if (!dx_first) ash_linear_input_grad(step->model, step->exec, head, &io);
}

/* The loss of rows of x, the normed stream (all rows); scale 0 leaves logits alone, else they become gradients. */
static void loss_rows(const struct ash_pass_step *step, const float *x, struct ash_range rows, float scale)
{
    struct ash_scratch *s = &step->acts->scratch;

    ash_head_logits(step, x + rows.first * step->model->config.hidden, ASH_NO_PARAM, rows.count, s->logits);
    if (step->axes->tp.size > 1)
        split_loss(step, rows, scale);
    else
        step->exec->ops->loss->cross_entropy(step->exec, s->logits, rows.count, step->model->vocab.count,
                                             step->acts->block.targets + rows.first, scale,
                                             step->acts->losses + step->first_row + rows.first);
}

/* The piece that starts at row first: as many rows as fit, of whole groups where sequences are that; else whole
 * sequences; else a part of one. */
static struct ash_range piece_rows(const struct ash_pass_step *step, size_t first)
{
    size_t in_sequence = step->seq_rows - first % step->seq_rows, left = step->rows - first;
    size_t most = step->acts->head_rows;

    if (step->seq_rows % ASH_K_GROUP != 0) {
        if (step->seq_rows <= most)
            most = most / step->seq_rows * step->seq_rows;
        else
            left = in_sequence;
    }
    return (struct ash_range){first, ash_min(left, most)};
}

static const float *normed_rows(const struct ash_pass_step *step)
{
    ash_assert(step->rows > 0 && step->batch->targets != NULL);
    return ash_stream_gather(step, step->acts->final_norm.out, step->acts->scratch.x_gathered);
}

void ash_head_losses(const struct ash_pass_step *step)
{
    const float *x = normed_rows(step);

    for (struct ash_range rows = {0}; rows.first < step->rows; rows.first += rows.count) {
        rows = piece_rows(step, rows.first);
        loss_rows(step, x, rows, 0);
    }
}

void ash_head_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, float scale)
{
    const float *x = normed_rows(step);
    size_t hidden = step->model->config.hidden;

    for (struct ash_range rows = {0}; rows.first < step->rows; rows.first += rows.count) {
        rows = piece_rows(step, rows.first);
        loss_rows(step, x, rows, scale);
        backward_rows(step, sink, x + rows.first * hidden, rows);
        /* others have made sums of these logits, and sums for rows that this rank keeps */
        if (step->axes->tp.same_node) ash_axes_barrier_tp(step->axes);
    }
}
