/* memory - how much memory a run will take at its peak, said before it is allocated: the formula of
 * docs/memory.md. */
#ifndef ASH_TRAIN_MEMORY_H
#define ASH_TRAIN_MEMORY_H

#include <stddef.h>
#include "train/layout/stages.h"

/* Bytes. */
struct ash_train_memory {
    size_t state;     /* weights and two moments in float32, and a bf16 copy of the weights in bf16 runs; replicas of a
                         node: this one's share of what they keep together */
    size_t gradients; /* partial sums over this rank's grains (train/layout/grains.h) */
    size_t activations; /* of the micro-batches that are under way at once, by train.recompute, with the logits of one
                           piece of the head */
    size_t program;     /* threads' scratch, code, libraries, pages of the data: nearly the same for all runs */
};

/* What this rank of a job that has been opened needs. */
void ash_train_memory_measure(const struct ash_stages *stages, struct ash_train_memory *memory_out);
size_t ash_train_memory_total(const struct ash_train_memory *memory);

#endif
