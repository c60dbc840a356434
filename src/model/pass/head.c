/* head: logits, the loss over them, and back, a piece of rows at a time. Gradients' chains over tokens may be cut at
 * the ends of sequences and, inside one, at whole groups of k; pieces end there, so their size changes no bit. Where
 * gradients of logits are apart, a piece's logits are made a few rows at a time. */
#include "model/pass/head.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/copy.h"
#include "model/pass/gather.h"
#include "model/pass/head_priv.h"
#include "model/pass/kept.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/stream.h"

/* Wanted outputs of the losses: their gradient, their rows' entropies. */
struct wanted {
    bool has_gradient, has_entropies;
    float scale; /* of the gradient, where the batch has no scales */
};

/* Logits are what the head gives, times a factor, under a cap. */
static void bend_logits(const struct ash_pass_step *step, size_t count, float *logits)
{
    const struct ash_model_form *form = &step->model->config.form;

    if (step->model->config.labels > 0) return;
    if (form->logit_scale != 0) step->exec->ops->row->scale(step->exec, logits, (float)form->logit_scale, count);
    if (form->logit_cap != 0) step->exec->ops->family->cap_forward(step->exec, logits, (float)form->logit_cap, count);
}

/* Capped logits, before they become gradients. */
static void keep_capped(const struct ash_pass_step *step, const struct wanted *wanted, size_t rows)
{
    struct ash_scratch *s = &step->acts->scratch;
    size_t cols = ash_head_width(step->model);

    if (!wanted->has_gradient || s->capped == NULL) return;
    ash_copy_columns(step->exec, rows, cols, (struct ash_rows_from){s->logits, cols},
                     (struct ash_rows_to){s->capped, cols});
}

/* From gradients of logits to those of what the head gives. */
static void bend_gradients(const struct ash_pass_step *step, const struct wanted *wanted, size_t rows)
{
    const struct ash_model_form *form = &step->model->config.form;
    struct ash_scratch *s = &step->acts->scratch;
    size_t count = rows * ash_head_width(step->model);

    if (step->model->config.labels > 0 || !wanted->has_gradient) return;
    if (form->logit_cap != 0)
        step->exec->ops->family->cap_backward(step->exec, s->capped, (float)form->logit_cap, count, s->logits);
    if (form->logit_scale != 0) step->exec->ops->row->scale(step->exec, s->logits, (float)form->logit_scale, count);
}

void ash_head_logits(const struct ash_pass_step *step, const float *x, int32_t norm, size_t count, float *logits_out)
{
    size_t width = ash_gathers(step) ? step->model->whole.vocab : ash_head_width(step->model);
    struct ash_linear_group group = {.rows = count,
                                     .x = x,
                                     .x_stride = step->model->config.hidden,
                                     .norm = norm,
                                     .out_count = 1,
                                     .outs[0] = {ash_head_param(step->model),
                                                 step->model->top.param[ASH_ROLE_HEAD_BIAS], logits_out,
                                                 ash_head_width(step->model), NULL}};

    ash_assert(x != NULL && (logits_out != NULL || ash_gathers(step)) && ash_head_param(step->model) != ASH_NO_PARAM);
    if (ash_gathers(step)) {
        const float *logits = ash_gather_logits(step, &group);

        if (logits_out == NULL) return;
        ash_copy_columns(step->exec, count, width, (struct ash_rows_from){logits, width},
                         (struct ash_rows_to){logits_out, width});
    } else {
        ash_linear_project(step, &group);
    }
    bend_logits(step, count * width, logits_out);
}

/* ---- a few rows -------------------------------------------------------------------------------------------------- */

/* Are losses those of whole rows of a bf16 model, which some ops compute in a way of their own? */
static bool is_relative(const struct ash_pass_step *step, const struct wanted *wanted)
{
    return step->model->round_bf16 && step->exec->ops->takes_bf16 && step->axes->tp.size == 1 &&
           !wanted->has_entropies && (!wanted->has_gradient || step->batch->entropy_scales == NULL);
}

