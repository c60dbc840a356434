/* weight_grads: a weight's gradient is accumulated in order, in pieces, or published for all ranks to compute. */
#include "model/pass/weight_grads.h"

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/grads_shared.h"

/* Pieces of a matrix that are acquired one by one; a small one is one piece. */
#define MATRIX_PIECES 4
#define MATRIX_PIECES_MIN ((size_t)1 << 9) /* elements */

/* Rows of a matrix and of those that are joined to it. */
static size_t joined_rows(const struct ash_param *matrix, size_t joined)
{
    size_t rows = 0;

    for (size_t i = 0; i <= joined; i++)
        rows += matrix[i].dims[0];
    return rows;
}

/* ash_grad_overwrites_first for a sum and those that are joined to it: the batch has added to all of them, or none. */
static bool overwrites_all(struct ash_grad_sink *sink, int32_t param, size_t joined)
{
    bool overwrites = ash_grad_overwrites_first(sink, param);

    for (size_t i = 1; i <= joined; i++) {
        bool too = ash_grad_overwrites_first(sink, param + (int32_t)i);

        ash_assert(too == overwrites);
    }
    return overwrites;
}

/* Add to a matrix a few of its rows at a time: the next rank begins with them while this one does the others. Without
 * io there is nothing to add. */
static void accumulate(struct ash_grad_sink *sink, int32_t param, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_grad_order *order = sink->order;
    const struct ash_param *matrix = &order->model->params[weight];
    struct ash_grad_sum sum = ash_grad_sum_of(sink, param);
    size_t pieces = order->axes->cp.size == 1 || sum.count < MATRIX_PIECES_MIN ? 1 : MATRIX_PIECES;
    size_t joined = io != NULL ? io->joined : 0, rows = joined_rows(matrix, joined), step = ash_div_up(rows, pieces);
    bool overwrite = sum.data != NULL && io != NULL && io->rows > 0 && overwrites_all(sink, param, joined);

    for (size_t first = 0; sum.data != NULL && first < rows; first += step) {
        struct ash_range part = {first, ash_min(rows - first, step)};
        struct ash_grad_sum piece = {sum.data + first * matrix->dims[1], part.count * matrix->dims[1]};

        ash_grad_acquire_part(sink, piece);
        if (io != NULL)
            ash_linear_weight_grad(order->model, order->exec, io,
                                   (struct ash_weight_grad){weight, part, sum.data, overwrite});
        ash_grad_release_part(sink, piece);
    }
}

void ash_linear_skip(struct ash_grad_sink *sink, int32_t weight)
{
    accumulate(sink, weight, weight, NULL);
}

void ash_linear_weight_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t sum,
                                int32_t weight, const struct ash_linear_io *io)
{
    ash_assert((io->x != NULL || io->x_bf16 != NULL) && (io->dy != NULL || io->dy_bf16 != NULL));
    if (io->shared_rows)
        ash_shared_grads_publish(step, sink, sum, weight, ASH_NO_PARAM, io);
    else
        accumulate(sink, sum, weight, io);
}
