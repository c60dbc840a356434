/* family_math - one element of what some families need (compute/ops_family.h), for the reference and the GPU. */
#ifndef ASH_COMPUTE_FAMILY_MATH_H
#define ASH_COMPUTE_FAMILY_MATH_H

#include <stdbool.h>
#include "base/device_code.h"
#include "compute/gelu.h"
#include "compute/mathf.h"
#include "compute/ops_family.h"

#define ASH_GATE_LIMIT 7.0f
#define ASH_GATE_SLOPE 1.702f

/* Output of a gate, and its derivatives by gate and up. */
struct ash_gated {
    float out, by_gate, by_up;
};

ASH_INLINE struct ash_gated ash_gate_gelu(float gate, float up)
{
    float t = ash_tanhf(ASH_GELU_SQRT_2_PI * fmaf(ASH_GELU_CUBE * gate * gate, gate, gate)), half = 0.5f * gate;
    float bend = half * (1.0f - t * t) * (ASH_GELU_SQRT_2_PI * fmaf(3.0f * ASH_GELU_CUBE * gate, gate, 1.0f));
    struct ash_gated gated = {half * (1.0f + t) * up, fmaf(0.5f, 1.0f + t, bend) * up, half * (1.0f + t)};

    return gated;
}

ASH_INLINE struct ash_gated ash_gate_gelu_erf(float gate, float up)
{
    float area = 0.5f * (1.0f + ash_erff(gate * ASH_GELU_SQRT_HALF)), act = gate * area;
    float density = ASH_GELU_DENSITY * ash_expf(-0.5f * gate * gate);
    struct ash_gated gated = {act * up, fmaf(gate, density, area) * up, act};

    return gated;
}

ASH_INLINE struct ash_gated ash_gate_clamped(float gate, float up)
{
    bool in_gate = gate <= ASH_GATE_LIMIT, in_up = up >= -ASH_GATE_LIMIT && up <= ASH_GATE_LIMIT;
    float g = in_gate ? gate : ASH_GATE_LIMIT, u = in_up ? up : up < 0 ? -ASH_GATE_LIMIT : ASH_GATE_LIMIT;
    float s = ash_sigmoidf(ASH_GATE_SLOPE * g), glu = g * s;
    struct ash_gated gated = {(u + 1.0f) * glu,
                              in_gate ? (u + 1.0f) * (s * fmaf(ASH_GATE_SLOPE * g, 1.0f - s, 1.0f)) : 0.0f,
                              in_up ? glu : 0.0f};

    return gated;
}

/* Element i of [rows, cols]: its output, or with dout its gradients. */
ASH_INLINE void ash_gate_element(const struct ash_gated_args *args, size_t i)
{
    size_t at = i / args->cols * args->stride + i % args->cols * args->step;
    float gate = args->gate[at], up = args->up[at];
    struct ash_gated gated = args->kind == ASH_GATE_GELU       ? ash_gate_gelu(gate, up)
                             : args->kind == ASH_GATE_GELU_ERF ? ash_gate_gelu_erf(gate, up)
                                                               : ash_gate_clamped(gate, up);

    if (args->dout == NULL) {
        args->out[i] = gated.out;
        return;
    }
    args->dgate[at] = args->dout[i] * gated.by_gate;
    args->dup[at] = args->dout[i] * gated.by_up;
}

/* The log of the sum of exponentials with a sink. */
ASH_INLINE float ash_sink_lse(float lse, float sink)
{
    float top = lse > sink ? lse : sink;

    return top + ash_logf(ash_expf(lse - top) + ash_expf(sink - top));
}

/* A soft limit. */
ASH_INLINE float ash_cap(float x, float cap)
{
    return cap * ash_tanhf(x / cap);
}

/* The derivative where the cap made y. */
ASH_INLINE float ash_cap_slope(float y, float cap)
{
    float t = y / cap;

    return 1.0f - t * t;
}

#endif