/* The factors of a piece's gradients of logits, where they are apart; else NULL. */
static float *factors_of(const struct ash_pass_step *step, const struct wanted *wanted, size_t first)
{
    float *factors = step->acts->scratch.factors;

    if (!wanted->has_gradient || step->model->config.labels > 0 || step->batch->teacher != NULL ||
        !is_relative(step, wanted))
        return NULL;
    ash_assert(factors != NULL);
    return factors + first;
}

/* Logits of rows of x, the normed stream (all rows), and their losses; logits become gradients where those are
 * wanted, or, where they are apart, dlogits of the first of the rows on get them. */
static void loss_some(const struct ash_pass_step *step, const float *x, struct ash_range rows,
                      const struct wanted *wanted, uint16_t *dlogits)
{
    const struct ash_batch_block *block = &step->acts->block;
    struct ash_scratch *s = &step->acts->scratch;
    bool has_scales = wanted->has_gradient && step->batch->scales != NULL;
    bool has_entropy_scales = has_scales && step->batch->entropy_scales != NULL;
    size_t first = rows.first;
    struct ash_head_piece piece = {first,
                                   {.rows = rows.count,
                                    .cols = step->model->vocab.count,
                                    .first = step->model->vocab.first,
                                    .logits = s->logits,
                                    .targets = block->targets + first,
                                    .scale = wanted->has_gradient ? wanted->scale : 0.0f,
                                    .grad_bf16 = dlogits,
                                    .grad_stride = s->dlogits_stride,
                                    .scales = has_scales ? block->scales + first : NULL,
                                    .entropy_scales = has_entropy_scales ? block->entropy_scales + first : NULL,
                                    .sharpness = step->batch->sharpness,
                                    .round_bf16 = is_relative(step, wanted),
                                    .factors = factors_of(step, wanted, first),
                                    .loss = step->acts->losses + step->first_row + first}};

    if (wanted->has_entropies || has_entropy_scales)
        piece.part.entropy = step->acts->entropies + step->first_row + first;
    ash_head_logits(step, x + first * step->model->config.hidden, ASH_NO_PARAM, rows.count, s->logits);
    keep_capped(step, wanted, rows.count);
    ash_kept_mask(step, rows, s->logits);
    if (step->model->config.labels > 0) {
        ash_head_score_rows(step, &piece);
    } else if (wanted->has_gradient && step->batch->teacher != NULL) {
        ash_head_teach_rows(step, &piece);
    } else if (step->axes->tp.size > 1) {
        piece.part.top = s->top + 2 * first;
        piece.part.lanes = s->lanes + ASH_LANES * first;
        piece.part.moments = s->moments + ASH_LANES * first;
        ash_head_split_loss(step, &piece);
    } else {
        step->exec->ops->loss->cross_entropy(step->exec, &piece.part);
    }
}

