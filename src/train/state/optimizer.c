/* optimizer: AdamW over the parameters of this process's shard. Powers of the betas come from multiplications, not from
 * libm, so that every machine has the same corrections. */
#include "train/state/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

void ash_optimizer_init(struct ash_optimizer *optimizer, const struct ash_optimizer_opts *opts, struct ash_state *state)
{
    *optimizer = (struct ash_optimizer){.opts = opts, .state = state};
}

/* ---- norm -------------------------------------------------------------------------------------------------------- */

/* What of a parameter's gradients this process counts: of copies, one rank does, and replicas each take a part,
 * node replicas the one that they update. */
static struct ash_shard_part counted(const struct ash_state *state, const struct ash_param *param)
{
    const struct ash_state_part *part = &state->part;
    size_t total = state->shards->total, first = total * part->replica / part->replicas,
           end = total * (part->replica + 1) / part->replicas;
    struct ash_range run = ash_state_is_partitioned(state) ? state->own : (struct ash_range){first, end - first};

    if (!param->is_trained || !param->is_counted || !(param->is_expert || part->is_dense_counted))
        return (struct ash_shard_part){0};
    return ash_shards_part_in(state->shards, param, run);
}

/* The gradients of a parameter's part. */
static const float *grads_of(const struct ash_optimizer *optimizer, const float *grads, const struct ash_param *param,
                             const struct ash_shard_part *part)
{
    return grads + (optimizer->flat ? param->offset + part->first : part->at);
}

/* The results of the ops come back to the host once for all parameters. */
static int read_result(const struct ash_state *state, void *out, size_t size_bytes, struct ash_err *err)
{
    int rc = state->exec->memory->copy(out, state->result.data, size_bytes);

    return rc < 0 ? ash_err_set(err, rc, "cannot read the norm of the gradients") : 0;
}

static int largest(const struct ash_optimizer *optimizer, const float *grads, uint32_t *max_out, struct ash_err *err)
{
    const struct ash_state *state = optimizer->state;

    ash_exec_zero(state->exec, state->result.data, sizeof(*max_out));
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        struct ash_shard_part own = counted(state, param);

        if (own.count == 0) continue;
        state->exec->ops->optim->max_abs(state->exec, grads_of(optimizer, grads, param, &own), own.count,
                                         state->result.data);
    }
    return read_result(state, max_out, sizeof(*max_out), err);
}

static int add_squares(const struct ash_optimizer *optimizer, const float *grads, int exponent, struct ash_squares *sum,
                       struct ash_err *err)
{
    const struct ash_state *state = optimizer->state;
    struct ash_squares here;
    int rc;

    ash_exec_zero(state->exec, state->result.data, sizeof(here));
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        struct ash_shard_part own = counted(state, param);

        if (own.count == 0) continue;
        state->exec->ops->optim->sum_squares(state->exec, grads_of(optimizer, grads, param, &own), own.count, exponent,
                                             state->result.data);
    }
    rc = read_result(state, &here, sizeof(here), err);
    if (rc < 0) return rc;
    sum->high += here.high + (here.low >> 32);
    sum->low += here.low & 0xffffffff;
    return 0;
}

/* The whole sum as a number: its two halves are brought below 2^32 first, whoever added how much of each. */
static double squares_value(struct ash_squares sum, int exponent)
{
    sum.high += sum.low >> 32;
    sum.low &= 0xffffffff;
    return ldexp((double)sum.high * 0x1p32 + (double)sum.low, 2 * exponent - 62);
}

/* Over all ranks; the wait is metered. */
static int all_reduce(const struct ash_optimizer_ranks *ranks, int64_t *values, size_t count, enum ash_coll_op op,
                      struct ash_err *err)
{
    int rc;

    if (ranks->group == NULL) return 0;
    ash_meter_begin(ranks->meter);
    rc = ash_group_all_reduce(ranks->group, values, values, count, ASH_COLL_I64, op, err);
    ash_meter_end(ranks->meter, ASH_METER_COMM);
    return rc;
}

