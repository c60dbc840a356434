/* The loss over a vocabulary that tp splits: tops and sums of each rank's columns, rank by rank; through shared memory
 * where ranks have it. */
#include "base/assert.h"
#include "model/pass/head_priv.h"
#include "model/pass/reduce.h"
#include "model/pass/reduce_shm.h"
#include "model/pass/split.h"

/* The part of the loss of some of the piece's rows. */
static struct ash_loss_part part_of(const struct ash_head_piece *piece, struct ash_range rows, bool start)
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
    part.moments += ASH_LANES * skip;
    part.loss += skip;
    if (part.scales != NULL) part.scales += skip;
    if (part.entropy_scales != NULL) part.entropy_scales += skip;
    if (part.entropy != NULL) part.entropy += skip;
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
    part.entropy = NULL;
    step->exec->ops->loss->part_sum(step->exec, &part);
}

/* The sums of the entropy: before the logits become exponentials. Those of the loss are recomputed with them. */
static void accumulate_moments(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                               struct ash_range rows, bool overwrite, float *sums)
{
    struct ash_loss_part part = part_of(ctx, rows, overwrite);

    (void)operand;
    part.scale = 0.0f;
    part.scales = part.entropy_scales = NULL;
    part.moments = sums;
    step->exec->ops->loss->part_sum(step->exec, &part);
}

/* all [rows, cols] of every rank: what accumulate makes of the piece's rows, rank by rank. */
static void reduce_piece(const struct ash_pass_step *step, struct ash_head_piece *piece, ash_accumulate_fn *accumulate,
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

/* All of the loss of the piece's rows that this rank takes, over the logits of all ranks, if they share memory. */
static void loss_shm(const struct ash_pass_step *step, const struct ash_head_piece *piece)
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
        struct ash_head_piece theirs = *piece;

        theirs.part.logits = ash_operand_rows(step, rank, 0); /* they become gradients */
        theirs.part.first = vocab.first;
        theirs.part.cols = vocab.count;
        theirs.part.loss = step->acts->shared_losses + all.first;
        if (piece->part.entropy != NULL) theirs.part.entropy = step->acts->shared_entropies + all.first;
        struct ash_loss_part part = part_of(&theirs, rows, rank == 0);
        steps[i / ranks](step->exec, &part);
    }
    ash_axes_barrier_tp(step->axes);
    step->exec->memory->copy(piece->part.loss, step->acts->shared_losses + all.first, all.count * sizeof(float));
    if (piece->part.entropy != NULL)
        step->exec->memory->copy(piece->part.entropy, step->acts->shared_entropies + all.first,
                                 all.count * sizeof(float));
}

void ash_head_split_loss(const struct ash_pass_step *step, struct ash_head_piece *piece)
{
    struct ash_scratch *s = &step->acts->scratch;

    if (step->axes->tp.same_node) {
        loss_shm(step, piece);
        return;
    }
    reduce_piece(step, piece, accumulate_top, s->top, 2);
    if (piece->part.entropy != NULL) reduce_piece(step, piece, accumulate_moments, s->moments, ASH_LANES);
    reduce_piece(step, piece, accumulate_lanes, s->lanes, ASH_LANES);
    step->exec->ops->loss->part_end(step->exec, &piece->part);
}
