/* ops_sample - the op that chooses tokens from rows of logits: part of ops.h, whose contract holds here too.
 *
 * A row's logits are edited (biases, penalties, what is forbidden). The weight of a token is exp((logit - top) /
 * temperature) in float32, 1 for the most likely one. Sums of weights are exact: a weight counts in whole units of
 * 2^-ASH_SAMPLE_UNIT_BITS, truncated. So they have no order, and every machine draws the same token.
 *
 * Tokens are in order by descending logit; the lower id wins a tie. The filters, in this order:
 *   - top_k: the first top_k tokens stay.
 *   - top_p: the first of those stay whose weights reach ash_sample_need of all of theirs.
 *   - min_p: those with a weight of at least min_p stay.
 *   - typical_p: p = weight / sum, as float32. A token's surprise is -log(p), the expected one the sum of p * surprise
 *     in the same units. Tokens by ascending distance from it, ties in the order before: the first stay whose weights
 *     reach ash_sample_need. From here on that is their order.
 * Without top_k, top_p and typical_p nothing is sorted: the order is that of ids.
 * The draw: the first token, in order, at which the running sum of units exceeds ash_sample_mark. Where all weigh
 * nothing, the first. */
#ifndef ASH_COMPUTE_OPS_SAMPLE_H
#define ASH_COMPUTE_OPS_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_SAMPLE_UNIT_BITS 40
#define ASH_SAMPLE_VOCAB_MAX ((size_t)1 << 23) /* the units of this many tokens fit 64 bits */

struct ash_exec;

/* A number that is added to the logit of an id. */
struct ash_logit_bias {
    int32_t id;
    float bias;
};

/* How often a token occurred. */
struct ash_token_count {
    int32_t id;
    uint32_t in_text;   /* prompt and answer */
    uint32_t in_answer; /* of these, in the answer */
};

/* What a row's choice depends on beside its logits. Ids outside the vocabulary have no effect. */
struct ash_sample_row {
    double temperature;             /* 0: the most likely token; ties go to the lower id */
    double top_p, min_p, typical_p; /* 1, 0 and 1: all stay */
    size_t top_k;                   /* 0, or the vocabulary and more: all stay */
    bool filters_first;             /* the filters look at weights of temperature 1; the draw is at the temperature */
    uint64_t random;                /* the share of the weights at which to draw, of 2^64 */
    /* Edits, in this order. */
    const struct ash_logit_bias *bias; /* [bias_count], added one after the other */
    size_t bias_count;
    const struct ash_token_count *counts;  /* [count_count], each id once; read with penalties only */
    size_t count_count;                    /* 0: no penalties */
    float repetition, presence, frequency; /* penalties: see ash_sample_penalise */
    const int32_t *allowed;                /* [allowed_count]: these alone may be chosen; NULL: all */
    size_t allowed_count;
    const uint64_t *mask;     /* bit id % 64 of word id / 64: may it be chosen? NULL: all may */
    const int32_t *forbidden; /* [forbidden_count]: these may not */
    size_t forbidden_count;
};

/* Instead of an id: nothing may be chosen; or, less by the lowest id whose logit is NaN or infinite, a broken row. */
#define ASH_SAMPLE_NOTHING (-1)
#define ASH_SAMPLE_BROKEN (-2)

struct ash_sample_args {
    size_t rows, vocab; /* vocab is at most ASH_SAMPLE_VOCAB_MAX */
    float *logits;      /* rows of stride, of which the first vocab count; an op may write over them */
    size_t stride;
    const struct ash_sample_row *row; /* [rows], host memory with all it points to; the op copies what it needs */
    int32_t *ids;                     /* [rows] */
    int32_t *next; /* [rows]: the same for a table of embeddings, 0 where there is no id; NULL: not wanted */
};

struct ash_sample_ops {
    /* Choose a token for every row: its id, ASH_SAMPLE_NOTHING, or ASH_SAMPLE_BROKEN - the id of a broken logit. */
    void (*choose)(struct ash_exec *exec, const struct ash_sample_args *args);
};

#endif
