/* stream - the residual stream. Between the blocks of a layer each rank of tp keeps some rows of it (own rows); inside
 * of a block each has all rows, of its heads or columns. */
#ifndef ASH_MODEL_PASS_STREAM_H
#define ASH_MODEL_PASS_STREAM_H

#include "model/pass/step.h"

/* data [rows, width]: get those of `rows` that other ranks of tp keep. */
void ash_stream_gather_rows(const struct ash_pass_step *step, struct ash_range rows, float *data, size_t width);
/* All rows of the stream from the own rows of all ranks, which are a norm's out or scratch.dx. Returns where they are:
 * in `gathered` [rows, C], or in shared memory, where they stay until own ones are written again; alone: own. */
const float *ash_stream_gather(const struct ash_pass_step *step, const float *own, float *gathered);
/* The same of a norm's rows in the backward pass: in shared memory they are still there from the forward pass, unless
 * they were recomputed. */
const float *ash_stream_gather_kept(const struct ash_pass_step *step, const float *own, float *gathered);
/* Before scratch.dx is added to: it moves to the next of its buffers where other ranks may still read it as it is. */
void ash_stream_rotate_dx(const struct ash_pass_step *step);

#endif
