/* point_body - activations, cross-entropy and the optimizer of one instruction set. Include after vmath.h. */
#ifndef ASH_COMPUTE_POINT_BODY_H
#define ASH_COMPUTE_POINT_BODY_H

#include "base/bf16.h"
#include "compute/gelu.h"

#define ACT_MIN_COUNT 1024
#define OPTIM_MIN_COUNT 4096

/* ---- activations ------------------------------------------------------------------------------------------------- */

struct act {
    const float *x, *up, *dout; /* x: the gate of SwiGLU */
    float *out, *dx, *dup;
    enum ash_gelu kind;
};

static void swiglu_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH) {
        vf gate = vf_load_n(op->x + i, end - i), up = vf_load_n(op->up + i, end - i);

        vf_store_n(op->out + i, vf_mul(vf_mul(gate, vf_sigmoid(gate)), up), end - i);
    }
}

static void swiglu_forward(struct ash_exec *exec, const float *gate, const float *up, size_t count, float *out)
{
    struct act op = {.x = gate, .up = up, .out = out};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, swiglu_forward_range, &op);
}

static void swiglu_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH) {
        vf gate = vf_load_n(op->x + i, end - i), up = vf_load_n(op->up + i, end - i),
           dout = vf_load_n(op->dout + i, end - i);
        vf one = vf_set(1.0f), s = vf_sigmoid(gate);

        vf_store_n(op->dx + i, vf_mul(vf_mul(dout, up), vf_mul(s, vf_fma(gate, vf_sub(one, s), one))), end - i);
        vf_store_n(op->dup + i, vf_mul(dout, vf_mul(gate, s)), end - i);
    }
}

static void swiglu_backward(struct ash_exec *exec, const float *gate, const float *up, const float *dout, size_t count,
                            float *dgate, float *dup)
{
    struct act op = {.x = gate, .up = up, .dout = dout, .dx = dgate, .dup = dup};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, swiglu_backward_range, &op);
}

/* The tanh of the approximate form, or the erf. */
static vf gelu_inner(enum ash_gelu kind, vf x)
{
    vf cubed;

    if (kind == ASH_GELU_ERF) return vf_erf(vf_mul(x, vf_set(GELU_SQRT_HALF)));
    cubed = vf_fma(vf_mul(vf_mul(vf_set(GELU_CUBE), x), x), x, x);
    return vf_tanh(vf_mul(vf_set(GELU_SQRT_2_PI), cubed));
}

static void gelu_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH) {
        vf x = vf_load_n(op->x + i, end - i), t = gelu_inner(op->kind, x);

        vf_store_n(op->out + i, vf_mul(vf_mul(vf_set(0.5f), x), vf_add(vf_set(1.0f), t)), end - i);
    }
}

static void gelu_forward(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out)
{
    struct act op = {.x = x, .out = out, .kind = kind};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, gelu_forward_range, &op);
}

static vf gelu_slope(enum ash_gelu kind, vf x)
{
    vf t = gelu_inner(kind, x), half = vf_set(0.5f), one = vf_set(1.0f), bend;

    if (kind == ASH_GELU_TANH) {
        vf inner = vf_mul(vf_set(GELU_SQRT_2_PI), vf_fma(vf_mul(vf_set(3.0f * GELU_CUBE), x), x, one));
        bend = vf_mul(vf_mul(vf_mul(half, x), vf_sub(one, vf_mul(t, t))), inner);
    } else {
        bend = vf_mul(x, vf_mul(vf_set(GELU_DENSITY), vf_exp(vf_mul(vf_mul(vf_set(-0.5f), x), x))));
    }
    return vf_fma(half, vf_add(one, t), bend);
}

static void gelu_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH)
        vf_store_n(op->dx + i,
                   vf_mul(vf_load_n(op->dout + i, end - i), gelu_slope(op->kind, vf_load_n(op->x + i, end - i))),
                   end - i);
}

static void gelu_backward(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx)
{
    struct act op = {.x = x, .dout = dout, .dx = dx, .kind = kind};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, gelu_backward_range, &op);
}

static const struct ash_act_ops vec_act = {
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
};

/* ---- loss -------------------------------------------------------------------------------------------------------- */

struct loss {
    float *logits;
    size_t vocab;
    const int32_t *targets;
    float scale;
    float *loss;
};

static float loss_max(const float *x, size_t count)
{
    struct lanes lanes;
    float max;
    size_t i = 0;

    UNROLL
    for (size_t v = 0; v < LANE_VECS; v++)
        lanes.part[v] = vf_set(-INFINITY);
    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++)
            lanes.part[v] = vf_max(vf_load(x + i + v * VF_WIDTH), lanes.part[v]);
    }
    max = lanes_max(&lanes);
    for (; i < count; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* The sum of exp(x - max); keep leaves the exponentials in x. */
static float loss_exp(float *x, size_t count, float max, bool keep)
{
    struct lanes lanes;
    float part[ASH_LANES];
    vf top = vf_set(max);
    size_t i = 0;

    lanes_zero(&lanes);
    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++) {
            vf e = vf_exp(vf_sub(vf_load(x + i + v * VF_WIDTH), top));

            lanes.part[v] = vf_add(lanes.part[v], e);
            if (keep) vf_store(x + i + v * VF_WIDTH, e);
        }
    }
    lanes_spill(&lanes, part);
    for (; i < count; i++) {
        float e = ash_expf(x[i] - max);

        part[i % ASH_LANES] = part[i % ASH_LANES] + e;
        if (keep) x[i] = e;
    }
    return ash_lanes_fold(part);
}

