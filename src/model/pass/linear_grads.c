/* linear_grads: the backward pass of a linear layer on this rank. */
#include "model/pass/linear_grads.h"

#include "base/assert.h"
#include "model/pass/adapter_grads.h"
#include "model/pass/grads_shared.h"
#include "model/pass/weight_grads.h"

/* While the first rank of cp adds to the weight's gradient, the others, who cannot yet, compute dx. */
void ash_linear_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight, int32_t bias,
                         const struct ash_linear_io *io)
{
    bool has_dx = io->dx != NULL || io->dx_bf16 != NULL, dx_first = step->axes->cp.rank > 0;
    float *dbias;

    ash_assert((io->x != NULL || io->x_bf16 != NULL) && (io->dy != NULL || io->dy_bf16 != NULL));
    if (io->shared_rows) {
        ash_shared_grads_publish(step, sink, weight, weight, bias, io);
        if (has_dx) ash_linear_input_grad(step, weight, io);
        return;
    }
    if (has_dx && dx_first) ash_linear_input_grad(step, weight, io);
    ash_linear_weight_backward(step, sink, weight, weight, io);
    dbias = ash_grad_acquire(sink, bias, ASH_GRAD_ALL);
    if (dbias != NULL) ash_linear_bias_grad(step->model, step->exec, weight, io, dbias);
    ash_grad_release(sink, bias, ASH_GRAD_ALL);
    if (has_dx && !dx_first) ash_linear_input_grad(step, weight, io);
    ash_adapter_backward(step, sink, weight, io);
}