int ash_optimizer_norm(struct ash_optimizer *const *optimizers, const float *const *grads, size_t count,
                       const struct ash_optimizer_ranks *ranks, double *norm_out, struct ash_err *err)
{
    struct ash_squares sum = {0};
    int64_t max = 0, halves[2];
    uint32_t bits;
    float value;
    int exponent, rc;

    ash_assert(count > 0 && ranks != NULL);
    for (size_t i = 0; i < count; i++) {
        uint32_t here;

        rc = largest(optimizers[i], grads[i], &here, err);
        if (rc < 0) return rc;
        max = ash_max(max, (int64_t)here);
    }
    rc = all_reduce(ranks, &max, 1, ASH_COLL_MAX, err);
    if (rc < 0) return rc;
    bits = (uint32_t)max;
    memcpy(&value, &bits, sizeof(value));
    if (!isfinite(value)) {
        *norm_out = (double)value;
        return 0;
    }
    frexp((double)value, &exponent);
    for (size_t i = 0; i < count; i++) {
        rc = add_squares(optimizers[i], grads[i], exponent, &sum, err);
        if (rc < 0) return rc;
    }
    halves[0] = (int64_t)sum.high;
    halves[1] = (int64_t)sum.low;
    rc = all_reduce(ranks, halves, 2, ASH_COLL_SUM, err);
    if (rc < 0) return rc;
    sum.high = (uint64_t)halves[0];
    sum.low = (uint64_t)halves[1];
    *norm_out = sqrt(squares_value(sum, exponent));
    return 0;
}

/* ---- update ------------------------------------------------------------------------------------------------------ */

/* base to the power of exponent by squaring. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent != 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

/* What is the same for all parameters in the next update. */
static struct ash_adamw_args common_args(const struct ash_optimizer *optimizer, double norm, double lr)
{
    const struct ash_optimizer_opts *opts = optimizer->opts;
    uint64_t update = optimizer->state->updates + 1;

    ash_assert(isfinite(norm));
    return (struct ash_adamw_args){.lr = (float)lr,
                                   .beta1 = (float)opts->beta1,
                                   .beta2 = (float)opts->beta2,
                                   .eps = (float)opts->eps,
                                   .grad_scale =
                                       opts->clip > 0.0 && norm > opts->clip ? (float)(opts->clip / norm) : 1.0f,
                                   .correction1 = (float)(1.0 - power(opts->beta1, update)),
                                   .correction2 = (float)(1.0 - power(opts->beta2, update))};
}

static float decay_of(const struct ash_optimizer_opts *opts, bool is_matrix)
{
    return is_matrix || opts->decay == ASH_DECAY_ALL ? (float)opts->weight_decay : 0.0f;
}

void ash_optimizer_update_run(const struct ash_optimizer *optimizer, const struct ash_optimizer_run *run, double norm,
                              double lr)
{
    struct ash_exec *exec = optimizer->state->exec;
    struct ash_adamw_args args = common_args(optimizer, norm, lr);

    args.count = run->count;
    args.grad = run->grads;
    args.param = args.param_out = run->weights;
    args.m = args.m_out = run->m;
    args.v = args.v_out = run->v;
    args.param_bf16 = run->bf16;
    args.weight_decay = decay_of(optimizer->opts, run->is_matrix);
    exec->ops->optim->adamw(exec, &args);
}

void ash_optimizer_update(struct ash_optimizer *optimizer, const float *grads, double norm, double lr)
{
    struct ash_state *state = optimizer->state;
    struct ash_exec *exec = state->exec;
    const float *values = ash_model_values(state->model), *m = state->m.data, *v = state->v.data;
    uint16_t *bf16 = state->bf16.data;
    struct ash_adamw_args args = common_args(optimizer, norm, lr);

    ash_assert(grads != NULL && state->next.weights != NULL);
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        struct ash_shard_part own = ash_shards_part_in(state->shards, param, state->own);
        size_t at = param->offset + own.first;

        if (!param->is_trained || param->is_tied_copy || own.count == 0) continue;
        args.count = own.count;
        args.param = values + at;
        args.m = m + own.at;
        args.v = v + own.at;
        args.param_out = state->next.weights + at;
        args.m_out = state->next.m + own.at;
        args.v_out = state->next.v + own.at;
        args.grad = grads_of(optimizer, grads, param, &own);
        args.weight_decay = decay_of(optimizer->opts, param->is_matrix);
        args.param_bf16 = bf16 != NULL ? bf16 + at : NULL;
        exec->ops->optim->adamw(exec, &args);
    }
}
