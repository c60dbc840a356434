/* Losses of rows that are no cross-entropy: a reward model's scores, divergences from a teacher. A teacher's logits are
 * whole rows, so a row of a vocabulary that tp splits is put together first: the same op, the same bits. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/head_priv.h"
#include "model/pass/reduce_shm.h"
#include "model/pass/split.h"

#define TEACHER_ROWS_MAX 128 /* asked for at once */

void ash_head_score_rows(const struct ash_pass_step *step, const struct ash_head_piece *piece)
{
    const struct ash_memory_ops *memory = step->exec->memory;
    size_t bytes = piece->part.rows * sizeof(float);
    int rc = memory->copy(piece->part.loss, piece->part.logits, bytes);

    if (rc == 0 && piece->part.scales != NULL) rc = memory->copy(piece->part.logits, piece->part.scales, bytes);
    if (rc < 0 && step->axes->failed == 0)
        step->axes->failed = ash_err_set(&step->axes->failure, rc, "cannot copy the scores");
}

/* ---- a teacher --------------------------------------------------------------------------------------------------- */

/* The rows of the batch that these rows of the step are. */
static void list_rows(const struct ash_pass_step *step, struct ash_range rows, size_t *list)
{
    const int32_t *targets = step->batch->targets;
    size_t row = 0;

    if (!step->has_few) {
        for (size_t i = 0; i < rows.count; i++)
            list[i] = step->first_row + rows.first + i;
        return;
    }
    for (size_t i = 0; i < ash_range_end(rows); row++) {
        if (targets[row] < 0) continue;
        if (i >= rows.first) list[i - rows.first] = row;
        i++;
    }
}

/* The teacher's logits of these rows of the step. */
static void ask(const struct ash_pass_step *step, struct ash_range rows)
{
    const struct ash_teacher *teacher = step->batch->teacher;
    size_t list[TEACHER_ROWS_MAX];

    ash_assert(rows.count <= ash_min(teacher->most_rows, TEACHER_ROWS_MAX));
    if (step->axes->failed != 0) return;
    list_rows(step, rows, list);
    step->axes->failed = teacher->ask(teacher->ctx, list, rows.count, &step->axes->failure);
}

/* From whole rows of logits of both to gradients. */
static void distill(const struct ash_pass_step *step, const struct ash_head_piece *piece, struct ash_range rows,
                    float *logits, float *losses)
{
    const struct ash_teacher *teacher = step->batch->teacher;

    ask(step, rows);
    if (step->axes->failed != 0) return;
    step->exec->ops->loss->distill(
        step->exec, &(struct ash_distill_args){.rows = rows.count,
                                               .cols = step->model->whole.vocab,
                                               .logits = logits,
                                               .teacher = teacher->logits,
                                               .targets = piece->part.targets + (rows.first - piece->first),
                                               .scale = piece->part.scale,
                                               .sharpness = teacher->sharpness,
                                               .beta = teacher->beta,
                                               .target_weight = teacher->target_weight,
                                               .loss = losses});
}

/* A matrix in memory: the columns from data on, in rows of `stride`. */
struct block {
    float *data;
    size_t stride;
};

static void copy_block(const struct ash_pass_step *step, size_t rows, size_t cols, struct block src, struct block dst)
{
    step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = rows,
                                                                   .blocks = 1,
                                                                   .cols = cols,
                                                                   .src = src.data,
                                                                   .src_row = src.stride,
                                                                   .dst = dst.data,
                                                                   .dst_dtype = ASH_F32,
                                                                   .dst_row = dst.stride});
}

/* Columns of rank's part of some rows to where they are in whole rows, or back. */
static void copy_columns(const struct ash_pass_step *step, size_t rank, size_t rows, float *part, float *whole,
                         bool back)
{
    struct ash_range vocab = ash_split_vocab_tp(step->model, step->axes, rank);
    struct block of_part = {part, vocab.count}, of_whole = {whole + vocab.first, step->model->whole.vocab};

    ash_assert(rank < step->axes->tp.size);
    copy_block(step, rows, vocab.count, back ? of_whole : of_part, back ? of_part : of_whole);
}

