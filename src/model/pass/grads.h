/* grads - where a backward pass adds gradients, and in which order ranks do.
 *
 * A weight gradient is one chain of additions over tokens. Where ranks have different tokens (along cp in order of
 * position, and between the blocks of a layer along tp too), accumulation is ordered: each rank acquires the sum from
 * the rank before it, adds its own tokens and releases it to the next. So no split changes a bit.
 *
 *     rank 0: [acquire  add  release]
 *     rank 1:                 [acquire  add  release]      a matrix in a few pieces, so that ranks overlap
 *     rank 2:                                [acquire ...
 *
 * Ranks of cp that share gradients have one buffer: there only the order is passed on, and of most matrices each rank
 * computes a part over the tokens of all ranks instead (grads_shared.h). */
#ifndef ASH_MODEL_PASS_GRADS_H
#define ASH_MODEL_PASS_GRADS_H

#include "model/pass/axes.h"
#include "model/pass/linear.h"

#define ASH_TIED_HEAD (-2) /* in place of a parameter: the sum of a tied output matrix, apart from the embedding's */

/* A product whose weight gradient is published and not yet computed: see grads_shared.h. */
struct ash_published_product {
    int32_t sum, weight, bias;
    bool overwrite; /* the sum begins with it */
    struct ash_linear_io io;
};
#define ASH_PUBLISHED_MAX 12 /* products of a layer and the head */

/* The order of accumulation; lives as long as the pass. Open with ash_grad_order_open, close with _close. */
struct ash_grad_order {
    const struct ash_model *model;
    struct ash_exec *exec;
    struct ash_axes *axes;
    bool *has_terms;             /* [parameters, and a tied head's sum], host: the current batch has added to it */
    int32_t *deferred;           /* [deferred_count], host: sums over rows of the stream that the last rank of tp has */
    size_t deferred_count;       /* at most all parameters */
    uint64_t acquired, released; /* so far, of a buffer that ranks share */
    struct ash_published_product published[ASH_PUBLISHED_MAX];
    size_t published_count;
    uint64_t published_total, computed_total; /* so far */
};

/* Where gradients of one batch go. Passed by the caller of a backward function, which only adds to the buffers. */
struct ash_grad_sink {
    struct ash_grad_order *order;
    float *grads;        /* [ash_model_grad_size]; NULL: this rank has no rows, and adds nothing */
    float *expert_grads; /* [ash_model_expert_size]: experts' gradients go there; NULL: to grads */
    /* Along ep the experts here compute for the batches of all ranks: [ep size], expert_grads of each rank's batch;
     * NULL elements: that of this rank, to grads. NULL without an ep axis. ash_moe_source_sink picks one. */
    float *const *source_expert_grads;
    bool overwrite; /* the batch brings the first terms: products write what they would else add to zeros */
};

/* Over which rows is a gradient summed: all that the pass computes, or those of the stream that this rank keeps? */
enum ash_grad_rows { ASH_GRAD_ALL, ASH_GRAD_STREAM };

/* Returns 0 or -ENOMEM. Borrows all three until close, which accepts a zeroed struct. */
int ash_grad_order_open(struct ash_grad_order *order, const struct ash_model *model, struct ash_exec *exec,
                        struct ash_axes *axes, struct ash_err *err);
/* Free; accepts a zeroed struct. */
void ash_grad_order_close(struct ash_grad_order *order);
/* A batch begins: no sum has terms of it. */
void ash_grad_begin_batch(struct ash_grad_sink *sink);

/* A gradient's sum: of a parameter, of part of one, or nothing (data NULL: none is wanted). */
struct ash_grad_sum {
    float *data;
    size_t count; /* floats */
};
/* Of a parameter, ASH_TIED_HEAD or ASH_NO_PARAM (nothing); not acquired. */
struct ash_grad_sum ash_grad_sum_of(const struct ash_grad_sink *sink, int32_t param);
/* Does the next addition of this batch to the sum overwrite it? From then on it has terms. Along cp: on any rank. */
bool ash_grad_overwrites(struct ash_grad_sink *sink, int32_t param);
/* The same for ordered accumulation: only the first rank of cp overwrites. */
bool ash_grad_overwrites_first(struct ash_grad_sink *sink, int32_t param);
/* Zero those sums of a layer (-1: of the final norm and the head) that the batch should have overwritten and has
 * not. */
void ash_grad_zero_untouched(struct ash_grad_sink *sink, int layer);

/* Acquire a parameter's sum; returns it, or NULL where none is wanted. Release it to the next rank. */
float *ash_grad_acquire(struct ash_grad_sink *sink, int32_t param, enum ash_grad_rows rows);
/* Release an acquired sum to the next rank. */
void ash_grad_release(struct ash_grad_sink *sink, int32_t param, enum ash_grad_rows rows);
/* Release two that were acquired together: a rank that waits for one must not hold up the other. */
void ash_grad_release_both(struct ash_grad_sink *sink, int32_t one, int32_t other, enum ash_grad_rows rows);
/* Part of a sum, along cp alone. */
void ash_grad_acquire_part(struct ash_grad_sink *sink, struct ash_grad_sum part);
/* Release an acquired part to the next rank of cp. */
void ash_grad_release_part(struct ash_grad_sink *sink, struct ash_grad_sum part);

/* Give all ranks of tp the deferred sums, before any rank reads them. */
void ash_grad_flush(struct ash_grad_sink *sink);
/* After a batch that another one of the same sums follows: the first rank of cp gets from the last the sums of all
 * trained parameters but experts', or of the experts here, and accumulation continues there. A no-op where ranks share
 * gradients, and without a cp axis. */
void ash_grad_carry(struct ash_grad_sink *sink);
/* The same for the sums of the experts here. */
void ash_grad_carry_experts(struct ash_grad_sink *sink);

#endif
