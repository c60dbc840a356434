/* ops_act - the ops of activations: part of ops.h, whose contract holds here too. */
#ifndef ASH_COMPUTE_OPS_ACT_H
#define ASH_COMPUTE_OPS_ACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ash_exec;

enum ash_gelu { ASH_GELU_TANH, ASH_GELU_ERF };

/* out = silu(gate) * up; all [count]. */
struct ash_swiglu_args {
    size_t count;
    size_t cols, stride; /* gate and up: rows of cols elements, stride apart (count is whole rows); 0: all adjacent */
    const float *gate, *up;
    const uint16_t *gate_bf16, *up_bf16; /* instead of these, rounded to bf16 already; or NULL. With round_bf16 only */
    bool round_bf16;                     /* of a bf16 model: see ash_act_ops */
    float *out;                          /* may be gate or up where these are adjacent */
    uint16_t *out_bf16;                  /* instead of out, rounded to bf16; or NULL */
};

/* The gradient of swiglu; all [count]. Outputs may alias gate, up or (all adjacent) dout element by element. */
struct ash_swiglu_grad_args {
    size_t count;
    size_t cols, stride; /* of gate, up and their gradients, as in ash_swiglu_args */
    const float *gate, *up, *dout;
    const uint16_t *gate_bf16, *up_bf16, *dout_bf16; /* as in ash_swiglu_args, dout_bf16 likewise */
    bool round_bf16;
    float *dgate, *dup;
    uint16_t *dgate_bf16, *dup_bf16; /* instead of dgate and dup, rounded to bf16, aliasing nothing; or NULL */
    uint16_t *hidden_bf16;           /* gets forward's out_bf16; or NULL. With round_bf16 only, aliasing nothing */
};

/* With round_bf16 ref-wgmma rounds gate, up and dout to bf16 as they are read, and silu(g) is g * (1 / (1 + ex2(-(g *
 * log2(e))))) of ref/ex2.h. Others ignore it. */
struct ash_act_ops {
    /* out = silu(gate) * up: see ash_swiglu_args. */
    void (*swiglu_forward)(struct ash_exec *exec, const struct ash_swiglu_args *args);
    /* dgate and dup from gate, up and dout. */
    void (*swiglu_backward)(struct ash_exec *exec, const struct ash_swiglu_grad_args *args);
    /* out = gelu(x), in the form of kind; [count]. */
    void (*gelu_forward)(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out);
    /* dx = dout * gelu'(x). dx may alias x or dout. */
    void (*gelu_backward)(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx);
};

#endif
