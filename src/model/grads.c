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

/* A gradient's sum: of the batch at hand, or of another rank's that experts here serve. */
struct sum {
    float *data; /* NULL: none is wanted */
    size_t count;
    bool continues, goes_on;
};

static struct sum sum_of(const struct ash_pass *pass, int32_t param)
{
    const struct ash_model *model = pass->model;
    const struct ash_served *served = pass->serving;
    bool apart = param == ASH_TIED_HEAD;

    if (param == ASH_NO_PARAM) return (struct sum){0};
    if (served != NULL && served->sums != NULL)
        return (struct sum){served->sums + model->params[param].expert_offset, model->params[param].count,
                            served->continues, served->goes_on};
    if (pass->grads == NULL) return (struct sum){0};
    return (struct sum){pass->grads + (apart ? model->size : model->params[param].offset),
                        apart ? model->vocab.count * model->config.hidden : model->params[param].count,
                        pass->batch->continues, pass->batch->goes_on};
}

float *ash_grad_begin(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    struct sum sum = sum_of(pass, param);

    if (sum.data == NULL) return NULL;
    take_turn(pass, &pass->cp, sum.continues, sum.data, sum.count);
    if (rows == ASH_GRAD_STREAM) take_turn(pass, &pass->tp, false, sum.data, sum.count);
    return sum.data;
}

void ash_grad_end(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    struct sum sum = sum_of(pass, param);

    if (sum.data == NULL) return;
    if (rows == ASH_GRAD_STREAM && pass->tp.size > 1) {
        end_turn(pass, &pass->tp, false, sum.data, sum.count);
        /* all have copies of the parameter */
        ash_share_broadcast(pass, &pass->tp, pass->tp.size - 1, sum.data, sum.count);
    }
    end_turn(pass, &pass->cp, sum.goes_on, sum.data, sum.count);
}

void ash_grad_skip(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows)
{
    ash_grad_begin(pass, param, rows);
    ash_grad_end(pass, param, rows);
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
