/* optimizer: AdamW or Lion over the parameters of this process's shard. Powers of the betas come from multiplications,
 * not from libm, so that every machine has the same corrections. */
#include "train/state/optimizer.h"

#include <math.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/math.h"

#define RANGES 512 /* of parameters that an op gets at once */

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

/* Where the gradients of a parameter's part are. */
static size_t grad_place(const struct ash_optimizer *optimizer, const struct ash_param *param,
                         const struct ash_shard_part *part)
{
    return optimizer->flat ? param->offset + part->first : part->at;
}

/* The results of the ops come back to the host once for all parameters. */
static int read_result(const struct ash_state *state, struct ash_squares *out, struct ash_err *err)
{
    int rc = state->exec->memory->copy(out, state->result.data, sizeof(*out));

    return rc < 0 ? ash_err_set(err, rc, "cannot read the norm of the gradients") : 0;
}

/* Wait for a state's sum and add it to another of the same max. */
static int add_result(const struct ash_state *state, struct ash_squares *sum, struct ash_err *err)
{
    struct ash_squares here;
    int rc = read_result(state, &here, err);

    if (rc < 0) return rc;
    sum->high += here.high + (here.low >> 32);
    sum->low += here.low & 0xffffffff;
    sum->max = here.max;
    return 0;
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

/* Enqueue an op over all gradients that this process counts. */
static void run_squares(const struct ash_optimizer *optimizer, const float *grads,
                        void (*op)(struct ash_exec *exec, const struct ash_squares_args *args))
{
    const struct ash_state *state = optimizer->state;
    size_t count = ash_model_param_count(state->model), i = 0;
    struct ash_range ranges[RANGES];
    struct ash_squares_args args = {.x = grads, .ranges = ranges, .sum = state->result.data};

    while (i < count) {
        for (args.range_count = 0; i < count && args.range_count < RANGES; i++) {
            const struct ash_param *param = ash_model_param(state->model, i);
            struct ash_shard_part own = counted(state, param);

            if (own.count > 0)
                ranges[args.range_count++] = (struct ash_range){grad_place(optimizer, param, &own), own.count};
        }
        op(state->exec, &args);
    }
}

/* The largest over all ranks, to where sums of squares read it. */
static int agree_on_max(struct ash_optimizer *const *optimizers, size_t count, const struct ash_optimizer_ranks *ranks,
                        struct ash_err *err)
{
    int64_t max = 0;
    uint32_t bits;
    int rc = 0;

    if (count == 1 && ranks->group == NULL) return 0; /* it is there */
    for (size_t i = 0; i < count; i++) {
        struct ash_squares here;

        rc = read_result(optimizers[i]->state, &here, err);
        if (rc < 0) return rc;
        max = ash_max(max, (int64_t)here.max);
    }
    rc = all_reduce(ranks, &max, 1, ASH_COLL_MAX, err);
    bits = (uint32_t)max;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct ash_squares *result = optimizers[i]->state->result.data;

        rc = ash_exec_upload(optimizers[i]->state->exec, &result->max, &bits, sizeof(bits));
    }
    return rc;
}

/* The whole sum as a number: its two halves are brought below 2^32 first, independent of which rank added which
 * part. */
static double squares_value(struct ash_squares sum)
{
    sum.high += sum.low >> 32;
    sum.low &= 0xffffffff;
    return ldexp((double)sum.high * 0x1p32 + (double)sum.low, 2 * ash_f32_exponent(sum.max) - 62);
}

