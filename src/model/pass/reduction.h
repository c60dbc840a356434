/* reduction - a sum per row and column over k-chunks that ranks of tp have parts of: the inputs of a row-parallel
 * product, the outputs of a column-parallel one in its backward pass, the vocabulary of a loss. In one process each
 * is a chain of additions in ascending k; across ranks it is the same chain: chunk by chunk, in each the ranks in
 * order. */
#ifndef ASH_MODEL_PASS_REDUCTION_H
#define ASH_MODEL_PASS_REDUCTION_H

#include "model/pass/linear.h"
#include "model/pass/step.h"

/* What one rank has of one k-chunk. */
struct ash_operand {
    size_t rank;
    const float *x; /* of the reduction's first row; NULL if it is on another rank */
    size_t x_stride;
    struct ash_gemm_args product;  /* if it is a product: all but M, where a lies, c and accumulate */
    struct ash_linear_chunk chunk; /* the product's range, if this matrix is quantised; else all zero */
    size_t ends;                   /* n: with it the sum over output n - 1 of a layer is complete; 0: with another */
};

/* The same from a later row on. */
static inline struct ash_operand ash_operand_from_row(struct ash_operand operand, size_t row)
{
    if (operand.x != NULL) operand.x += row * operand.x_stride;
    return operand;
}

/* sums of rows += (overwrite: =) the operand, whose x is that of the first of them. */
typedef void ash_accumulate_fn(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                               struct ash_range rows, bool overwrite, float *sums);

struct ash_reduction {
    struct ash_range rows; /* of the step's */
    size_t cols, chunk_count;
    struct ash_operand chunks[ASH_PROJECT_OUTS_MAX]; /* [chunk_count], this rank's */
    ash_accumulate_fn *accumulate;
    const float *bias; /* [cols], added after the last operand; or NULL */
    /* Work to overlap with the reduction: done once by each rank, when it would wait for others; or NULL. */
    void (*overlap)(const struct ash_pass_step *step, void *ctx);
    void *ctx;  /* of accumulate and overlap */
    float *out; /* [own rows, cols]; of rows outside of the reduction nothing is written. Where ranks share memory and
                   the reduction has not all rows, those of all ranks lie there, and a barrier has to follow. */
    float *all; /* or, between nodes: [rows, cols], of all ranks' rows of the reduction */
};

/* The end of a reduction: add its bias to `rows` rows of sums. */
void ash_reduction_add_bias(const struct ash_pass_step *step, const struct ash_reduction *reduction, size_t rows,
                            float *sums);
/* This rank's operand of a product over a chunk of a weight. */
struct ash_operand ash_operand_product(const struct ash_pass_step *step, const struct ash_linear_chunk *chunk);
/* Append this rank's operands of dx = dy W, one for each run of the weight's outputs: with q, k and v in one matrix,
 * the q of all ranks come first. */
void ash_reduction_add_outputs(const struct ash_pass_step *step, struct ash_reduction *reduction, int32_t weight,
                               const float *dy, size_t dy_stride);
/* An ash_accumulate_fn for operands that are products; ctx is not used. */
ash_accumulate_fn ash_operand_accumulate;

#endif
