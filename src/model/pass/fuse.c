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

/* One half of the product's input; norm: its parameter. */
static void put_half(const struct ash_pass_step *step, int32_t norm, float *rows, float *half)
{
    size_t hidden = step->model->config.hidden;

    ash_norm_in_place(step, (struct ash_norm_params){norm, ASH_NO_PARAM}, rows);
    ash_copy_columns(step->exec, step->rows, hidden, (struct ash_rows_from){rows, hidden},
                     (struct ash_rows_to){half, 2 * hidden});
}

void ash_fuse_forward(const struct ash_pass_step *step, float *x)
{
    const int32_t *param = step->model->layers[0].param;
    size_t hidden = step->model->config.hidden;
    float *fused = step->acts->scratch.fused, *states = step->acts->block.states;
    struct ash_linear_io io = {.rows = step->rows, .x = fused, .x_stride = 2 * hidden, .y = x, .y_stride = hidden};

    ash_assert(step->own.count == step->rows && !step->opts->backward && fused != NULL);
    if (step->model->config.is_eagle) { /* attention has its own half of the input */
        put_half(step, param[ASH_ROLE_NORM1], x, fused);
        ash_copy_columns(step->exec, step->rows, hidden, (struct ash_rows_from){states, hidden},
                         (struct ash_rows_to){x, hidden});
    } else {
        put_half(step, param[ASH_ROLE_FUSE_TOKEN], x, fused);
    }
    put_half(step, param[ASH_ROLE_FUSE_STATE], states, fused + hidden);
    if (!step->model->config.is_eagle) ash_linear_forward(step, param[ASH_ROLE_FUSE], ASH_NO_PARAM, &io);
}

int ash_fuse_captured(const struct ash_pass_step *step, const float *captured, float *states_out, struct ash_err *err)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_linear_io io = {
        .rows = step->rows, .x = s->captured, .x_stride = c->captured, .y = s->fused, .y_stride = c->hidden};
    const struct ash_memory_ops *memory = step->exec->memory;
    int rc = memory->copy(s->captured, captured, step->rows * c->captured * sizeof(float));

    ash_assert(c->captured > 0);
    if (rc == 0) {
        ash_linear_forward(step, step->model->top.param[ASH_ROLE_FUSE_CAPTURED], ASH_NO_PARAM, &io);
        rc = memory->copy(states_out, s->fused, step->rows * c->hidden * sizeof(float));
    }
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the states of a head") : 0;
}