int ash_optimizer_norm(struct ash_optimizer *const *optimizers, const float *const *grads, size_t count,
                       const struct ash_optimizer_ranks *ranks, double *norm_out, struct ash_err *err)
{
    struct ash_squares sum = {0};
    int64_t halves[2];
    int rc;

    ash_assert(count > 0 && ranks != NULL);
    for (size_t i = 0; i < count; i++) {
        struct ash_state *state = optimizers[i]->state;

        ash_exec_zero(state->exec, state->result.data, sizeof(sum));
        run_squares(optimizers[i], grads[i], state->exec->ops->optim->max_abs);
    }
    rc = agree_on_max(optimizers, count, ranks, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        run_squares(optimizers[i], grads[i], optimizers[i]->state->exec->ops->optim->sum_squares);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_result(optimizers[i]->state, &sum, err);
    if (rc < 0) return rc;
    if (!ash_f32_is_finite(sum.max)) {
        *norm_out = (double)ash_f32_from_bits(sum.max);
        return 0;
    }
    halves[0] = (int64_t)sum.high;
    halves[1] = (int64_t)sum.low;
    rc = all_reduce(ranks, halves, 2, ASH_COLL_SUM, err);
    if (rc < 0) return rc;
    sum.high = (uint64_t)halves[0];
    sum.low = (uint64_t)halves[1];
    *norm_out = sqrt(squares_value(sum));
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

/* Arguments of the next update that all parameters share. */
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

/* Enqueue the update of args' ranges. */
static void run_update(const struct ash_optimizer *optimizer, const struct ash_adamw_args *args)
{
    struct ash_exec *exec = optimizer->state->exec;

    switch ((enum ash_optimizer_kind)optimizer->opts->kind) {
    case ASH_OPTIMIZER_ADAMW:
        exec->ops->optim->adamw(exec, args);
        break;
    case ASH_OPTIMIZER_LION:
        exec->ops->optim->lion(exec, args);
        break;
    }
}

void ash_optimizer_update_run(const struct ash_optimizer *optimizer, const struct ash_optimizer_run *run, double norm,
                              double lr)
{
    struct ash_adamw_args args = common_args(optimizer, norm, lr);
    struct ash_adamw_range range = {.count = run->count, .weight_decay = decay_of(optimizer->opts, run->is_matrix)};

    args.ranges = &range;
    args.range_count = 1;
    args.grad = run->grads;
    args.param = args.param_out = run->weights;
    args.m = args.m_out = run->m;
    args.v = args.v_out = run->v;
    args.param_bf16 = run->bf16;
    run_update(optimizer, &args);
}

/* What of a parameter this process updates, as one more range. */
static void add_range(const struct ash_optimizer *optimizer, const struct ash_param *param,
                      struct ash_adamw_range *ranges, size_t *count)
{
    const struct ash_state *state = optimizer->state;
    struct ash_shard_part own = ash_shards_part_in(state->shards, param, state->own);

    if (!param->is_trained || param->is_tied_copy || own.count == 0) return;
    ranges[(*count)++] = (struct ash_adamw_range){.param = param->offset + own.first,
                                                  .moment = own.at,
                                                  .grad = grad_place(optimizer, param, &own),
                                                  .count = own.count,
                                                  .weight_decay = decay_of(optimizer->opts, param->is_matrix)};
}

void ash_optimizer_update(struct ash_optimizer *optimizer, const float *grads, double norm, double lr)
{
    struct ash_state *state = optimizer->state;
    size_t count = ash_model_param_count(state->model), i = 0;
    struct ash_adamw_range ranges[RANGES];
    struct ash_adamw_args args = common_args(optimizer, norm, lr);

    ash_assert(grads != NULL && state->next.weights != NULL);
    args.ranges = ranges;
    args.param = ash_model_values(state->model);
    args.m = state->m.data;
    args.v = state->v.data;
    args.param_out = state->next.weights;
    args.m_out = state->next.m;
    args.v_out = state->next.v;
    args.grad = grads;
    args.param_bf16 = state->bf16.data;
    while (i < count) {
        for (args.range_count = 0; i < count && args.range_count < RANGES; i++)
            add_range(optimizer, ash_model_param(state->model, i), ranges, &args.range_count);
        run_update(optimizer, &args);
    }
}
