/* ops_optim - the optimizer's ops and the norm of gradients: part of ops.h, whose contract holds. */
#ifndef ASH_COMPUTE_OPS_OPTIM_H
#define ASH_COMPUTE_OPS_OPTIM_H

#include <stddef.h>
#include <stdint.h>
#include "base/range.h"

struct ash_exec;

/* Elements of flat arrays: where they begin among weights, moments and gradients. */
struct ash_adamw_range {
    size_t param, moment, grad, count;
    float weight_decay;
};

/* Of AdamW and of Lion, which reads neither v nor eps and corrections. */
struct ash_adamw_args {
    const struct ash_adamw_range *ranges; /* [range_count], host */
    size_t range_count;
    const float *param, *m, *v;       /* float32, before */
    float *param_out, *m_out, *v_out; /* and after: elsewhere, or in place */
    const float *grad;
    float grad_scale; /* clipping factor */
    float lr, beta1, beta2, eps;
    float correction1, correction2; /* 1 - beta^t */
    uint16_t *param_bf16;           /* the working copy of param_out, refreshed; or NULL */
};

/* A sum of squares: high 2^32 + low units of 2^(2 exponent - 62), where exponent is ash_f32_exponent(max). */
struct ash_squares {
    uint64_t high, low;
    uint32_t max; /* the bits of the largest |x|; a NaN's are larger than all */
};

struct ash_squares_args {
    const float *x;
    const struct ash_range *ranges; /* [range_count], host: of x */
    size_t range_count;
    struct ash_squares *sum;
};

struct ash_optim_ops {
    /* One AdamW step over ranges of the parameters. */
    void (*adamw)(struct ash_exec *exec, const struct ash_adamw_args *args);
    /* One Lion step: with c = m + (1 - beta1) (g - m), param = param (1 - lr decay) - lr sign(c); then m += (1 - beta2)
     * (g - m). sign(0) is 0; v is not touched. */
    void (*lion)(struct ash_exec *exec, const struct ash_adamw_args *args);
    /* sum->max becomes the larger of itself and that of x. */
    void (*max_abs)(struct ash_exec *exec, const struct ash_squares_args *args);
    /* sum += the squares of x, none of which is larger than sum->max, each truncated to whole units; where max is not
     * finite, nothing. The sum is exact, so it has no order: compute/squares.h. How it is split into high and low may
     * differ. */
    void (*sum_squares)(struct ash_exec *exec, const struct ash_squares_args *args);
};

#endif
