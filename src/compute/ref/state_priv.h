/* The two halves of the ops of recurrent states. */
#ifndef ASH_COMPUTE_REF_STATE_PRIV_H
#define ASH_COMPUTE_REF_STATE_PRIV_H

#include <math.h>
#include "compute/lanes.h"
#include "compute/ops_state.h"

/* state_conv.c: ash_state_ops.conv_forward. */
void ash_ref_conv_forward(struct ash_exec *exec, const struct ash_conv_args *args);
/* ash_state_ops.conv_backward. */
void ash_ref_conv_backward(struct ash_exec *exec, const struct ash_conv_args *args);

/* What a head reads in a row. */
struct ash_state_row {
    const float *x, *b, *c;
    float raw, step, decay, a; /* decay: exp of the parameter */
    /* of the delta rule: */
    float beta, b_factor, c_factor; /* the sigmoid, and what B and C were multiplied with */
};

/* A head in row r on the way back: the state before it and after it, and the gradient of that one, which becomes the
 * gradient of the state before. */
struct ash_state_back {
    size_t head, r;
    const float *before, *state;
    float *dstate;
    float *room; /* [2, size], of the delta rule */
};

/* A row sum of products. */
static inline float ash_ref_state_dot(const float *a, const float *b, size_t count)
{
    float lanes[ASH_LANES] = {0};

    for (size_t n = 0; n < count; n++)
        lanes[n % ASH_LANES] = fmaf(a[n], b[n], lanes[n % ASH_LANES]);
    return ash_lanes_fold(lanes);
}

/* state_delta.c: B and C of row r, divided by their lengths, into room [2, size]; and beta. */
void ash_ref_delta_row(const struct ash_scan_args *args, size_t head, size_t r, float *room, struct ash_state_row *row);
/* to = from after the row; may be from. */
void ash_ref_delta_advance(const struct ash_scan_args *args, const struct ash_state_row *row, const float *from,
                           float *to);
/* Gradients of that head and row. */
void ash_ref_delta_backward(const struct ash_scan_args *args, const struct ash_state_row *row,
                            const struct ash_state_back *back);

#endif
