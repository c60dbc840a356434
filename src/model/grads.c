/* Where a pass adds up gradients, and how several processes take turns at it. A weight gradient is one chain over
 * tokens; where tokens are dealt out (along cp in order of position, and between the blocks of a layer along tp too),
 * the chain goes through the ranks in the order of their tokens: each waits for the sum of the rank before it, adds its
 * own tokens and passes the sum on. So no cut changes a bit. */
#include "model/pass_priv.h"

/* Rank 0 goes on from what the last rank had, where an earlier batch belongs to the same sum. */
static void take_turn(struct ash_pass *pass, const struct ash_axis *axis, bool continues, float *sum, size_t count)
{
    if (axis->size == 1) return;
    if (axis->rank > 0)
        ash_share_recv(pass, axis, axis->rank - 1, sum, count);
    else if (continues)
        ash_share_recv(pass, axis, axis->size - 1, sum, count);
}

static void end_turn(struct ash_pass *pass, const struct ash_axis *axis, bool goes_on, float *sum, size_t count)
{
    if (axis->size == 1) return;
    if (axis->rank + 1 < axis->size)
        ash_share_send(pass, axis, axis->rank + 1, sum, count);
    else if (goes_on)
        ash_share_send(pass, axis, 0, sum, count);
}

static float *place(const struct ash_pass *pass, int32_t param, size_t *count_out)
{
    const struct ash_model *model = pass->model;
    bool apart = param == ASH_TIED_HEAD;

    *count_out = apart ? model->vocab.count * model->config.hidden : model->params[param].count;
    return pass->grads + (apart ? model->size : model->params[param].offset);
}

float *ash_grad_begin(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    size_t count;
    float *sum;

    if (pass->grads == NULL || param == ASH_NO_PARAM) return NULL;
    sum = place(pass, param, &count);
    take_turn(pass, &pass->cp, pass->batch->continues, sum, count);
    if (rows == ASH_GRAD_STREAM) take_turn(pass, &pass->tp, false, sum, count);
    return sum;
}

void ash_grad_end(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    size_t count;
    float *sum;

    if (pass->grads == NULL || param == ASH_NO_PARAM) return;
    sum = place(pass, param, &count);
    if (rows == ASH_GRAD_STREAM && pass->tp.size > 1) {
        end_turn(pass, &pass->tp, false, sum, count);
        ash_share_broadcast(pass, &pass->tp, pass->tp.size - 1, sum, count); /* all have copies of the parameter */
    }
    end_turn(pass, &pass->cp, pass->batch->goes_on, sum, count);
}

void ash_pass_linear_backward(struct ash_pass *pass, int32_t weight, int32_t bias, const struct ash_linear_io *io)
{
    float *dweight = ash_grad_begin(pass, weight, ASH_GRAD_ALL), *dbias;

    if (dweight != NULL) ash_linear_weight_grad(pass->model, pass->exec, weight, io, dweight);
    ash_grad_end(pass, weight, ASH_GRAD_ALL);
    dbias = ash_grad_begin(pass, bias, ASH_GRAD_ALL);
    if (dbias != NULL) ash_linear_bias_grad(pass->model, pass->exec, weight, io, dbias);
    ash_grad_end(pass, bias, ASH_GRAD_ALL);
    if (io->dx != NULL) ash_linear_input_grad(pass->model, pass->exec, weight, io);
}
