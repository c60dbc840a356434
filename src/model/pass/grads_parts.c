/* Weight gradients of ranks along cp that share memory and have one sum. They see each other's rows, so the chain over
 * tokens goes through nobody: each rank makes a part of a matrix's gradient, over the rows of all, and who has which
 * part changes no bit. A rank says that its rows of a product are there and goes on; it makes its part later, when it
 * would wait for others, and by then they have theirs there too. Before a rank writes again where others read, it waits
 * until they have. */
#include "model/pass/pass_priv.h"

#include "base/assert.h"

/* All other ranks along cp have said a value. */
static void await_all(struct ash_pass *pass, enum ash_share_counter counter, uint64_t value)
{
    for (size_t r = 0; r < pass->cp.size; r++)
        ash_share_wait_tokens(pass, r, counter, value);
}

void ash_parts_give(struct ash_pass *pass, int32_t sum, int32_t weight, int32_t bias, const struct ash_linear_io *io)
{
    struct ash_parts *parts = &pass->parts;
    struct ash_linear_io all = *io;

    if (parts->count == ASH_PARTS_MAX) ash_parts_take(pass, 0);
    all.rows = all.seq_rows = pass->batch->rows;
    all.x -= pass->first_row * io->x_stride;
    all.dy -= pass->first_row * io->dy_stride;
    parts->waiting[parts->count++] = (struct ash_part){sum, weight, bias, ash_grad_is_first(pass, sum), all};
    ash_share_say(pass, ASH_SHARE_GIVEN, ++parts->given);
}

/* This rank's part of a product and of its bias. */
static void make(struct ash_pass *pass, const struct ash_part *part)
{
    const struct ash_param *weight = &pass->model->params[part->weight];
    struct ash_range rows = ash_slice_deal(weight->dims[0], ASH_K_GROUP, pass->cp.rank, pass->cp.size), cols;
    float *dweight = ash_grad_sum(pass, part->sum), *dbias = ash_grad_sum(pass, part->bias);

    if (dweight != NULL && rows.count > 0)
        ash_linear_weight_grad_part(pass->model, pass->exec, part->weight, &part->io, rows, part->starts, dweight);
    if (dbias == NULL) return;
    cols = ash_slice_deal(pass->model->params[part->bias].count, ASH_K_GROUP, pass->cp.rank, pass->cp.size);
    pass->exec->ops->matrix->column_sum(pass->exec, part->io.dy + cols.first, part->io.dy_stride, part->io.rows,
                                        cols.count, dbias + cols.first);
}

void ash_parts_take(struct ash_pass *pass, size_t but)
{
    struct ash_parts *parts = &pass->parts;
    size_t count = parts->count > but ? parts->count - but : 0;

    for (size_t i = 0; i < count; i++) {
        await_all(pass, ASH_SHARE_GIVEN, ++parts->taken);
        make(pass, &parts->waiting[i]);
    }
    if (count == 0) return;
    parts->count -= count;
    for (size_t i = 0; i < parts->count; i++)
        parts->waiting[i] = parts->waiting[count + i];
    ash_share_say(pass, ASH_SHARE_TAKEN, parts->taken);
}

void ash_parts_await(struct ash_pass *pass)
{
    if (pass->shares_sums) await_all(pass, ASH_SHARE_TAKEN, pass->parts.taken);
}