/* Ranks of tp that share memory: each takes some of the piece's rows, over the logits of all ranks. */
static void teach_shm(const struct ash_pass_step *step, const struct ash_head_piece *piece, size_t most)
{
    struct ash_range all = {piece->first, piece->part.rows}, own = ash_reduce_shm_rows(step, all), rows;
    struct ash_operand operand = {.rank = step->axes->tp.rank, .x = piece->part.logits, .x_stride = piece->part.cols};
    float *whole = step->batch->teacher->gathered;

    ash_operands_publish(step, &operand, 1);
    ash_operands_wait(step);
    for (rows = (struct ash_range){own.first, 0}; rows.first < ash_range_end(own) && step->axes->failed == 0;
         rows.first += rows.count) {
        rows.count = ash_min(ash_range_end(own) - rows.first, most);
        for (int back = 0; back < 2; back++) {
            for (size_t rank = 0; rank < step->axes->tp.size; rank++) {
                size_t cols = ash_split_vocab_tp(step->model, step->axes, rank).count;

                copy_columns(step, rank, rows.count, ash_operand_rows(step, rank, 0) + (rows.first - all.first) * cols,
                             whole, back != 0);
            }
            if (back == 0) distill(step, piece, rows, whole, step->acts->shared_losses + rows.first);
        }
    }
    ash_axes_barrier_tp(step->axes);
    memcpy(piece->part.loss, step->acts->shared_losses + all.first, all.count * sizeof(float));
}

/* Others: each gets all columns of all rows, and keeps the gradients of its columns. */
static void teach_messages(const struct ash_pass_step *step, const struct ash_head_piece *piece, struct ash_range rows)
{
    struct ash_axes *axes = step->axes;
    float *parts = step->batch->teacher->gathered, *at = parts, *own = parts,
          *whole = parts + step->batch->teacher->most_rows * step->model->whole.vocab,
          *logits = piece->part.logits + (rows.first - piece->first) * piece->part.cols;

    for (size_t rank = 0; rank < axes->tp.size; rank++) {
        axes->counts[rank] = rows.count * ash_split_vocab_tp(step->model, axes, rank).count;
        if (rank == axes->tp.rank) own = at;
        at += axes->counts[rank];
    }
    copy_block(step, rows.count, piece->part.cols, (struct block){logits, piece->part.cols},
               (struct block){own, piece->part.cols});
    ash_axes_all_gather(axes, &axes->tp, parts, axes->counts);
    at = parts;
    for (size_t rank = 0; rank < axes->tp.size; at += axes->counts[rank++])
        copy_columns(step, rank, rows.count, at, whole, false);
    distill(step, piece, rows, whole, piece->part.loss + (rows.first - piece->first));
    copy_columns(step, axes->tp.rank, rows.count, logits, whole, true);
}

static void round_gradients(const struct ash_pass_step *step, const struct ash_loss_part *part)
{
    step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = part->rows,
                                                                   .blocks = 1,
                                                                   .cols = part->cols,
                                                                   .src = part->logits,
                                                                   .src_row = part->cols,
                                                                   .dst = part->grad_bf16,
                                                                   .dst_dtype = ASH_BF16,
                                                                   .dst_row = part->grad_stride});
}

void ash_head_teach_rows(const struct ash_pass_step *step, const struct ash_head_piece *piece)
{
    size_t most = ash_min(step->batch->teacher->most_rows, TEACHER_ROWS_MAX), skip;
    struct ash_range rows;

    ash_assert(most > 0 && piece->part.scales == NULL);
    if (step->axes->tp.same_node && step->axes->tp.size > 1) {
        teach_shm(step, piece, most);
        return;
    }
    for (skip = 0; skip < piece->part.rows; skip += rows.count) {
        rows = (struct ash_range){piece->first + skip, ash_min(piece->part.rows - skip, most)};
        if (step->axes->tp.size > 1)
            teach_messages(step, piece, rows);
        else
            distill(step, piece, rows, piece->part.logits + skip * piece->part.cols, piece->part.loss + skip);
    }
    if (piece->part.grad_bf16 != NULL) round_gradients(step, &piece->part);
}
