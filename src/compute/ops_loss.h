/* ops_loss - the ops of a loss over logits: part of ops.h, whose contract holds here too. */
#ifndef ASH_COMPUTE_OPS_LOSS_H
#define ASH_COMPUTE_OPS_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/device_code.h"

#define ASH_LANES 16 /* partial sums of a row */
#define ASH_LOSS_REST_MAX 0x1p100f

struct ash_exec;

/* The loss of rows of logits: over a whole vocabulary (first 0, cols all), or over columns first ... first + cols - 1
 * of a sharded one. Partial results go from shard to shard in the order of the vocabulary.
 *
 * With y = sharpness * logits, and p the softmax of y:
 *   loss = log(sum of exp(y - max)) - (y[target] - max): minus the target's log-probability at temperature
 *   1 / sharpness. entropy = log(sum of exp(y - max)) - (sum of exp(y - max) * (y - max)) / sum of exp(y - max).
 *   The gradient of scale * loss + entropy_scale * entropy replaces the logits, where there is one:
 *   exp(y - max) * (scale * sharpness / sum) - exp(y - max) * (entropy_scale * sharpness / sum) * (y - max - log(sum) +
 *   entropy), and minus scale * sharpness at the target.
 * A row whose target is < 0 has loss, entropy and gradient 0. A term of an exponential that is 0 is 0.
 *
 * ref-wgmma computes whole rows of a bf16 model (round_bf16, no entropy) relative to the target's logit instead,
 * without a maximum. With c = sharpness * log2(e), t the target and ex2 that of ref/ex2.h,
 * e[v] = ex2(fma(logits[v], c, -(logits[t] * c))):
 *   rest = sum of e[v] over v other than t, by blocks of ASH_LOSS_BLOCK columns (compute/blocks.h)
 *   loss = log(1 + rest), and the gradient is a factor of the row, scale * sharpness / (1 + rest), times E:
 *   E[v] = e[v] and E[t] = -rest, rounded to bf16. E replaces the logits, the factor goes to factors.
 * A row whose rest is above ASH_LOSS_REST_MAX, or no number, is computed relative to its largest logit m instead: with
 * own = ex2(fma(logits[t], c, -(m * c))), loss = log(own + rest) - (logits[t] * sharpness - m * sharpness), and the
 * factor is divided by own + rest. */
#define ASH_LOSS_GRAD_ALIGN ((size_t)8)

struct ash_loss_part {
    size_t rows, cols, first;    /* first is a multiple of ASH_LANES */
    float *logits;               /* [rows, cols] */
    const int32_t *targets;      /* [rows], of the whole vocabulary; < 0: none */
    float scale;                 /* of every row's loss; 0, and scales NULL: no gradient, logits stay as they are */
    uint16_t *grad_bf16;         /* [rows, grad_stride]: gets the gradient, rounded to bf16, and logits are what they
                                    may; at a 16-byte border. NULL: logits get it. Not for shards */
    size_t grad_stride;          /* a multiple of ASH_LOSS_GRAD_ALIGN, at least cols */
    bool start;                  /* this is the first shard: top and sums begin here; others continue them */
    float *top;                  /* [rows, 2]: the largest logit, and the target's. Read for shards only */
    float *lanes;                /* [rows, ASH_LANES]: partial sums of exp(y - max). Read for shards only */
    float *loss;                 /* [rows] */
    const float *scales;         /* [rows]: of each row's loss, instead of scale; or NULL */
    const float *entropy_scales; /* [rows]: of each row's entropy; or NULL. Not without scales and entropy */
    float sharpness;             /* 1 / temperature; 0 means 1 */
    float *entropy;              /* [rows]; NULL: not wanted */
    float *moments;              /* [rows, ASH_LANES]: partial sums for the entropy, where a shard has one */
    bool round_bf16;             /* of a bf16 model: cross_entropy of ref-wgmma, others ignore it */
    float *factors;              /* [rows]: then, where there is a gradient */
};

/* Does a table that follows ref-wgmma compute this relative to the target's logit? */
ASH_INLINE bool ash_loss_is_relative(const struct ash_loss_part *part)
{
    return part->round_bf16 && part->entropy == NULL;
}

/* What logits are multiplied by. */
ASH_INLINE float ash_loss_sharpness(const struct ash_loss_part *part)
{
    return part->sharpness != 0.0f ? part->sharpness : 1.0f;
}
/* Do logits become gradients? */
ASH_INLINE bool ash_loss_has_gradient(const struct ash_loss_part *part)
{
    return part->scales != NULL || part->scale != 0.0f;
}
/* The scale of a row's loss. */
ASH_INLINE float ash_loss_scale(const struct ash_loss_part *part, size_t row)
{
    return part->scales != NULL ? part->scales[row] : part->scale;
}

/* How far rows of logits are from a teacher's, over a whole vocabulary (TRL's generalized_jsd_loss).
 *
 * With p the softmax of sharpness * logits, q that of sharpness * teacher, and m = (1 - beta) * p + beta * q:
 *   loss = beta * sum(q * log(q / m)) + (1 - beta) * sum(p * log(p / m)); for beta 0 it is sum(q * log(q / p)), for
 *   beta 1 sum(p * log(p / q)). To that is added target_weight * the cross-entropy of the target at temperature 1.
 *   The gradient of scale * loss replaces the logits: scale * sharpness * (p - q) for beta 0, else
 *   scale * sharpness * (1 - beta) * p * (log(p / m) - sum(p * log(p / m))), without (1 - beta) for beta 1.
 * Logarithms are y - max - log(sum of exp(y - max)), y the sharpened logits; log(m) is the larger of log(p) + log(1 -
 * beta) and log(q) + log(beta), plus log(1 + exp(the smaller - the larger)). Elements are float32; sums are of
 * ASH_LANES lanes in float64, folded as ash_lanes_fold does. A term of a probability that is 0 is 0. A row whose target
 * is < 0 has loss and gradient 0. */
struct ash_distill_args {
    size_t rows, cols;
    float *logits;          /* [rows, cols] */
    const float *teacher;   /* [rows, cols] */
    const int32_t *targets; /* [rows]; < 0: none */
    float scale;            /* of every row's loss */
    float sharpness;        /* 1 / temperature */
    float beta;             /* in [0, 1] */
    float target_weight;    /* 0: the targets' ids are not read */
    float *loss;            /* [rows] */
};

struct ash_loss_ops {
    /* Loss, entropy and gradient over a whole vocabulary. */
    void (*cross_entropy)(struct ash_exec *exec, const struct ash_loss_part *part);
    /* The same over a sharded one, to the bit, in three steps. All shards finish one before the next.
     * Step 1: top, the largest logit so far and the target's. */
    void (*part_top)(struct ash_exec *exec, const struct ash_loss_part *part);
    /* Step 2: lanes (and moments), the partial sums; with a gradient, and no entropy in it, logits become the
     * exponentials. */
    void (*part_sum)(struct ash_exec *exec, const struct ash_loss_part *part);
    /* Step 3: loss and entropy, and this shard of the gradient in logits. */
    void (*part_end)(struct ash_exec *exec, const struct ash_loss_part *part);
    /* Divergence from a teacher, and its gradient. */
    void (*distill)(struct ash_exec *exec, const struct ash_distill_args *args);
};

#endif
