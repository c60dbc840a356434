/* norm: RMS and layer norms over own rows of the stream. */
#include "model/pass/norm.h"

#include "base/assert.h"
#include "model/pass/copy.h"

/* What both directions have in common. */
static struct ash_norm_args stream_norm(const struct ash_pass_step *step, struct ash_norm_params params, const float *x,
                                        const struct ash_norm_acts *acts)
{
    const struct ash_model_config *c = &step->model->config;

    ash_assert(x != NULL && acts->rstd != NULL);
    return (struct ash_norm_args){.rows = step->own.count,
                                  .groups = 1,
                                  .cols = c->hidden,
                                  .x_stride = c->hidden,
                                  .y_stride = c->hidden,
                                  .x = x,
                                  .weight = ash_model_vector(step->model, params.weight),
                                  .bias = ash_model_vector(step->model, params.bias),
                                  .eps = (float)c->norm_eps,
                                  .rstd = acts->rstd,
                                  .mean = acts->mean,
                                  .round_bf16 = step->model->round_bf16,
                                  .seq_rows = step->seq_rows,
                                  .seq_first = step->own.first % step->seq_rows};
}

void ash_norm_forward(const struct ash_pass_step *step, struct ash_norm_params params, const float *x,
                      const struct ash_norm_acts *acts)
{
    const struct ash_norm_ops *ops = step->exec->ops->norm;
    size_t hidden = step->model->config.hidden;
    struct ash_norm_args args;

    if (params.weight == ASH_NO_PARAM) {
        ash_copy_columns(step->exec, step->own.count, hidden, (struct ash_rows_from){x, hidden},
                         (struct ash_rows_to){acts->out, hidden});
        return;
    }
    args = stream_norm(step, params, x, acts);
    args.y = acts->out;
    args.y_bf16 = acts->out_bf16;
    if (step->model->config.form.norm == ASH_NORM_RMS)
        ops->rms_forward(step->exec, &args);
    else
        ops->layer_forward(step->exec, &args);
}

void ash_norm_in_place(const struct ash_pass_step *step, struct ash_norm_params params, float *x)
{
    struct ash_norm_acts acts = step->acts->final_norm;
    size_t hidden = step->model->config.hidden;

    if (params.weight == ASH_NO_PARAM) return;
    ash_assert(!step->opts->backward);
    acts.out = step->acts->scratch.residual;
    acts.out_bf16 = NULL;
    ash_norm_forward(step, params, x, &acts);
    ash_copy_columns(step->exec, step->own.count, hidden, (struct ash_rows_from){acts.out, hidden},
                     (struct ash_rows_to){x, hidden});
}

/* What args leave open: the parameters' gradients. */
static void run_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, struct ash_norm_params params,
                         struct ash_norm_args *args)
{
    const struct ash_norm_ops *ops = step->exec->ops->norm;

    args->dweight = ash_grad_acquire(sink, params.weight, ASH_GRAD_STREAM);
    args->dbias = ash_grad_acquire(sink, params.bias, ASH_GRAD_STREAM);
    if (step->model->config.form.norm == ASH_NORM_RMS)
        ops->rms_backward(step->exec, args);
    else
        ops->layer_backward(step->exec, args);
    ash_grad_release_both(sink, params.weight, params.bias, ASH_GRAD_STREAM);
}

void ash_norm_backward_to(const struct ash_pass_step *step, struct ash_grad_sink *sink, struct ash_norm_params params,
                          const float *x, const struct ash_norm_acts *acts, const float *dy, float *dx)
{
    struct ash_norm_args args = stream_norm(step, params, x, acts);

    args.dy = dy;
    args.dx = dx;
    run_backward(step, sink, params, &args);
}

void ash_norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, struct ash_norm_params params,
                       const float *x, const struct ash_norm_acts *acts, bool add)
{
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_norm_args args;

    ash_assert(s->dnorm != NULL && s->dx != NULL);
    if (params.weight == ASH_NO_PARAM) {
        ash_assert(add && !s->dnorm_is_bf16);
        step->exec->ops->row->add(step->exec, s->dx, s->dnorm, step->own.count * step->model->config.hidden, s->dx);
        return;
    }
    args = stream_norm(step, params, x, acts);
    args.dy = s->dnorm_is_bf16 ? NULL : s->dnorm;
    args.dy_bf16 = s->dnorm_is_bf16 ? (const void *)s->dnorm : NULL;
    s->dnorm_is_bf16 = false;
    args.dx = s->dx;
    args.dx_add = add;
    args.dx_bf16 = s->dx_bf16;
    run_backward(step, sink, params, &args);
}

bool ash_norm_is_fused(const struct ash_pass_step *step)
{
    return !step->opts->backward && step->axes->tp.size == 1 && !step->has_adapters &&
           step->model->config.form.norm == ASH_NORM_RMS;
}

bool ash_norm_is_recomputed(const struct ash_pass_step *step, const struct ash_norm_acts *acts)
{
    enum ash_recompute recompute = step->opts->recompute;

    return recompute == ASH_RECOMPUTE_SELECTIVE || (recompute == ASH_RECOMPUTE_NONE && acts->out_bf16 != NULL);
}
