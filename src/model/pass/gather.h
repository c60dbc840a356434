/* gather - inference over ranks that have some outputs of every matrix (ash_slice.gathers). What a product makes goes
 * among the columns of the other ranks, in memory that all of them share; a barrier, and all have whole rows. No sum is
 * cut, so bits are those of one rank. There are two such buffers in turn: a rank that is through a barrier knows that
 * all have read the buffer before that. Ranks on several nodes, and those that compute on devices, have a buffer each,
 * where they compute, and send their columns to each other.
 * Alone (axes.outs of size 1) everything here is a no-op. */
#ifndef ASH_MODEL_PASS_GATHER_H
#define ASH_MODEL_PASS_GATHER_H

#include "model/pass/axes.h"
#include "model/pass/linear.h"
#include "model/pass/step.h"

/* Open the buffers, on all ranks together: axes->gathered, in exec's memory if the ranks share none. Returns 0, -ENOMEM
 * or the group's error. */
int ash_gather_open(struct ash_axes *axes, const struct ash_model *model, const struct ash_exec *exec, size_t max_rows,
                    struct ash_err *err);
/* Bytes that they take of the memory of a device. */
size_t ash_gather_bytes(const struct ash_model *model, const struct ash_axes *axes, size_t max_rows);

/* Do ranks share the outputs of every matrix? */
static inline bool ash_gathers(const struct ash_pass_step *step)
{
    return step->axes->outs.size > 1;
}

/* Rows of logits that fit into a buffer. */
size_t ash_gather_logit_rows(const struct ash_pass_step *step);
/* part [rows, of this rank's heads] of attention's output, whole; or part where ranks share nothing. */
const float *ash_gather_heads(const struct ash_pass_step *step, const float *part);
/* part, this rank's heads of rows of width floats, with stride floats between its rows: whole. For ranks that share. */
const float *ash_gather_part(const struct ash_pass_step *step, const float *part, size_t stride, size_t width);
/* part [rows, this rank's columns of a feed-forward], whole [rows, width]; or part. */
const float *ash_gather_columns(const struct ash_pass_step *step, const float *part, size_t rows, size_t width);
/* Outputs of the stream: the group's one product, whose y is set here, whole [rows, C]. For ranks that share. */
const float *ash_gather_product(const struct ash_pass_step *step, struct ash_linear_group *group);
/* The same of several products, each with rows of its own, [count, C] together: outs.y and outs.y_stride of one that
 * begins at row first; and all of them, once each rank has made its outputs. */
void ash_gather_set_output(const struct ash_pass_step *step, struct ash_linear_out *out, size_t first);
/* The same of an expert that is whole on this rank: all columns. */
void ash_gather_set_rows(const struct ash_pass_step *step, struct ash_linear_out *out, size_t first);
/* See above: all `rows` of them, of which each rank has its columns. */
const float *ash_gather_outputs(const struct ash_pass_step *step, size_t rows);
/* The same if each rank has whole rows: expert e of the model has the rows from starts[e] to starts[e + 1]. */
const float *ash_gather_experts(const struct ash_pass_step *step, const size_t *starts);
/* Logits [rows, vocabulary]: the same, of the output matrix. */
const float *ash_gather_logits(const struct ash_pass_step *step, struct ash_linear_group *group);

#endif
