/* linear - linear layers as matrix products, y = x W^T + b, and the products of their backward pass. Only reads the
 * model: where gradients go is grads.h's, how ranks share a layer parallel_linear.h's. */
#ifndef ASH_MODEL_PASS_LINEAR_H
#define ASH_MODEL_PASS_LINEAR_H

#include "model/model_priv.h"
#include "model/pass/step.h"
#include "model/weight.h"

/* Where a matrix product reads and writes. Rows of x have x_stride elements between them, and so on. */
struct ash_linear_io {
    size_t rows;
    size_t first; /* backward: the row of the step that dy and dx start with; 0 but where dx is of own rows alone */
    const float *x;
    const uint16_t *x_bf16; /* instead of x, rounded to bf16; or NULL */
    size_t x_stride;
    float *y; /* forward: out; backward: not used */
    size_t y_stride;
    /* backward: */
    const float *dy;
    const uint16_t *dy_bf16; /* dy, rounded to bf16, for products: dy itself is for biases then, and may be NULL without
                                them; or NULL */
    size_t dy_stride;
    float *dx;         /* NULL: not wanted */
    uint16_t *dx_bf16; /* instead of dx, rounded to bf16; or NULL. Not with dx_add and adapters */
    size_t dx_stride;
    bool dx_add;
    const float
        *dlow;        /* [rows, rank]: of the weight's adapter, scale * dy B summed over the ranks of tp that have parts
                          of its outputs; NULL: they are all here, or it has none */
    size_t seq_rows;  /* rows are whole sequences of this many, or one that starts at a multiple of ASH_K_GROUP of its
                         sequence and ends at one or at its end (then seq_rows = rows); 0: rows of many sequences, of
                         which other calls have more */
    bool shared_rows; /* backward: x and dy lie among the rows of all ranks of cp, which share gradients */
    size_t joined;    /* backward: how many weights that follow this one in memory (ash_linear_joins_next), as their
                         gradients do, are multiplied with it as one matrix: dy has their columns, too */
};

/* weight and bias are parameter indices (bias may be ASH_NO_PARAM). */
void ash_linear_forward(const struct ash_pass_step *step, int32_t weight, int32_t bias, const struct ash_linear_io *io);

/* One of several products that share their input. */
struct ash_linear_out {
    int32_t weight, bias;
    float *y;
    size_t y_stride;
    uint16_t *y_bf16; /* instead of y, rounded to bf16; or NULL */
};

/* The products of one step of a layer, as ash_project_args describes them, in as few calls as their weights allow. */
struct ash_linear_group {
    size_t rows;
    const float *x;
    const uint16_t *x_bf16; /* as in ash_linear_io */
    size_t x_stride;
    int32_t norm; /* weight of the RMS norm that x goes through first, or ASH_NO_PARAM */
    bool residual, swiglu;
    const float *add; /* y = add + product, rows as those of y; one out that ash_linear_adds, no norm. Or NULL */
    size_t out_count;
    struct ash_linear_out outs[ASH_PROJECT_OUTS_MAX];
};

/* Run a group's products, with adapters where rows have them; waits for weights that are still being read from disk. */
void ash_linear_project(const struct ash_pass_step *step, const struct ash_linear_group *group);
/* Can one call read both weights, as swiglu demands? */
bool ash_linear_alike(const struct ash_pass_step *step, int32_t a, int32_t b);

/* Can one call multiply by this weight and add something else to the product? */
bool ash_linear_adds(const struct ash_pass_step *step, int32_t weight);

/* May a product read this weight and the parameter after it as one matrix [outputs of both, in]? The gradient of their
 * input is then one chain over the outputs of both, the same as that of two products. */
bool ash_linear_joins_next(const struct ash_pass_step *step, int32_t weight);

/* The gradient of some rows of a weight, as it is stored. */
struct ash_weight_grad {
    int32_t weight;
    struct ash_range rows; /* of joined weights, of all of them */
    float *dweight;        /* all of it */
    bool overwrite;        /* dweight = the gradient; else += */
};
/* All rows of it. */
struct ash_weight_grad ash_weight_grad_all(const struct ash_model *model, int32_t weight, float *dweight,
                                           bool overwrite);
/* Add (or write) the gradient over io's rows. */
void ash_linear_weight_grad(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_io *io,
                            struct ash_weight_grad grad);
/* dbias += the gradient of the bias of weight over io's rows. */
void ash_linear_bias_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                          const struct ash_linear_io *io, float *dbias);
/* dx = (dx_add: +=) dy W. */
void ash_linear_input_grad(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);

/* A k-chunk of a product that other ranks have chunks of: x W^T over the inputs that are here, or (backward) x W over
 * outputs outs.first ... of the part that is here. */
struct ash_linear_chunk {
    int32_t weight;
    bool backward;
    struct ash_range outs;
    const float *x; /* [rows, ...], all columns */
    size_t x_stride;
};
/* The product over the chunk, all but M, c and accumulate. */
struct ash_gemm_args ash_linear_chunk_gemm(const struct ash_model *model, const struct ash_linear_chunk *chunk);
/* Is the matrix quantised? Then products over chunks go through ash_linear_chunk_add. */
bool ash_linear_is_quantised(const struct ash_model *model, int32_t weight);
/* sums [rows, outputs or (backward) inputs] += (overwrite: =) the product over the chunk. */
void ash_linear_chunk_add(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_chunk *chunk,
                          size_t rows, bool overwrite, float *sums);

#endif
