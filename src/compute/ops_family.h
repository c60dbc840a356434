/* ops_family - the ops that only some families of models need: part of ops.h, whose contract holds here too. A backend
 * without this table refuses those models. */
#ifndef ASH_COMPUTE_OPS_FAMILY_H
#define ASH_COMPUTE_OPS_FAMILY_H

#include <stddef.h>

struct ash_exec;

/* Gates: gelu(gate) * up in the form with tanh, and in that with erf; and, with g = min(gate, 7) and u = up within
 * -7 ... 7, g * sigmoid(1.702 * g) * (u + 1) (gpt-oss). */
enum ash_gate { ASH_GATE_GELU, ASH_GATE_CLAMPED, ASH_GATE_GELU_ERF };

/* out = gate and up, as kind says. Rows of cols elements: gate, up and their gradients are stride apart, the others
 * dense. Elements of gate and of up are step apart. */
struct ash_gated_args {
    enum ash_gate kind;
    size_t rows, cols, stride, step;
    const float *gate, *up;
    float *out; /* [rows, cols] */
    /* backward: */
    const float *dout;  /* [rows, cols] */
    float *dgate, *dup; /* may be gate and up */
};

/* A sink is one more key of each head, without a value, whose score is a parameter: it takes weight from the others.
 * out and lse are what attention gives without it. */
struct ash_sink_args {
    size_t rows, heads, dim, stride; /* row r, head h of out is at r * stride + h * dim */
    const float *sinks;              /* [heads] */
    float *out, *lse;                /* lse [rows, heads]; forward changes both, backward reads what that made */
    /* backward: */
    const float *dout; /* like out */
    float *dsinks;     /* [heads], += over rows ascending */
};

struct ash_family_ops {
    /* out from gate and up. */
    void (*gated_forward)(struct ash_exec *exec, const struct ash_gated_args *args);
    /* dgate and dup from gate, up and dout. */
    void (*gated_backward)(struct ash_exec *exec, const struct ash_gated_args *args);
    /* out and lse with the sinks. */
    void (*sink_forward)(struct ash_exec *exec, const struct ash_sink_args *args);
    /* dsinks; the gradients of the other scores are attention's own, with this lse. */
    void (*sink_backward)(struct ash_exec *exec, const struct ash_sink_args *args);
    /* x = cap * tanh(x / cap). */
    void (*cap_forward)(struct ash_exec *exec, float *x, float cap, size_t count);
    /* dx = dx * (1 - (y / cap)^2), y what forward made. */
    void (*cap_backward)(struct ash_exec *exec, const float *y, float cap, size_t count, float *dx);
};

#endif
