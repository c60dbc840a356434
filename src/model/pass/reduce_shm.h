/* reduce_shm - reductions of ranks of tp that share memory: a reduce-scatter in which nothing is sent. Each rank
 * publishes the addresses of its operands and sums some rows over those of all ranks. */
#ifndef ASH_MODEL_PASS_REDUCE_SHM_H
#define ASH_MODEL_PASS_REDUCE_SHM_H

#include "model/pass/reduction.h"

/* An operand as the other ranks read it. Addresses mean something to one process only, so x and the product's weight
 * are distances in bytes, from the start of the shared memory and from that of the rank's weights. */
#define ASH_POSTED_NONE SIZE_MAX /* the distance of NULL */
struct ash_posted_operand {
    struct ash_operand operand;
    size_t x_distance, weight_distance;
};

/* ash_reduce for ranks that share memory. */
void ash_reduce_shm(const struct ash_pass_step *step, const struct ash_reduction *reduction);

/* Of rows, those that this rank sums; of all rows, its own. */
struct ash_range ash_reduce_shm_rows(const struct ash_pass_step *step, struct ash_range rows);
/* Publish this rank's operands of count chunks; wait until all ranks have published theirs; read what rank published
 * for a chunk. What they point to stays as it is until all ranks of tp have met once more. */
void ash_operands_publish(const struct ash_pass_step *step, const struct ash_operand *operands, size_t count);
/* Wait until all ranks of tp have published theirs. */
void ash_operands_wait(const struct ash_pass_step *step);
/* What rank published for a chunk. */
struct ash_operand ash_operand_of(const struct ash_pass_step *step, size_t rank, size_t chunk);
/* The same operand's x, for ranks that agree on who writes which rows of it. */
float *ash_operand_rows(const struct ash_pass_step *step, size_t rank, size_t chunk);

#endif
