/* reduce - run a reduction over the ranks of tp: pipelined from rank to rank between nodes, through shared memory on
 * one (reduce_shm.h). */
#ifndef ASH_MODEL_PASS_REDUCE_H
#define ASH_MODEL_PASS_REDUCE_H

#include "model/pass/reduction.h"

/* Run it; all ranks of tp call this with the same rows, cols and chunk_count. Not for a pass without a tp axis. */
void ash_reduce(const struct ash_pass_step *step, const struct ash_reduction *reduction);
/* Floats that scratch.tile needs where a rank keeps up to own rows and sums have up to cols columns. */
size_t ash_reduce_tile_floats(size_t own, size_t cols);

#endif
