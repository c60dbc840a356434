/* stage_order - the order in which a rank of a pipeline works through its micro-batches: 1F1B, one forward, one
 * backward, after a warm-up in which it runs just far enough ahead to keep the later stages busy. With several
 * chunks of layers per rank (interleaved) it takes as many micro-batches as there are ranks through one chunk, then
 * through the next. Each chunk sees the micro-batches in ascending order, forward and backward, so gradients are
 * summed as without a pipeline. */
#ifndef ASH_TRAIN_STAGE_ORDER_H
#define ASH_TRAIN_STAGE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

struct ash_stage_order {
    size_t rank, ranks; /* of the pipeline */
    size_t chunks;      /* per rank */
    size_t micros;      /* micro-batches of a step */
};

struct ash_stage_op {
    bool backward;
    size_t chunk, micro;
};

/* Can it be done? Returns 0 or -EINVAL: several chunks need a multiple of `ranks` micro-batches. */
int ash_stage_order_check(const struct ash_stage_order *order, struct ash_err *err);
/* How many operations a rank has in a step. */
size_t ash_stage_order_count(const struct ash_stage_order *order);
/* Operation number index, below that count. */
struct ash_stage_op ash_stage_order_at(const struct ash_stage_order *order, size_t index);
/* The most micro-batches of a chunk that are between their forward and their backward at one time. */
size_t ash_stage_order_depth(const struct ash_stage_order *order, size_t chunk);

#endif
