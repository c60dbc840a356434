/* parallel_linear - linear layers that ranks of tp share: row-parallel ones, whose inputs are split (their outputs are
 * sums over the ranks), and column-parallel ones, whose outputs are split (so is the gradient of their input). */
#ifndef ASH_MODEL_PASS_PARALLEL_LINEAR_H
#define ASH_MODEL_PASS_PARALLEL_LINEAR_H

#include "model/pass/grads.h"
#include "model/pass/linear.h"
#include "model/pass/step.h"

/* out [own rows, C] = x W^T + bias, W's inputs split along tp. Not for a pass without a tp axis. */
void ash_row_parallel_forward(const struct ash_pass_step *step, int32_t weight, int32_t bias, const float *x,
                              size_t x_stride, float *out);
/* after = before + the group's one product (its y is set here), row-parallel along tp, or gathered along outs.
 * Training keeps both; without a backward pass they are the same rows. What adapters or several ranks add to goes
 * through a buffer. */
void ash_row_parallel_add(const struct ash_pass_step *step, struct ash_linear_group *group, const float *before,
                          float *after);

/* Linear layers that share their input x, whose outputs are split along tp (or all here). */
struct ash_column_output {
    int32_t weight, bias;
    const float *dy;
    size_t dy_stride;
    const uint16_t *dy_bf16; /* as in ash_linear_io */
};
struct ash_column_parallel {
    size_t first;              /* the row of the step that x and dy start with */
    size_t rows, in, seq_rows; /* as in ash_linear_io */
    const float *x;            /* [rows, in] */
    const uint16_t *x_bf16;    /* as in ash_linear_io */
    float *dx;                 /* [own rows, in], as a reduction's out; [rows, in] where the outputs are all here */
    uint16_t *dx_bf16;         /* may get dx instead, rounded to bf16; or NULL */
    bool shared_rows;          /* as in ash_linear_io */
    size_t count;
    struct ash_column_output outputs[ASH_PROJECT_OUTS_MAX];
    const float *dlow[ASH_PROJECT_OUTS_MAX]; /* set by the backward functions: of each output, as in ash_linear_io */
};
/* Gradients of weights and biases to sink, and dx: a sum over the layers in their order. Returns whether one product
 * made all of dx, and dx_bf16 has it. */
bool ash_column_parallel_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                                  const struct ash_column_parallel *columns);
/* The same, where weight_grads adds those of weights and biases. Not for a pass without a tp axis. */
typedef void ash_weight_grads_fn(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                                 const struct ash_column_parallel *columns);
/* ash_column_parallel_backward with its own weight_grads. */
void ash_column_parallel_backward_with(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                                       const struct ash_column_parallel *columns, ash_weight_grads_fn *weight_grads);

#endif
