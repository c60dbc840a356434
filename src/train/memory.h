/* memory - a run's peak memory, estimated before it is allocated: the formula of docs/memory.md. */
#ifndef ASH_TRAIN_MEMORY_H
#define ASH_TRAIN_MEMORY_H

#include <stddef.h>
#include "train/layout/stages.h"

/* Bytes. */
struct ash_train_memory {
    /* weights and two moments in float32, and a bf16 copy of the weights in bf16 runs; of node replicas, this one's
     * share of their joint state */
    size_t state;
    /* partial sums over this rank's grains (train/layout/grains.h) */
    size_t gradients;
    /* of the micro-batches in flight, by train.recompute, with the logits of one piece of the head */
    size_t activations;
    /* threads' scratch, code, libraries, pages of the data: nearly the same for all runs */
    size_t program;
    /* on a device, where they are estimated before allocation (train/foresee.h); else 0: of the state the moments, of
     * the activations the logits, workspaces of ops, and the total */
    size_t moments, logits, scratch, device;
    size_t trials; /* of scratch: operands of products that a library is tried on, once; without room it is not tried */
};

/* This rank's memory in an open job, by kind. */
void ash_train_memory_measure(const struct ash_stages *stages, struct ash_train_memory *memory_out);
/* All kinds together. */
size_t ash_train_memory_total(const struct ash_train_memory *memory);

#endif
