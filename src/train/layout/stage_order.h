/* pipeline - the order in which a rank of a pipeline works through its micro-batches: one forward, one backward, after
 * a start in which it runs ahead just far enough to keep the stages behind it busy. With several chunks of layers per
 * rank (interleaved) it takes as many micro-batches as there are ranks through one chunk, then through the next. Each
 * chunk sees the micro-batches in ascending order, forward and backward: gradients add up as without a pipeline. */
#ifndef ASH_TRAIN_PIPELINE_H
#define ASH_TRAIN_PIPELINE_H

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

/* Returns 0 or -EINVAL: several chunks want a multiple of ranks micro-batches. */
int ash_stage_order_check(const struct ash_stage_order *pipeline, struct ash_err *err);
/* Operation number index of ash_stage_order_count. */
size_t ash_stage_order_count(const struct ash_stage_order *pipeline);
struct ash_stage_op ash_stage_order_at(const struct ash_stage_order *pipeline, size_t index);
/* The most micro-batches of chunk that are between their forward and their backward at one time. */
size_t ash_stage_order_depth(const struct ash_stage_order *pipeline, size_t chunk);

#endif