/* The same of a whole piece. */
static void loss_rows(const struct ash_pass_step *step, const float *x, struct ash_range rows,
                      const struct wanted *wanted)
{
    const struct ash_scratch *s = &step->acts->scratch;

    for (struct ash_range some = {rows.first, 0}; some.first < ash_range_end(rows); some.first += some.count) {
        uint16_t *dlogits = s->dlogits_bf16;

        some.count = ash_min(ash_range_end(rows) - some.first, step->acts->logit_rows);
        if (dlogits != NULL) dlogits += (some.first - rows.first) * s->dlogits_stride;
        loss_some(step, x, some, wanted, dlogits);
        bend_gradients(step, wanted, some.count);
    }
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

/* Losses of all rows of x, piece by piece; with a sink their gradients too. */
static void run_rows(const struct ash_pass_step *step, const float *x, const struct wanted *wanted,
                     struct ash_grad_sink *sink)
{
    for (struct ash_range rows = {0}; rows.first < step->rows; rows.first += rows.count) {
        rows = piece_rows(step, rows.first);
        loss_rows(step, x, rows, wanted);
        if (!wanted->has_gradient) continue;
        ash_head_backward_rows(step, sink, x + rows.first * step->model->config.hidden, rows,
                               factors_of(step, wanted, rows.first));
        /* others have made sums of these logits, and sums for rows that this rank keeps */
        if (step->axes->tp.same_node) ash_axes_barrier_tp(step->axes);
    }
}

static const float *normed_rows(const struct ash_pass_step *step)
{
    ash_assert(step->rows > 0 && step->batch->targets != NULL);
    return ash_stream_gather(step, step->acts->final_norm.out, step->acts->scratch.x_gathered);
}

/* ---- few targets ------------------------------------------------------------------------------------------------- */

/* Rows without a target add nothing to a sum over rows. In float32 each of them can be left out; in bf16 whole groups
 * of k can, where sequences are made of those. So this changes no bit. Copies cost time: a few rows are not worth it,
 * and on a GPU, which waits for each of them, neither is a small product. */
#define RUN_COST ((size_t)1 << 31) /* multiply-adds of a GPU while it copies a run of rows */

/* Rows that are computed or left out together; 0: none can be left out here. */
static size_t skip_group(const struct ash_pass_step *step)
{
    if (step->axes->tp.size > 1 || step->axes->cp.size > 1) return 0;
    if (!step->model->round_bf16) return 1;
    return step->seq_rows % ASH_K_GROUP == 0 ? ASH_K_GROUP : 0;
}

/* The next run of groups with a target, from *row on, which moves past it; count 0: there is none. */
static struct ash_range next_run(const struct ash_pass_step *step, size_t group, size_t *row)
{
    const int32_t *targets = step->batch->targets + step->first_row;
    struct ash_range run = {0};

    for (; *row < step->rows; *row += group) {
        bool has_target = false;

        for (size_t r = *row; r < *row + group; r++)
            has_target |= targets[r] >= 0;
        if (has_target && run.count == 0) run.first = *row;
        if (has_target) run.count += group;
        if (!has_target && run.count > 0) break;
    }
    return run;
}

/* Rows of groups with a target. runs_out: in how many runs. */
static size_t count_few(const struct ash_pass_step *step, size_t group, size_t *runs_out)
{
    size_t count = 0, runs = 0, found;

    for (size_t row = 0; (found = next_run(step, group, &row).count) > 0; runs++)
        count += found;
    *runs_out = runs;
    return count;
}

bool ash_head_skips_rows(const struct ash_pass_step *step)
{
    size_t runs = 0, count = skip_group(step) > 0 ? count_few(step, 1, &runs) : step->rows;

    if (8 * count > 7 * step->rows) return false;
    return step->exec->cuda == NULL ||
           (step->rows - count) * step->model->config.hidden * ash_head_width(step->model) / RUN_COST >= runs;
}

/* Copy the runs of groups of rows of row_bytes together, or (apart) back to where they were. */
static void copy_groups(const struct ash_pass_step *step, size_t group, const void *from, void *to, size_t row_bytes,
                        bool apart)
{
    struct ash_range run;
    size_t done = 0;

    for (size_t row = 0; (run = next_run(step, group, &row)).count > 0; done += run.count) {
        size_t source = apart ? done : run.first, sink = apart ? run.first : done;
        int rc = step->exec->memory->copy((char *)to + sink * row_bytes, (const char *)from + source * row_bytes,
                                          run.count * row_bytes);

        if (rc < 0 && step->axes->failed == 0)
            step->axes->failed = ash_err_set(&step->axes->failure, rc, "cannot copy the rows with targets");
    }
}

/* The rows with targets together. */
static void gather(const struct ash_pass_step *step, const void *all, void *few, size_t row_bytes)
{
    copy_groups(step, 1, all, few, row_bytes, false);
}

/* Scatter the computed rows among all rows; the others are 0. */
static void spread(const struct ash_pass_step *step, const float *few, float *all, size_t width)
{
    ash_exec_zero(step->exec, all, step->rows * width * sizeof(float));
    copy_groups(step, 1, few, all, width * sizeof(float), true);
}

/* The sets that those rows keep. */
static const struct ash_kept *gather_kept(const struct ash_pass_step *step)
{
    struct ash_range run;
    size_t done = 0;

    if (step->kept == NULL) return NULL;
    for (size_t row = 0; (run = next_run(step, 1, &row)).count > 0; done += run.count)
        memcpy(step->few_kept + done, step->kept + run.first, run.count * sizeof(*step->kept));
    return step->few_kept;
}

/* A piece of the groups with targets: its rows, put together, and the rows with targets among them; its first and last
 * row among all rows. */
struct few_piece {
    struct ash_range rows, targets;
    size_t begin, end;
};

static size_t count_targets(const struct ash_pass_step *step, size_t row, size_t count)
{
    const int32_t *targets = step->batch->targets + step->first_row + row;
    size_t found = 0;

    for (size_t r = 0; r < count; r++)
        found += targets[r] >= 0;
    return found;
}

/* The piece after this one. False: there is none. */
static bool take_piece(const struct ash_pass_step *step, size_t group, struct few_piece *piece)
{
    piece->rows = (struct ash_range){ash_range_end(piece->rows), 0};
    piece->targets = (struct ash_range){ash_range_end(piece->targets), 0};
    piece->begin = piece->end;
    while (piece->end < step->rows && piece->rows.count + group <= step->acts->head_rows) {
        size_t found = count_targets(step, piece->end, group);

        if (found > 0) piece->rows.count += group;
        piece->targets.count += found;
        piece->end += group;
    }
    return piece->rows.count > 0;
}

/* Rows of some bytes, of rows with targets alone, move to where these are in their groups; between them are zeros. */
static void expand_rows(const struct ash_pass_step *step, size_t group, const struct few_piece *piece, void *data,
                        size_t bytes)
{
    size_t from = piece->targets.count, to = piece->rows.count;
    int rc = 0;

    for (size_t end = piece->end; end > piece->begin; end -= group) {
        if (count_targets(step, end - group, group) == 0) continue;
        for (size_t row = end; row > end - group; row--) {
            to--;
            if (count_targets(step, row - 1, 1) == 0)
                ash_exec_zero(step->exec, (char *)data + to * bytes, bytes);
            else if (--from != to && rc == 0)
                rc = step->exec->memory->copy((char *)data + to * bytes, (char *)data + from * bytes, bytes);
        }
    }
    if (rc < 0 && step->axes->failed == 0)
        step->axes->failed = ash_err_set(&step->axes->failure, rc, "cannot copy gradients of logits");
}

/* The head's gradients of a piece, from those of its logits (but for factors, of rows with targets or NULL). few: rows
 * with targets; x: the piece's rows in groups. A row's products with the output matrix need no other row; sums over
 * rows need them in their groups. */
static void backward_few(const struct ash_pass_step *step, const struct ash_pass_step *few, struct ash_grad_sink *sink,
                         const float *x, const struct few_piece *piece, float *factors)
{
    struct ash_scratch *s = &few->acts->scratch;
    size_t hidden = step->model->config.hidden, width = ash_head_width(step->model);
    size_t bytes = s->dlogits_bf16 != NULL ? s->dlogits_stride * sizeof(uint16_t) : width * sizeof(float);
    int32_t head = ash_head_param(step->model);
    struct ash_linear_io io = {.rows = piece->targets.count,
                               .dy = s->logits,
                               .dy_stride = width,
                               .dx = s->dnorm + piece->targets.first * hidden,
                               .dx_stride = hidden};
    struct ash_column_parallel columns = {.first = piece->rows.first,
                                          .rows = piece->rows.count,
                                          .in = hidden,
                                          .seq_rows = piece->rows.count,
                                          .x = x + piece->rows.first * hidden,
                                          .count = 1,
                                          .outputs[0] = {head, ASH_NO_PARAM, s->logits, width, NULL}};

    if (s->dlogits_bf16 != NULL) {
        columns.outputs[0].dy = io.dy = NULL;
        columns.outputs[0].dy_stride = io.dy_stride = s->dlogits_stride;
        columns.outputs[0].dy_bf16 = io.dy_bf16 = s->dlogits_bf16;
    }
    ash_head_input_grads(few, factors, &io);
    if (ash_head_is_frozen(step, sink)) return;
    expand_rows(step, skip_group(step), piece, s->dlogits_bf16 != NULL ? (void *)s->dlogits_bf16 : s->logits, bytes);
    if (factors != NULL) expand_rows(step, skip_group(step), piece, factors, sizeof(*factors));
    ash_head_weight_grads(few, sink, &columns, factors);
}

/* The head over the rows that have targets, put together: the same step with those alone. count: rows of their
 * groups. */
static void run_few(const struct ash_pass_step *step, size_t count, const struct wanted *wanted,
                    struct ash_grad_sink *sink)
{
    const struct ash_batch *batch = step->batch;
    struct ash_acts *all = step->acts, acts = *all;
    struct ash_pass_step few = *step;
    struct few_piece piece = {0};
    size_t hidden = step->model->config.hidden, first = step->first_row, group = skip_group(step);
    /* unused here, like dx; dnorm is written last */
    float *grouped = all->scratch.residual, *x = wanted->has_gradient ? all->scratch.dnorm : grouped;

    gather(step, all->final_norm.out, x, hidden * sizeof(float));
    if (wanted->has_gradient) copy_groups(step, group, all->final_norm.out, grouped, hidden * sizeof(float), false);
    gather(step, batch->targets + first, acts.block.few_targets, sizeof(int32_t));
    if (wanted->has_gradient && batch->scales != NULL)
        gather(step, batch->scales + first, acts.block.scales, sizeof(float));
    if (wanted->has_gradient && batch->entropy_scales != NULL)
        gather(step, batch->entropy_scales + first, acts.block.entropy_scales, sizeof(float));
    acts.block.targets = acts.block.few_targets;
    acts.losses = acts.block.few_losses;
    acts.entropies = acts.block.few_entropies;
    acts.scratch.dnorm = all->scratch.dx;
    few.acts = &acts;
    few.kept = gather_kept(step);
    few.first_row = 0;
    few.has_few = true;
    few.rows = few.seq_rows = few.own.count = count;
    while (take_piece(step, group, &piece)) {
        loss_rows(&few, x, piece.targets, wanted);
        if (wanted->has_gradient)
            backward_few(step, &few, sink, grouped, &piece, factors_of(&few, wanted, piece.targets.first));
    }
    spread(step, acts.losses, all->losses + first, 1);
    if (wanted->has_entropies) spread(step, acts.entropies, all->entropies + first, 1);
    if (wanted->has_gradient) spread(step, acts.scratch.dnorm, all->scratch.dnorm, hidden);
}

static void run_head(const struct ash_pass_step *step, const struct wanted *wanted, struct ash_grad_sink *sink)
{
    const float *x = normed_rows(step);
    size_t runs;

    if (ash_head_skips_rows(step))
        run_few(step, count_few(step, skip_group(step), &runs), wanted, sink);
    else
        run_rows(step, x, wanted, sink);
}

void ash_head_losses(const struct ash_pass_step *step, bool has_entropies)
{
    run_head(step, &(struct wanted){.has_entropies = has_entropies}, NULL);
}

void ash_head_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, float scale)
{
    run_head(step, &(struct wanted){.has_gradient = true, .scale = scale}, sink);
}