static float cross_entropy_row(const struct loss *op, float *x, int32_t target)
{
    float max = loss_max(x, op->vocab), at_target = x[target];
    float sum = loss_exp(x, op->vocab, max, op->scale != 0.0f), loss = ash_logf(sum) - (at_target - max);
    vf factor = vf_set(op->scale / sum);

    if (op->scale == 0.0f) return loss;
    for (size_t i = 0; i < op->vocab; i += VF_WIDTH)
        vf_store_n(x + i, vf_mul(vf_load_n(x + i, op->vocab - i), factor), op->vocab - i);
    x[target] = x[target] - op->scale;
    return loss;
}

static void cross_entropy_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct loss *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *x = op->logits + r * op->vocab;

        if (op->targets[r] >= 0) {
            op->loss[r] = cross_entropy_row(op, x, op->targets[r]);
            continue;
        }
        op->loss[r] = 0.0f;
        if (op->scale != 0.0f) memset(x, 0, op->vocab * sizeof(*x));
    }
}

static void cross_entropy(struct ash_exec *exec, float *logits, size_t rows, size_t vocab, const int32_t *targets,
                          float scale, float *loss)
{
    struct loss op = {.logits = logits, .vocab = vocab, .targets = targets, .scale = scale, .loss = loss};

    ash_workers_run(exec->workers, rows, ACT_MIN_COUNT / vocab + 1, cross_entropy_rows, &op);
}

static const struct ash_loss_ops vec_loss = {.cross_entropy = cross_entropy};

/* ---- optimizer --------------------------------------------------------------------------------------------------- */

/* Factors that are the same for every element, rounded once. */
struct adamw {
    const struct ash_adamw_args *args;
    float decay, grow1, grow2, step, root2;
};

static void store_bf16(uint16_t *p, vf x, size_t count)
{
    vu high = vu_shr16(vf_bf16_bits(x));
    uint16_t full[VF_WIDTH];

    if (count >= VF_WIDTH) {
        vu_store_low16(p, high);
        return;
    }
    vu_store_low16(full, high);
    memcpy(p, full, count * sizeof(*p));
}

static void adamw_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct adamw *op = ctx;
    const struct ash_adamw_args *args = op->args;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH) {
        size_t left = end - i;
        vf grad = vf_mul(vf_load_n(args->grad + i, left), vf_set(args->grad_scale));
        vf m = vf_load_n(args->m + i, left), v = vf_load_n(args->v + i, left), param = vf_load_n(args->param + i, left),
           denom;

        m = vf_fma(vf_set(op->grow1), vf_sub(grad, m), m);
        v = vf_fma(vf_mul(vf_set(op->grow2), grad), grad, vf_mul(vf_set(args->beta2), v));
        denom = vf_add(vf_div(vf_sqrt(v), vf_set(op->root2)), vf_set(args->eps));
        param = vf_fma(vf_set(-op->step), vf_div(m, denom), vf_mul(param, vf_set(op->decay)));
        vf_store_n(args->m + i, m, left);
        vf_store_n(args->v + i, v, left);
        vf_store_n(args->param + i, param, left);
        if (args->param_bf16 != NULL) store_bf16(args->param_bf16 + i, param, left);
    }
}

static void adamw(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    struct adamw op = {
        .args = args,
        .decay = (float)(1.0 - (double)args->lr * (double)args->weight_decay),
        .grow1 = (float)(1.0 - (double)args->beta1),
        .grow2 = (float)(1.0 - (double)args->beta2),
        .step = args->lr / args->correction1,
        .root2 = sqrtf(args->correction2),
    };

    ash_workers_run(exec->workers, args->count, OPTIM_MIN_COUNT, adamw_range, &op);
}

struct squares {
    const float *x;
    size_t count;
    double *block_sums;
};

/* Plain C over a fixed number of lanes: compilers vectorise it, and a product of two floats is exact in double. */
static void squares_blocks(void *ctx, size_t begin, size_t end, int worker)
{
    const struct squares *op = ctx;

    (void)worker;
    for (size_t block = begin; block < end; block++) {
        const float *x = op->x + block * ASH_SUMSQ_BLOCK;
        size_t left = op->count - block * ASH_SUMSQ_BLOCK, count = left < ASH_SUMSQ_BLOCK ? left : ASH_SUMSQ_BLOCK,
               i = 0;
        double lanes[ASH_LANES] = {0};

        for (; i + ASH_LANES <= count; i += ASH_LANES)
            for (size_t l = 0; l < ASH_LANES; l++)
                lanes[l] = lanes[l] + (double)x[i + l] * (double)x[i + l];
        for (; i < count; i++)
            lanes[i % ASH_LANES] = lanes[i % ASH_LANES] + (double)x[i] * (double)x[i];
        op->block_sums[block] = ash_lanes_fold_f64(lanes);
    }
}

static void sum_squares(struct ash_exec *exec, const float *x, size_t count, double *block_sums)
{
    struct squares op = {.x = x, .count = count, .block_sums = block_sums};

    ash_workers_run(exec->workers, (count + ASH_SUMSQ_BLOCK - 1) / ASH_SUMSQ_BLOCK, 1, squares_blocks, &op);
}

static const struct ash_optim_ops vec_optim = {.adamw = adamw, .sum_squares = sum_squares};

#endif
