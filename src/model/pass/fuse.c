/* fuse: norms, two copies, one product. */
#include "model/pass/fuse.h"

#include "base/assert.h"
#include "model/pass/acts.h"
#include "model/pass/copy.h"
#include "model/pass/linear.h"
#include "model/pass/norm.h"

int ash_fuse_begin(const struct ash_pass_step *step, struct ash_err *err)
{
    size_t bytes = step->rows * step->model->config.hidden * sizeof(float);
    int rc = step->exec->memory->copy(step->acts->block.states, step->batch->states, bytes);

    return rc < 0 ? ash_err_set(err, rc, "cannot copy the states of a batch") : 0;
}

/* One half of the product's input. */
static void put_half(const struct ash_pass_step *step, enum ash_role norm, float *rows, float *half)
{
    size_t hidden = step->model->config.hidden;

    ash_norm_in_place(step, (struct ash_norm_params){step->model->layers[0].param[norm], ASH_NO_PARAM}, rows);
    ash_copy_columns(step->exec, step->rows, hidden, (struct ash_rows_from){rows, hidden},
                     (struct ash_rows_to){half, 2 * hidden});
}

void ash_fuse_forward(const struct ash_pass_step *step, float *x)
{
    size_t hidden = step->model->config.hidden;
    float *fused = step->acts->scratch.fused;
    struct ash_linear_io io = {.rows = step->rows, .x = fused, .x_stride = 2 * hidden, .y = x, .y_stride = hidden};

    ash_assert(step->own.count == step->rows && !step->opts->backward && fused != NULL);
    put_half(step, ASH_ROLE_FUSE_TOKEN, x, fused);
    put_half(step, ASH_ROLE_FUSE_STATE, step->acts->block.states, fused + hidden);
    ash_linear_forward(step, step->model->layers[0].param[ASH_ROLE_FUSE], ASH_NO_PARAM, &io);
}
